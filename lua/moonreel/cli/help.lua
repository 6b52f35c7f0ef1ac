--- `moonreel help [COMMAND]`: what there is and how it is used.
-- @module moonreel.cli.help
local help = {}

help.name = "help"
help.summary = "commands and how to use them"
help.usage = "help [COMMAND]"

--- Print one command's page.
---@param command table
---@return integer exit code
function help.show_command(command)
  local lines = { "usage: moonreel " .. command.usage, "", command.summary }
  if command.options then
    lines[#lines + 1] = ""
    for _, option in ipairs(command.options) do
      lines[#lines + 1] = ("  %-28s %s"):format(option[1], option[2])
    end
  end
  if command.overrides then
    lines[#lines + 1] = "\nFields of the recipe: key=value, --key value or --key=value; moonreel help fields lists them."
  end
  if command.details then
    lines[#lines + 1] = ""
    lines[#lines + 1] = command.details
  end
  print(table.concat(lines, "\n"))
  return 0
end

function help.run(args)
  local dispatch = require "moonreel.cli.dispatch"
  if args[1] then
    local command = dispatch.find(args[1])
    if command then return help.show_command(command) end
    require("moonreel.core.base").raise("MR_E_USAGE", ("help: '%s' is no command; try: moonreel help"):format(args[1]))
  end
  print("usage: moonreel COMMAND [...]      moonreel FILE.lua [...]      moonreel -e CODE\n")
  for _, command in ipairs(dispatch.commands()) do
    print(("  %-8s %s"):format(command.name, command.summary))
  end
  print("\n  moonreel COMMAND --help  shows a command's options; moonreel --version the version")
  return 0
end

return help
