--- Errors of this room: values with a code, as moonreel.core.base.raise makes them, but with a text
-- that already says where (the file:line that the loader recorded), so no frame of the stack is
-- blamed.
-- @module moonreel.recipe.fault
local base = require "moonreel.core.base"

local fault = {}

--- Make an error value.
---@param code string  "MR_E_RECIPE" (exit 3) or "MR_E_USAGE" (exit 2)
---@param text string
---@return table {code, message, exit}
function fault.new(code, text)
  local _, value = pcall(base.raise, code, text)
  value.message = text
  return value
end

--- Raise a recipe error.
function fault.recipe(form, ...)
  error(fault.new("MR_E_RECIPE", select("#", ...) > 0 and form:format(...) or form), 0)
end

--- Raise an error of the command line.
function fault.usage(form, ...)
  error(fault.new("MR_E_USAGE", select("#", ...) > 0 and form:format(...) or form), 0)
end

--- Raise an error about a value: exit 2 when the command line wrote it, 3 when a recipe did.
---@param p table  place of the value
function fault.at(p, form, ...)
  local text = require("moonreel.recipe.place").text(p) .. ": " .. form:format(...)
  error(fault.new(p.argument and "MR_E_USAGE" or "MR_E_RECIPE", text), 0)
end

--- Give a plain Lua error (of recipe code) its code; stories pass unchanged.
---@param value any
---@return table
function fault.adopt(value)
  if type(value) == "table" and value.code then
    return getmetatable(value) and value or fault.new(value.code, value.message)
  end
  local text = tostring(value)
  if text:find("not enough memory", 1, true) then
    text = "recipe: out of memory; a recipe may use 256 MiB; try: look for a table or a text that "
      .. "grows"
  end
  return fault.new("MR_E_RECIPE", text)
end

return fault
