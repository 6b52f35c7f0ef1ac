--- Tables of options. A function declares its options once; reading refuses other names, and help()
-- prints the declaration. Options that are passed on to the core are declared here in the same
-- form.
-- @module moonreel.text.options
local base = require "moonreel.core.base"
local nearest = require "moonreel.text.nearest"

local options = {}

--- All declared lists of fields, by the name of their function.
options.declared = {}

local function fail(...) base.raise("MR_E_USAGE", string.format(...)) end

local function unknown(who, key, names)
  if type(key) ~= "string" then
    fail("%s: options have names, got [%s]", who, tostring(key))
  end
  local near = nearest(key, names)
  if near then
    fail("%s: no option '%s', did you mean '%s'?", who, key, near)
  end
  fail("%s: no option '%s'; it takes %s", who, key, table.concat(names, ", "))
end

-- "integer|text" accepts either; other type names are only shown, not checked
local plain = { integer = true, number = true, boolean = true, text = true, table = true,
  ["function"] = true }

local function kind_of(value)
  if math.type(value) == "integer" then
    return "integer"
  end
  return type(value) == "string" and "text" or type(value)
end

local function fits(kind, value)
  local came = kind_of(value)
  for one in kind:gmatch("[^|]+") do
    if one == came or one == "number" and came == "integer" or not plain[one] then
      return true
    end
  end
  return false
end

--- Declares the fields of a function's options.
---@param who string      name of the function for users: "data.loader"
---@param fields table[]  rows {name, kind, doc, default = value}; kind "integer", "number",
---   "boolean", "text", "table", "function", several with | between, or the name of a class
---@return fun(given: table|nil): table read  returns a table with the defaults filled in; raises
---   MR_E_USAGE for an unknown field (with the nearest name) or a wrong type
function options.declare(who, fields)
  local names, rows = {}, {}
  for i, field in ipairs(fields) do
    rows[i] = { name = field[1], type = field[2], doc = field[3], default = field.default }
    names[i] = field[1]
    rows[field[1]] = rows[i]
  end
  options.declared[who] = rows
  return function(given)
    if given ~= nil and type(given) ~= "table" then
      fail("%s: expected a table of options, got %s", who, type(given))
    end
    local read = {}
    for key, value in pairs(given or read) do
      local row = rows[key]
      if type(key) ~= "string" or not row then
        unknown(who, key, names)
      end
      if not fits(row.type, value) then
        fail("%s: %s: expected %s, got %s", who, key, row.type, kind_of(value))
      end
      read[key] = value
    end
    for _, row in ipairs(rows) do
      if read[row.name] == nil then
        read[row.name] = row.default
      end
    end
    return read
  end
end

return options
