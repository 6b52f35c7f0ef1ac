--- The loss of a run's weights on fresh clips of the held-out triples, by time.
-- @module datasets.demo.held_out
local base = require "moonreel.core.base"
local clips = require "datasets.demo.clips"
local data = require "moonreel.data"
local world = require "datasets.demo.world"

local held_out = {}

local EACH <const>, SEED <const> = 6, 778 -- clips of each triple, and what they are drawn from

--- Scenes of all held-out triples: backgrounds and captions change from pass to pass.
---@return table[]
function held_out.scenes()
  local scenes, n = {}, #world.held_out
  for i = 0, EACH * n - 1 do
    local triple = world.held_out[i % n + 1]
    local scene = { id = i + 1, colour = triple[1], shape = triple[2], direction = triple[3],
      background = world.backgrounds[(i + i // n) % #world.backgrounds + 1][1] }
    scene.text = world.caption(scene, i // n + 1)
    scenes[i + 1] = scene
  end
  return scenes
end

--- Measure the loss of the newest checkpoint.
---@param run string       folder of a run
---@param folder string    in which clips and index are made, and removed again
---@param settings table   sampling: frames and whether averaged weights are rendered; threads
---@return table  times (0 .. 1000), losses, errors: their standard errors; clips: how many
function held_out.measure(run, folder, settings)
  clips.write(folder, held_out.scenes(), SEED, settings.sampling.frames)
  data.ingest(folder .. "/demo.csv", folder .. ".mrx")
  local list = require("moonreel.watch.found").new(run, { sets = {} }):list(true)
  local overrides = {}
  for key, value in pairs { ["dataset.data_path"] = folder .. ".mrx", ["dataset.hold_back"] = 0,
      eval_ema = settings.sampling.ema } do
    overrides[#overrides + 1] = { key = key, text = tostring(value), argument = key }
  end
  local measured = require("moonreel.watch.loss").measure(list[#list], { overrides = overrides,
    loss = require("moonreel.job.eval_loss").measure, threads = settings.threads }).loss
  base.remove_dir(folder)
  base.remove_dir(folder .. ".mrx")
  local bucket = measured.buckets[1]
  return { times = measured.times, losses = bucket.losses, errors = bucket.errors,
    clips = bucket.samples }
end

return held_out
