--- Runs a function of a measurement in a separate process, to measure its peak memory.
-- @module moonreel.bench.apart
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local DEADLINE_S <const> = 3600

--- Calls a function of lua/moonreel/bench in a new process.
---@param module string  name of the module there
---@param name string    name of the function
---@param ... any        strings and numbers
---@return table         the function's result
return function(module, name, ...)
  local words = {}
  for i, word in ipairs { ... } do
    words[i] = ("%q"):format(word)
  end
  local code = ('print(require("moonreel.core.json").encode(require("moonreel.bench.%s").%s(%s)))')
    :format(module, name, table.concat(words, ", "))
  local done = process.run({ process.program(), "-e", code }, "", { deadline_s = DEADLINE_S })
  if done.exit ~= 0 then
    base.raise("MR_E_INTERNAL", ("bench: %s ended with %s\n%s"):format(name,
      done.exit or done.signal, done.output))
  end
  return json.decode(done.output)
end
