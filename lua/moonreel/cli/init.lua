--- The command line: finds the command and calls it.
-- A command is the module moonreel.cli.<name>, which returns {name, summary, usage, options, run}.
-- There is no list of commands to edit: names are looked up among the modules of this room.
-- @module moonreel.cli
local cli = {}

--- Run one argument vector.
---@param args string[]  args[0] is the program
---@return integer exit code
function cli.main(args)
  -- In scripts, as at the prompt, tensors have the methods of moonreel.look.tensor. That module is
  -- loaded at the first call of one.
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
