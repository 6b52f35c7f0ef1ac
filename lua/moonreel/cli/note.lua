--- moonreel note: adds a note to a run.
-- @module moonreel.cli.note
local base = require "moonreel.core.base"

local command = {
  name = "note",
  summary = "add a note to a run, which log and runs show",
  usage = "note RUN TEXT",
  details = "The note goes to notes.jsonl in the run's folder, with the time and the step of the "
    .. "run, and does not disturb a\nprocess that writes the run. RUN is a folder, or the name or "
    .. "number of a run in outputs/.",
}

---@param args string[]
---@return integer exit code
function command.run(args)
  local words = require("moonreel.settings.words").parse(args, command).positional
  if #words < 2 then
    base.raise("MR_E_USAGE", ("note: expected a run and a text, got %d word%s; usage: moonreel %s")
      :format(#words, #words == 1 and "" or "s", command.usage))
  end
  local find = require "moonreel.runs.find"
  local dir = find.one(words[1], "note")
  local row = require("moonreel.runs.glance").of { name = find.name(dir), dir = dir }
  require("moonreel.runs.notes").add(dir, table.concat(words, " ", 2), row.step)
  print(("noted at step %s of %s"):format(row.step or "-", row.name))
  return 0
end

return command
