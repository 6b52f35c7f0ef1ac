--- Finds changes to a journal that were made after its run wrote it, if the lines show them: lines
-- that are not JSON objects, steps that are missing or occur twice. Other readers skip lines that
-- are not JSON objects, so commands report them.
-- @module moonreel.runs.damage
local base = require "moonreel.core.base"
local tail = require "moonreel.runs.tail"

local damage = {}

local SHOWN <const> = 5

-- The fault in the number of a step; nil: no fault. Each launch and each rollback names the step
-- after which it continues.
local function wrong_step(self, entry)
  local step, due = entry.step, self.due
  if math.type(step) ~= "integer" then
    return nil
  elseif entry.kind == "start" or entry.kind == "rollback" then
    self.due = step + 1
  elseif entry.kind == "step" or entry.kind == "skip" then
    self.due = step + 1
    if due and step > due then
      return step == due + 1 and ("step %d is missing before it"):format(due)
        or ("steps %d to %d are missing before it"):format(due, step - 1)
    elseif due and step < due and entry.kind == self.kind then
      return ("step %d occurs before it already"):format(step)
    end
    self.kind = entry.kind
  end
end

--- The faults in the lines of a journal.
---@param path string  of the file; it may not exist
---@return string[]    each begins with file and line
function damage.of(path)
  local list, self, number = {}, {}, 0
  for line in tail.open(path):lines() do
    number = number + 1
    local entry = tail.decode(line)
    local why = entry and wrong_step(self, entry) or not entry
      and ("is not a JSON object and is skipped: %s"):format(base.printable(line):sub(1, 60))
    if why then
      list[#list + 1] = ("%s:%d: %s"):format(path, number, why)
    end
  end
  return list
end

--- Prints the faults in the journals of a run, one line each, up to a limit.
---@param parts table[]  from moonreel.runs.find.parts
function damage.say(parts)
  for _, part in ipairs(parts) do
    local list = damage.of(part.dir .. "/journal.jsonl")
    for i = 1, math.min(#list, SHOWN) do
      io.stderr:write("note: ", list[i], "\n")
    end
    if #list > SHOWN then
      io.stderr:write(("note: %s/journal.jsonl: %d more lines like these\n"):format(part.dir,
        #list - SHOWN))
    end
  end
end

return damage
