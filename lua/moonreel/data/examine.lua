--- Checks clips of an index against their files: whether they exist, are unchanged and decode, and
-- how much the picture changes. Several threads inspect them; results come in order.
-- @module moonreel.data.examine
local core = require "moonreel.core.index"

local examine = {}

-- how long one wait may take before a tick comes
local WAIT_S = 0.1

--- Look at the files of rows.
---@param index moonreel.Index
---@param rows integer[]  numbers from 1
---@param given? table    look: "packets" (default), "frames", "changes"; threads; deadline_s
---@param tick? fun(done: integer, total: integer)  some times a second
---@return fun(): table|nil seen  what came of the next row, in order: {row, class (of what is
---   wrong, as in quarantine.jsonl, or "gone", or "keys" where some key frames of the index are
---   none; nil: good), why, changes, keys (of "keys": those that are some)}
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
