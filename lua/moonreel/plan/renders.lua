--- What a run renders while it trains (sampling.every): seconds of one rendering.
-- @module moonreel.plan.renders
local codec = require "moonreel.codec"
local sample = require "moonreel.sample"
local work = require "moonreel.plan.work"

local renders = {}

-- seconds in which the autoencoder makes frames of the latents of all renderings
local function decode_s(models, machine, r, of)
  if not models.pipe.autoencoder.apart then
    return 0
  end
  local planned <close> = codec.plan(models.pipe, of)
  local seconds = 0
  for _, row in ipairs(planned:decoders(r.frames, r.height, r.width)) do
    seconds = seconds + row.runs * work.parts(machine, row.prog:times(), models.dtype).forward
  end
  return seconds * #r.items * r.loop
end

--- What rendering the prompts of a recipe takes, on the machine of a plan.
---@param settings table  baked
---@param models table    of moonreel.plan.compiled
---@param machine table   of moonreel.plan.machine
---@param of table        facts, rates: as E.plan takes them
---@return table|nil      {seconds, clips, every, on}; nil: nothing is rendered. seconds is nil
---   where the processors that would do it are not described
function renders.of(settings, models, machine, of)
  local s = settings.sampling
  if s.every == 0 or models.job then
    return nil
  end
  local step, r = sample.programs(settings, models.pipe, models.exec)
  local out = { every = s.every, on = s.on, clips = #r.items }
  if machine.cpu or s.on == "device" then
    out.seconds = step.runs * work.parts(machine, step.prog:times(), models.dtype).forward
      + decode_s(models, machine, r, of)
  end
  step.prog:close()
  return out
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
