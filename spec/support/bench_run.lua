--- Run `moonreel bench` with words in a program of its own.
---@return string output
---@return integer exit
local process = require "moonreel.core.process"

return function(...)
  local result = process.run({ process.program(), "bench", ... }, "", { deadline_s = 600 })
  return result.output, result.exit
end
