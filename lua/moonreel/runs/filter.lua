--- Conditions that select runs: "optim.lr=1e-3", "optim.lr>1e-4", "state=running", "name~demo".
-- @module moonreel.runs.filter
local base = require "moonreel.core.base"
local nearest = require "moonreel.text.nearest"
local override = require "moonreel.recipe.override"

local filter = {}

-- the columns of a list of runs; other names are fields of the recipe
local COLUMNS <const> = { "name", "state", "step", "total", "loss", "age_s", "recipe", "stage",
  "host", "launches", "notes", "note" }

-- longer signs first
local SIGNS <const> = { "<=", ">=", "!=", "==", "=", "<", ">", "~" }

-- a number, if the text is one, else the text itself
local function plain(value)
  if type(value) == "boolean" then
    return tostring(value)
  end
  return tonumber(value) or value
end

-- does a relation hold between two values of one kind? numbers are compared as numbers, texts as
-- texts
local TESTS <const> = {
  ["="] = function(a, b) return a == b end,
  ["!="] = function(a, b) return a ~= b end,
  ["<"] = function(a, b) return a < b end,
  [">"] = function(a, b) return a > b end,
  ["<="] = function(a, b) return a <= b end,
  [">="] = function(a, b) return a >= b end,
}
local ORDERS <const> = { ["<"] = true, [">"] = true, ["<="] = true, [">="] = true }

local function is_column(key)
  for _, name in ipairs(COLUMNS) do
    if name == key then
      return true
    end
  end
end

-- the keys of a field of the recipe; nil: a column of the list
local function keys_of(key, word)
  if is_column(key) then
    return nil
  end
  local target, problem = override.target(key)
  if target and not target.indices then
    return target.keys
  end
  local near = nearest(key, COLUMNS)
  base.raise("MR_E_USAGE", ("runs: %s: %s%s; try: moonreel help fields, or one of %s"):format(word,
    problem or ("'%s' is an element of a list"):format(key),
    near and (", or did you mean '" .. near .. "'?") or "", table.concat(COLUMNS, ", ")))
end

--- Is a word of a command line a condition?
---@param word string
---@return boolean
function filter.is(word) return word:find("^[%a_][%w_.:%-]*[<>=!~]") ~= nil end

--- Parses a condition.
---@param word string  FIELD, one of = != < <= > >= ~ (a part of the text), and a value
---@return table       {word, key, keys, sign, value}; raises MR_E_USAGE for unknown names and signs
function filter.read(word)
  local key, rest = word:match("^([%a_][%w_.:%-]*)(.*)$")
  for _, sign in ipairs(SIGNS) do
    if key and rest:sub(1, #sign) == sign then
      local value = rest:sub(#sign + 1)
      sign = sign == "==" and "=" or sign
      if ORDERS[sign] and not tonumber(value) then
        base.raise("MR_E_USAGE", ("runs: %s: expected a number after %s, got '%s'"):format(word,
          sign, value))
      end
      return { word = word, key = key, keys = keys_of(key, word), sign = sign,
        value = plain(value) }
    end
  end
  base.raise("MR_E_USAGE", ("runs: '%s' is not a condition; expected FIELD=VALUE, or one of %s in "
    .. "place of ="):format(word, table.concat(SIGNS, " ")))
end

-- the value of a field in settings; nil: it is recipe.none, or the settings do not have it
local function value_in(tree, keys)
  local at = tree
  for _, key in ipairs(keys) do
    if type(at) ~= "table" then
      return nil
    end
    at = at[tostring(key)]
  end
  if type(at) == "table" or type(at) == "userdata" then
    return nil
  end
  return at
end

--- Does a run satisfy a condition?
---@param question table  from filter.read
---@param row table       from glance.of
---@param settings table|nil  values of the run's settings, from glance.settings
---@return boolean
function filter.holds(question, row, settings)
  local value
  if question.keys then
    value = settings and value_in(settings, question.keys)
  else
    value = row[question.key]
  end
  if value == nil then
    -- a field without a value has the text "none"
    value = "none"
  end
  value = plain(value)
  if question.sign == "~" then
    return tostring(value):find(tostring(question.value), 1, true) ~= nil
  elseif type(value) ~= type(question.value) then
    return question.sign == "!="
  end
  return TESTS[question.sign](value, question.value)
end

return filter
