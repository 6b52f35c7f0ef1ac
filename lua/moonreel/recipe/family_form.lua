--- The form of a family's fields.lua: {record, types, fields}. A key that nothing reads is refused,
-- because a mistyped `min` or `resume` would do nothing.
-- @module moonreel.recipe.family_form
local base = require "moonreel.core.base"
local nearest = require "moonreel.text.nearest"

local TYPE_KEYS = { "help", "preset", "reader" }
local ROW_KEYS = { "affects", "choices", "default", "help", "max", "min", "no_meaning", "none",
  "position", "reader", "resume", "spellings", "unit", "when", "word" }
local CHOICES = { affects = { "nothing", "run", "speed" }, resume = { "free", "refuse", "warn" } }

local function among(list, value)
  for _, one in ipairs(list) do
    if one == value then
      return true
    end
  end
  return false
end

local function shown(value)
  return type(value) == "string" and ("%q"):format(value) or type(value)
end

-- raises an error that names the file and what in it is wrong
local function refuse(path, form, ...)
  base.raise("MR_E_RECIPE", path .. ": " .. form:format(...))
end

local function keys_of(path, where, row, known)
  for key in pairs(row) do
    if type(key) == "string" and not among(known, key) then
      local near = nearest(key, known)
      refuse(path, "%s has the key '%s'; expected keys of %s%s", where, key,
        table.concat(known, ", "), near and (", did you mean '%s'?"):format(near) or "")
    end
  end
end

local function check_types(path, types)
  if type(types) ~= "table" or next(types) == nil then
    refuse(path, "types is %s; expected {NAME = {help = TEXT}}", shown(types))
  end
  for name, row in pairs(types) do
    if type(name) ~= "string" or type(row) ~= "table" or type(row.help) ~= "string" then
      refuse(path, "types[%s]: expected NAME = {help = TEXT}", shown(name))
    end
    keys_of(path, ("types.%s"):format(name), row, TYPE_KEYS)
  end
end

local function check_fields(path, fields)
  if type(fields) ~= "table" then
    refuse(path, "fields is %s; expected a list of rows, which may be empty", shown(fields))
  end
  local seen = {}
  for i, row in ipairs(fields) do
    if type(row) ~= "table" or type(row[1]) ~= "string" or row[2] == nil
        or type(row.help) ~= "string" then
      refuse(path, "row %d of fields: expected {NAME, KIND, help = TEXT, ...}", i)
    end
    local where = ("field '%s'"):format(row[1])
    if seen[row[1]] then
      refuse(path, "%s is declared twice", where)
    end
    seen[row[1]] = true
    keys_of(path, where, row, ROW_KEYS)
    for key, choices in pairs(CHOICES) do
      if row[key] ~= nil and not among(choices, row[key]) then
        refuse(path, "%s: %s is %s; expected %s", where, key, shown(row[key]),
          table.concat(choices, ", "))
      end
    end
  end
end

--- Refuses what fields.lua returned if it has another form.
---@param path string  of the file, for errors
---@param made any
---@return table made
return function(path, made)
  if type(made) ~= "table" then
    refuse(path, "it returns %s; expected {record = TEXT, types = {...}, fields = {...}}",
      made == true and "nothing" or shown(made))
  end
  local records = type(made.record) == "table" and made.record or { made.record }
  for i = 1, math.max(#records, 1) do
    if type(records[i]) ~= "string" then
      refuse(path, 'record is %s; expected a text such as "vae", or a list', shown(records[i]))
    end
  end
  check_types(path, made.types)
  check_fields(path, made.fields)
  return made
end
