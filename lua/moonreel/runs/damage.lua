--- Finds edits that somebody made to a journal after its run wrote it, as far as the lines show
-- them: lines that are not JSON objects, steps that are missing or occur twice. Other readers skip
-- lines that are not JSON objects, so commands report them.
-- @module moonreel.runs.damage
local base = require "moonreel.core.base"
local tail = require "moonreel.runs.tail"

local damage = {}

local SHOWN <const> = 5

-- What is wrong with the number of a step; nil: nothing. Each launch and each rollback says behind
-- which step it goes on.
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
      return ("step %d stands before it already"):format(step)
    end
    self.kind = entry.kind
  end
end

--- What is wrong with the lines of a journal.
---@param path string  of the file; it need not be there
---@return string[]    each begins with file and line
function damage.of(path)
  local list, self, number = {}, {}, 0
  for line in tail.open(path):lines() do
    number = number + 1
    local entry = tail.decode(line)
    local why = entry and wrong_step(self, entry) or not entry
      and ("no object of JSON, it is passed over: %s"):format(base.printable(line):sub(1, 60))
    if why then
      list[#list + 1] = ("%s:%d: %s"):format(path, number, why)
    end
  end
  return list
end

--- Say it of the journals of a run, a line for each, not too many.
---@param parts table[]  of moonreel.runs.find.parts
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
