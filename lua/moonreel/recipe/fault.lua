--- Errors of this room: values with a code, like those of moonreel.core.base.raise. Their text
-- already says where the error is (the file:line that the loader recorded), so no stack position is
-- added.
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

--- Raises an error about a value: with exit code 2 if the command line wrote it, 3 if a recipe did.
---@param p table  place of the value
function fault.at(p, form, ...)
  local text = require("moonreel.recipe.place").text(p) .. ": " .. form:format(...)
  error(fault.new(p.argument and "MR_E_USAGE" or "MR_E_RECIPE", text), 0)
end

--- The error that recipe code has raised, as a text; nil for an error of moonreel, which passes
-- unchanged. A recipe can raise a table, but no table with a metatable.
---@param value any
---@return string|nil
function fault.raised(value)
  if type(value) == "table" and getmetatable(value) then
    return nil
  end
  if type(value) ~= "string" then
    return ("error: expected a text, got %s"):format(value == nil and "nil" or "a " .. type(value))
  end
  if value:find("not enough memory", 1, true) then
    return (value:gsub("not enough memory.*", "out of memory; a recipe may use 256 MiB; try: look "
      .. "for a table or a text that grows"))
  end
  return value
end

--- Gives a code and a text to any error of a bake.
---@param value any
---@return table
function fault.adopt(value)
  local text = fault.raised(value)
  return text and fault.new("MR_E_RECIPE", text) or value
end

return fault
