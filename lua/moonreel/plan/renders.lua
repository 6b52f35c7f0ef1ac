--- Cost of renderings during a run (sampling.every): seconds of one rendering; processor seconds if
-- it runs in parallel with training.
-- @module moonreel.plan.renders
local base = require "moonreel.core.base"
local cost = require "moonreel.sample.cost"
local processors = require "moonreel.trainer.processors"
local rendering_cost = require "moonreel.trainer.rendering_cost"
local work = require "moonreel.plan.work"

local renders = {}

-- seconds and clips on processors of this host, as a run measures them
local function here_s(settings, models, mesh)
  local cpu, on_host = mesh.machine.cpu, settings.sampling.on == "host"
  local threads = on_host and processors.spare(settings, (cpu and cpu.threads or 1) * mesh.ranks)
    or cpu.threads
  return rendering_cost.ask(settings, threads, { saved_bytes = models.saved, fresh = on_host })
end

-- the same from the rates of a machine; on the GPU of this host including the work around programs
local function by_rates_s(settings, models, mesh, planned)
  local machine = mesh.machine
  local threads = settings.sampling.on == "host" and machine.cpu and machine.cpu.threads or 1
  local seconds, clips = cost.programs(settings, models.pipe, models.exec, { planned = planned,
    seconds = function(prog)
      return work.parts(machine, prog:kinds(), models.dtype).forward * threads
    end })
  return machine.here and seconds + cost.around(settings, models.pipe, models.exec,
    { saved_bytes = models.saved, clock = base.now_s }) or seconds, clips
end

--- The cost of rendering the prompts of a recipe on the machine of a plan.
---@param settings table  baked
---@param models table    from moonreel.plan.compiled
---@param mesh moonreel.plan.Mesh
---@param planned table   facts, rates: for E.plan
---@return table|nil      {seconds, clips, every, on}; nil: there are no renderings. seconds is nil
---   if the processors for it are not described
function renders.of(settings, models, mesh, planned)
  local s, machine = settings.sampling, mesh.machine
  if s.every == 0 or models.job then
    return nil
  end
  local known, by = machine.cpu or s.on == "device", by_rates_s
  if machine.here and (machine.cpu or s.on == "host") then
    known, by = true, here_s
  end
  local seconds, clips = by(settings, models, mesh, planned)
  return { every = s.every, on = s.on, clips = clips, seconds = known and seconds or nil }
end

--- The median time of the renderings of a run.
---@param facts table  from moonreel.trainer.measured.of_run
---@param on string    sampling.on
---@return number|nil seconds
function renders.measured(facts, on)
  local list = {}
  for i, row in ipairs(facts.rendered or {}) do
    list[i] = on == "host" and row.cpu_s or row.seconds
  end
  table.sort(list)
  return list[(#list + 1) // 2]
end

return renders
