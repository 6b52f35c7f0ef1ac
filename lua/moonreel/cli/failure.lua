--- Reports a failure: its text on stderr, its code as the exit code.
-- @module moonreel.cli.failure
local failure = {}

local MOST = 4000  -- bytes of a line that are printed whole

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

-- the beginning and the end of a line that no one reads whole, as of an argument of many bytes
local function shortened(line)
  -- without a part of a letter at the cuts
  local head = line:sub(1, MOST // 2):gsub("[\xC0-\xFF][\x80-\xBF]*$", "")
  local tail = line:sub(-MOST // 2):gsub("^[\x80-\xBF]+", "")
  return #line > MOST and ("%s ... %s (%d bytes)"):format(head, tail, #line) or nil
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
    (tostring(value.message):gsub("[^\n]+", shortened))))
  return value.exit or 1
end

return failure
