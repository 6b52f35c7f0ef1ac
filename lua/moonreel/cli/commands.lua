--- The commands: files of this room, by name.
-- @module moonreel.cli.commands
local commands = {}

--- One command, or nil. A file of this room is a command when it has `run` and `summary`.
---@param name string
---@return table|nil command
function commands.find(name)
  if not name:match("^[a-z][a-z0-9_]*$") then
    return nil
  end
  local app = require "moonreel.app"
  if not app.embedded("lua/moonreel/cli/" .. name .. ".lua") then
    return nil
  end
  local command = require("moonreel.cli." .. name)
  return type(command) == "table" and command.summary and command.run and command or nil
end

--- All commands, by name.
---@return table[] commands
function commands.all()
  local found = {}
  for _, path in ipairs(require("moonreel.app").embedded_list()) do
    local name = path:match("^lua/moonreel/cli/([a-z][a-z0-9_]*)%.lua$")
    local command = name and commands.find(name)
    if command then
      found[#found + 1] = command
    end
  end
  table.sort(found, function(a, b) return a.name < b.name end)
  return found
end

return commands
