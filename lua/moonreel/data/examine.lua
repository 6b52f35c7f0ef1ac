--- Checks clips of an index against their files: whether they exist, are unchanged and decode, and
-- how much the picture changes. Several threads inspect them; results come in order.
-- @module moonreel.data.examine
local core = require "moonreel.core.index"

local examine = {}

-- longest wait between two ticks
local WAIT_S = 0.1

--- Examines the files of rows.
---@param index moonreel.Index
---@param rows integer[]  numbers from 1
---@param given? table    look: "packets" (default), "frames", "changes"; threads; deadline_s
---@param tick? fun(done: integer, total: integer)  called several times a second
---@return fun(): table|nil seen  the result for the next row, in order: {row, class (of the fault,
---   as in quarantine.jsonl, or "gone", or "keys" if the index lists wrong key frames; nil: good),
---   why, changes, keys (for "keys": the right ones)}
function examine.sweep(index, rows, given, tick)
  local o, done = given or {}, 0
  local sweep = core.sweep(index.core, rows, { look = o.look, threads = o.threads,
    deadline_s = o.deadline_s, isolated = true })
  return function()
    if done == #rows then
      sweep:close()
      return nil
    end
    local seen
    repeat
      seen = sweep:next(WAIT_S)
      if tick then
        tick(done + (seen and 1 or 0), #rows)
      end
    until seen
    done = done + 1
    return seen
  end
end

return examine
