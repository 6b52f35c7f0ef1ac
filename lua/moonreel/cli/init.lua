--- The command line: finds the command and calls it.
-- A command is the module moonreel.cli.<name>, which returns {name, summary, usage, options, run}.
-- There is no list of commands to edit: names are looked up among the modules of this room.
-- @module moonreel.cli
local cli = {}

--- Run one argument vector.
---@param args string[]  args[0] is the program
---@return integer exit code
function cli.main(args)
  -- tensors have the methods of moonreel.look.tensor in scripts as at the prompt; it is loaded when
  -- one is asked for
  local function more() return require("moonreel.look.tensor").methods end
  local methods = require("moonreel.core.tensor").methods
  local refuse = getmetatable(methods).__index
  setmetatable(methods, { __methods = more,
    __index = function(_, name) return more()[name] or refuse(methods, name) end })
  local first = args[1]
  if require("moonreel.cli.ranks").is_option(first) then
    return require("moonreel.cli.ranks").run(args)
  end
  if first == "-e" or (first and first:match("%.lua$")) then
    return require("moonreel.cli.script").run(args)
  end
  return require("moonreel.cli.dispatch").run(args)
end

return cli
