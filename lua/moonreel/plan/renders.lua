--- What a run renders while it trains (sampling.every): seconds of one rendering.
-- @module moonreel.plan.renders
local cost = require "moonreel.sample.cost"
local processors = require "moonreel.trainer.processors"
local work = require "moonreel.plan.work"

local renders = {}

-- threads of what renders on this machine, as a share of those that a run computes with, and how
-- much longer it takes beside the run than alone
local function threads_of(settings, machine, ranks)
  local own = machine.cpu.threads
  if settings.sampling.on == "device" then
    return 1, 1
  end
  local threads = processors.spare(settings, own * ranks)
  return threads / own, processors.stretch(own * ranks, threads)
end

--- What rendering the prompts of a recipe takes, on the machine of a plan.
---@param settings table  baked
---@param models table    of moonreel.plan.compiled
---@param mesh moonreel.plan.Mesh
---@param planned table   facts, rates: as E.plan takes them
---@return table|nil      {seconds, clips, every, on}; nil: nothing is rendered. seconds is nil
---   where the processors that would do it are not described
function renders.of(settings, models, mesh, planned)
  local s, machine = settings.sampling, mesh.machine
  if s.every == 0 or models.job then
    return nil
  end
  local share, stretch = 1, 1
  if machine.here then
    share, stretch = threads_of(settings, machine, mesh.ranks)
  end
  local seconds, clips = cost.of(settings, models.pipe, models.exec, { planned = planned,
    here = machine.here and { saved_bytes = models.saved, fresh = s.on == "host" },
    seconds = function(prog)
      return work.parts(machine, prog:times(), models.dtype).forward / share
    end })
  return { every = s.every, on = s.on, clips = clips,
    seconds = (machine.cpu or s.on == "device") and seconds * stretch or nil }
end

--- What renderings of a run took: the median.
---@param facts table  of moonreel.trainer.truth.of_run
---@return number|nil seconds
function renders.measured(facts)
  local list = table.move(facts.rendered or {}, 1, #(facts.rendered or {}), 1, {})
  table.sort(list)
  return list[(#list + 1) // 2]
end

return renders
