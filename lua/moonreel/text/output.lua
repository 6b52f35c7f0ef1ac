--- Output of a run whose reader may disappear (`| head`, a closed terminal) while the run
-- continues.
-- @module moonreel.text.output
local process = require "moonreel.core.process"

local output = {}

local GONE <const> = { [5] = true, [32] = true } -- EIO of a closed terminal, EPIPE

--- From now on this process and its children continue if the reader of standard output or standard
-- error goes away.
function output.outlive() process.outlive_readers() end

--- Writes texts to a stream at once. If its reader is gone, these and all later texts are dropped.
---@param file file*
---@param ... string
---@return boolean    false: the reader is gone
---@return string|nil why
function output.write(file, ...)
  local good, why, number = file:write(...)
  if good then
    good, why, number = file:flush()
  end
  if not good and GONE[number] then
    process.drop(file)
    return false, why
  end
  return true
end

return output
