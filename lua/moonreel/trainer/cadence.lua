--- When a run saves: by steps (ckpt_every), by time (ckpt_minutes), and at its end.
-- @module moonreel.trainer.cadence
local base = require "moonreel.core.base"
local progress = require "moonreel.trainer.progress"
local sets = require "moonreel.watch.sets"

local cadence = {}

--- Bytes of the buffer through which a checkpoint is written that is not copied as a whole.
cadence.WINDOW_BYTES = 64 << 20

-- the steps between checkpoints for each set
local function periods_of(settings)
  return { [sets.OWN] = settings.sampling.every, [sets.LOSS] = settings.eval.every }
end

--- The sets that are made of checkpoints while a run trains.
---@param settings table
---@param step integer|nil  the sets for the checkpoint of this step; nil: those for any checkpoint
---@return table<string, boolean>  names of moonreel.watch.sets
function cadence.sets(settings, step)
  local due = {}
  for name, every in pairs(periods_of(settings)) do
    due[name] = every > 0 and (step == nil or step % every == 0) or nil
  end
  return due
end

--- Steps from one checkpoint to the next; 0: checkpoints do not depend on steps.
function cadence.interval(settings)
  if settings.ckpt_every > 0 then
    return settings.ckpt_every
  end
  local least = 0
  for _, every in pairs(periods_of(settings)) do
    least = (least == 0 or every > 0 and every < least) and every or least
  end
  return least
end

--- Number of snapshots that a run has in memory from its start: one is written while the next is
-- taken, unless saves are minutes apart. It is 0 if steps wait for saves (async_io = false), or if
-- no step follows a save: then a checkpoint passes through a buffer (cadence.WINDOW_BYTES).
function cadence.buffers(settings)
  return not settings.async_io and 0 or cadence.interval(settings) > 0 and 2
    or settings.ckpt_minutes > 0 and 1 or 0
end

--- Host memory that saves need.
---@param settings table
---@param saved integer  bytes of a checkpoint, or of a rank's share of it
---@return integer
function cadence.buffer_bytes(settings, saved)
  local buffers = cadence.buffers(settings)
  return buffers > 0 and buffers * saved or math.min(saved, cadence.WINDOW_BYTES)
end

local function common_multiple(a, b)
  local x, y = a, b
  while y > 0 do
    x, y = y, x % y
  end
  return a // x * b
end

-- counts the steps up to `steps` that are multiples of at least one of periods[i], periods[i + 1],
-- ..., and of `of`
local function multiples(steps, periods, i, of)
  if i > #periods then
    return 0
  end
  local both = common_multiple(of, periods[i])
  return steps // both + multiples(steps, periods, i + 1, of) - multiples(steps, periods, i + 1,
    both)
end

--- The number of checkpoints that a run of `steps` steps in `hours` hours writes.
function cadence.count(settings, steps, hours)
  local minutes, periods, last = settings.ckpt_minutes, {}, 1
  for _, every in ipairs { settings.ckpt_every, settings.sampling.every, settings.eval.every } do
    periods[#periods + 1] = every > 0 and every or nil
  end
  for _, every in ipairs(periods) do
    last = steps % every == 0 and 0 or last
  end
  local by_steps = multiples(steps, periods, 1, 1) + last
  local by_time = minutes > 0 and 1 + hours * 60 // minutes or 1
  return math.tointeger(math.max(by_steps, by_time))
end

--- Text for people: when a run saves, and how much host memory that needs.
---@param settings table
---@param saved integer  bytes of a checkpoint, or of a rank's share of it
---@return string
function cadence.words(settings, saved)
  local by = {}
  if settings.ckpt_every > 0 then
    by[1] = ("every %d steps (ckpt_every)"):format(settings.ckpt_every)
  end
  if settings.ckpt_minutes > 0 then
    by[#by + 1] = ("%g minutes after the last one (ckpt_minutes)"):format(settings.ckpt_minutes)
  end
  by[#by + 1] = #by == 0 and "only at the end (ckpt_every, ckpt_minutes)" or "at the end"
  local buffers, bytes = cadence.buffers(settings), cadence.buffer_bytes(settings, saved)
  return ("checkpoints: %s; %s"):format(table.concat(by, ", "), buffers > 0
    and ("%d of %s in host memory"):format(buffers, progress.bytes(saved))
    or ("steps wait for a save, which goes through %s"):format(progress.bytes(bytes)))
end

--- Is a save due by the clock of the first rank? Other ranks learn it with the losses of a step.
-- Jobs that take steps without saving have no `saved_s`.
---@param r mr.Run  saved_s: time of the last save, or of the beginning of the run
function cadence.late(r)
  local minutes = r.settings.ckpt_minutes
  return r.saved_s and r.team.leads and minutes > 0 and base.now_s() - r.saved_s >= 60 * minutes
    and r.saver:status().pending == 0
end

--- Is a checkpoint due after the step that has ended? All ranks give the same answer.
---@param r mr.Run  late: whether the clock of the first rank said so
function cadence.due(r)
  local every = r.settings.ckpt_every
  r.late = r.late or r.team.size == 1 and cadence.late(r)
  return r.late or every > 0 and r.step % every == 0
    or next(cadence.sets(r.settings, r.step)) ~= nil
end

return cadence
