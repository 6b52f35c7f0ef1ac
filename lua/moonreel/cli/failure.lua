--- Reports a failure: its text on stderr, its code as the exit code.
-- @module moonreel.cli.failure
local failure = {}

--- Message handler for xpcall: an error with a message for users passes; a defect of a program gets
-- its trace.
---@param value any
---@return any
function failure.handler(value)
  if type(value) == "table" and value.exit then
    return value
  end
  local text = type(value) == "string" and value or "error value: " .. tostring(value)
  return { code = "MR_E_FAIL", exit = 1, message = debug.traceback(text, 2) }
end

--- Prints a failure as `moonreel: MESSAGE` and returns its exit code. A failure that another rank
-- reports for all (moonreel.comm.team) is not printed again.
---@param value table|string  {code, message, exit, reported} or text
---@return integer exit code
function failure.report(value)
  if type(value) ~= "table" then
    value = { message = tostring(value), exit = 1 }
  end
  io.stdout:flush()
  if value.reported then
    require("moonreel.comm").let_go(5)
    return value.exit
  end
  -- printed in one piece: several ranks may write at the same time
  io.stderr:write(("moonreel: %s%s\n"):format(require("moonreel.comm.place").label(),
    tostring(value.message)))
  return value.exit or 1
end

return failure
