--- Finds a command by its name and runs it.
-- @module moonreel.cli.dispatch
local commands = require "moonreel.cli.commands"
local failure = require "moonreel.cli.failure"
local nearest = require "moonreel.text.nearest"

local dispatch = {}

-- commands of other programs, and what does the same here
local ELSEWHERE <const> = { resume = "moonreel train RUN",
  continue = "moonreel train RUN",
  export = "moonreel log RUN --export csv for the curve, moonreel ckpt convert for the weights",
  generate = "moonreel sample RUN --prompt TEXT", infer = "moonreel sample RUN --prompt TEXT",
  inference = "moonreel sample RUN --prompt TEXT", status = "moonreel runs", ls = "moonreel runs",
  config = "moonreel show RECIPE", kill = "moonreel stop RUN" }

local function usage_error(text)
  return failure.report { code = "MR_E_USAGE", exit = 2, message = text }
end

---@param args string[]
---@return integer exit code
function dispatch.run(args)
  local name = args[1]
  if not name or name == "--help" or name == "-h" then
    name = "help"
  end
  local command = commands.find(name)
  if not command then
    local names = {}
    for _, other in ipairs(commands.all()) do
      names[#names + 1] = other.name
    end
    local hint = not ELSEWHERE[name] and nearest(name, names)
    return usage_error(("'%s' is no command%s; try: %s"):format(name,
      hint and (", did you mean '" .. hint .. "'?") or "", ELSEWHERE[name] or "moonreel help"))
  end
  local rest = {}
  for i = 2, #args do
    rest[#rest + 1] = args[i]
  end
  for _, word in ipairs(rest) do
    if word == "--" then
      break
    end
    if word == "--help" or word == "-h" then
      return require("moonreel.cli.help").show_command(command.part and command.part(rest[1])
        or command)
    end
  end
  local ok, result = xpcall(command.run, failure.handler, rest,
    { program = args[0], command = command })
  if not ok then
    return failure.report(result)
  end
  return result or 0
end

return dispatch
