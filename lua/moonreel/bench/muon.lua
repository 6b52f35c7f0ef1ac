--- The cost of Muon in a training step: the demo's step with it in turn with the same by AdamW.
-- @module moonreel.bench.muon
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local demo = require "moonreel.bench.demo"
local paired = require "moonreel.bench.paired"
local pipeline = require "moonreel.models.pipeline"

local muon = {}

muon.aim = 1.25 -- largest allowed ratio to the step of AdamW

local function timed(f)
  return function()
    local began = base.now_s()
    f()
    return base.now_s() - began
  end
end

--- Measures.
---@param options table  threads, dtype, seconds
---@return table  dtype, threads, rounds; adamw_s, muon_s: seconds of a step; ratio: median of
---   muon's to adamw's time; aim: largest allowed ratio
function muon.measure(options)
  local device <close> = E.device("cpu", options.threads or 0)
  local dtype, steps, execs = options.dtype, {}, {}
  for i, optimizer in ipairs {"adamw", "muon"} do
    local s = require("moonreel.settings").bake("recipes/tiny/demo.lua",
      {"optim.type=" .. optimizer})
    dtype = dtype or pipeline.dtype(s, device)
    local opened = demo.open(device, s, demo.bucket(s), dtype)
    opened.run()
    steps[i], execs[i] = timed(opened.run), opened.exec
  end
  local took = paired.rounds(steps, options.seconds)
  for _, exec in ipairs(execs) do
    exec:close()
  end
  return {dtype = dtype, threads = device:facts().threads, rounds = #took[1],
    adamw_s = paired.median(took[1]), muon_s = paired.median(took[2]),
    ratio = paired.ratio(took[2], took[1]), aim = muon.aim}
end

return muon
