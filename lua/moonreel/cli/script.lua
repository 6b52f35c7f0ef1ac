--- `moonreel FILE.lua ARGS` and `moonreel -e CODE ARGS`: ordinary Lua with the whole runtime.
-- These are the user's own programs without restrictions. They have the names of the prompt.
-- @module moonreel.cli.script
local failure = require "moonreel.cli.failure"

local script = {}

-- the result of the program is its exit code: nothing and true are 0, false is 1
local function exit_code(value)
  if math.type(value) == "integer" then
    return value & 255
  end
  return value == false and 1 or 0
end

--- Loads a script of the user, or one of datasets/, which is part of the program.
---@param path string
---@param names table|nil  values of its global names; nil: those of the prompt
---@return function|nil
---@return string|nil why
function script.load(path, names)
  local shipped = path:find("^datasets/") and not require("moonreel.core.base").exists(path)
    and require("moonreel.app").embedded(path)
  if shipped then
    return load(shipped, "@" .. path, "t", names or _G)
  end
  return loadfile(path, "t", names or _G)
end

-- the text of a value; tables and opened objects print as at the prompt
local function shown(value)
  if type(value) ~= "table" and type(value) ~= "userdata" then
    return tostring(value)
  end
  require("moonreel.repl.names").printers()
  return require("moonreel.repl.show").text(value)
end

---@param args string[]  {FILE.lua, ...} or {"-e", CODE, ...}
---@return integer exit code
function script.run(args)
  local is_text = args[1] == "-e"
  local count = is_text and 2 or 1
  if is_text and not args[2] then
    return failure.report { code = "MR_E_USAGE", exit = 2, message = "-e: expected Lua code, got "
      .. "nothing; try: moonreel -e 'print(1 + 1)'" }
  end
  -- sets arg as the stand-alone interpreter does: the program at 0, its arguments from 1
  local global_arg = { [0] = is_text and "-e" or args[1], [-1] = args[0] }
  for i = count + 1, #args do
    global_arg[i - count] = args[i]
  end
  _G.arg = global_arg
  require("moonreel.repl.names").lend()

  local chunk, problem
  if is_text then
    chunk = load("return " .. args[2], "=-e", "t")
    if not chunk then
      chunk, problem = load(args[2], "=-e", "t")
    end
  else
    chunk, problem = script.load(args[1])
  end
  if not chunk then
    return failure.report { code = "MR_E_USAGE", exit = 2, message = problem }
  end

  local results = table.pack(xpcall(chunk, failure.handler, table.unpack(global_arg)))
  if not results[1] then
    return failure.report(results[2])
  end
  if not is_text then
    return exit_code(results[2])
  end
  -- an expression prints its values
  if results.n > 1 then
    for i = 2, results.n do
      results[i] = shown(results[i])
    end
    print(table.concat(results, "\t", 2, results.n))
  end
  return 0
end

return script
