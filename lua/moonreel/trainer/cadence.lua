--- When a run saves: by steps (ckpt_every), by time (ckpt_minutes), and at its end.
-- @module moonreel.trainer.cadence
local base = require "moonreel.core.base"

local cadence = {}

--- Is a step one of those that are rendered?
---@param settings table
---@param step integer
---@return boolean
function cadence.renders(settings, step)
  local every = settings.sampling.every
  return every > 0 and step % every == 0
end

--- Steps from one checkpoint to the next one; 0: none is taken by steps.
function cadence.interval(settings)
  return settings.ckpt_every > 0 and settings.ckpt_every or settings.sampling.every
end

--- Snapshots that a run has in memory from its start: one is written while the next is taken,
-- unless saves are minutes apart.
function cadence.buffers(settings)
  return cadence.interval(settings) > 0 and 2 or settings.ckpt_minutes > 0 and 1 or 0
end

-- of the steps up to the last one, which counts in any case, multiples of a, of b or of both
local function multiples(steps, a, b)
  local x, y = a, b
  while y > 0 do
    x, y = y, x % y
  end
  local n = steps // a + steps // b - steps // (a // x * b)
  return n + ((steps % a > 0 and steps % b > 0) and 1 or 0)
end

--- The checkpoints that a run of `steps` steps in `hours` hours writes.
function cadence.count(settings, steps, hours)
  local every, minutes = settings.ckpt_every, settings.ckpt_minutes
  local renders = settings.sampling.every
  local by_steps = every > 0 and -(-steps // every) or 1
  if renders > 0 then
    by_steps = multiples(steps, every > 0 and every or renders, renders)
  end
  local by_time = minutes > 0 and 1 + hours * 60 // minutes or 1
  return math.tointeger(math.max(by_steps, by_time))
end

--- When a run saves, for people.
function cadence.words(settings)
  local by = {}
  if settings.ckpt_every > 0 then
    by[1] = ("every %d steps (ckpt_every)"):format(settings.ckpt_every)
  end
  if settings.ckpt_minutes > 0 then
    by[#by + 1] = ("%g minutes after the last one (ckpt_minutes)"):format(settings.ckpt_minutes)
  end
  by[#by + 1] = #by == 0 and "only at the end (ckpt_every, ckpt_minutes)" or "at the end"
  return "checkpoints: " .. table.concat(by, ", ")
end

--- Is a save due by the clock of the first rank? The others hear of it with the losses of a step.
-- Jobs that take steps without saving have no `saved_s`.
---@param r mr.Run  saved_s: when the last save was, or the run began
function cadence.late(r)
  local minutes = r.settings.ckpt_minutes
  return r.saved_s and r.team.leads and minutes > 0 and base.now_s() - r.saved_s >= 60 * minutes
    and r.saver:status().pending == 0
end

--- Is a checkpoint to be taken behind the step that is done? All ranks give the same answer.
---@param r mr.Run  late: the first rank's clock said so
function cadence.due(r)
  local every = r.settings.ckpt_every
  r.late = r.late or r.team.size == 1 and cadence.late(r)
  return r.late or every > 0 and r.step % every == 0 or cadence.renders(r.settings, r.step)
end

return cadence
