--- Kinds of values: how each is checked, compared and written. The registry's rows name them. A
-- leaf schema is {tag = integer|number|boolean|text|list|free|<own kind>, min, max, choices, none,
-- word, element, count}; `word` is a text that is allowed in place of such a value. `check(schema,
-- value)` returns the value in normal form, or nil and a text: what was expected.
-- @module moonreel.recipe.kinds
local marker = require "moonreel.recipe.marker"

local kinds = {}

--- A value as text for messages.
---@param value any
---@return string
function kinds.show(value)
  if value == nil or value == marker.none then
    return "none"
  end
  if value == marker.previous then
    return "recipe.previous"
  end
  if value == marker.remove then
    return "recipe.remove"
  end
  if value == marker.absent then
    return "removed"
  end
  if type(value) == "string" then
    return (("%q"):format(value):gsub("\\\n", "\\n"))
  end
  if type(value) == "number" then
    return kinds.number_text(value)
  end
  if type(value) == "table" then
    local parts = {}
    for i, item in ipairs(value) do
      parts[i] = kinds.show(item)
    end
    local keys = {}
    for key in next, value do
      if not (math.type(key) == "integer" and key >= 1 and key <= #parts) then
        keys[#keys + 1] = key
      end
    end
    table.sort(keys, function(a, b)
      if type(a) ~= type(b) then
        return type(a) == "number"
      end
      return a < b
    end)
    for _, key in ipairs(keys) do
      local name = type(key) == "string" and key:match("^[%a_][%w_]*$") and key
        or "[" .. kinds.show(key) .. "]"
      parts[#parts + 1] = name .. " = " .. kinds.show(value[key])
    end
    return "{" .. (#parts > 0 and " " .. table.concat(parts, ", ") .. " " or "") .. "}"
  end
  return tostring(value)
end

--- The shortest text that reads back to the same number.
---@param x number
---@return string
function kinds.number_text(x)
  if math.type(x) == "integer" then
    return ("%d"):format(x)
  end
  if x ~= x then
    return "nan"
  end
  if x == math.huge then
    return "inf"
  elseif x == -math.huge then
    return "-inf"
  end
  if math.tointeger(x) and math.abs(x) < 1e15 then
    return ("%.1f"):format(x)
  end
  for digits = 1, 17 do
    local text = ("%." .. digits .. "g"):format(x)
    if tonumber(text) == x then
      return text:find("[.e]") and text or text .. ".0"
    end
  end
end

local type_words = { string = "text", table = "a table", ["function"] = "a function",
  boolean = "boolean", number = "number" }

--- Kind and value of what was given, for messages.
function kinds.came(value)
  if value == nil or value == marker.none then
    return "none"
  end
  if value == marker.remove or value == marker.previous then
    return kinds.show(value)
  end
  if type(value) == "table" then
    return "a table"
  end
  local word = type_words[type(value)] or type(value)
  if type(value) == "string" and not utf8.len(value) then
    word = "text that is not UTF-8:"
  end
  return word .. " " .. kinds.show(value)
end

local function range_text(schema)
  if schema.min and schema.max then
    return (" from %s to %s"):format(kinds.show(schema.min), kinds.show(schema.max))
  end
  if schema.min then
    return " of at least " .. kinds.show(schema.min)
  end
  if schema.max then
    return " of at most " .. kinds.show(schema.max)
  end
  return ""
end

local function in_range(schema, value)
  return (not schema.min or value >= schema.min) and (not schema.max or value <= schema.max)
end

-- is the value one of the field's choices, if it has any?
local function chosen(schema, value)
  for _, choice in ipairs(schema.choices or { value }) do
    if choice == value then
      return true
    end
  end
  return false
end

local check = {}

function check.integer(schema, value)
  local whole = type(value) == "number" and math.tointeger(value)
  if whole and in_range(schema, whole) and chosen(schema, whole) then
    return whole
  end
end

function check.number(schema, value)
  if type(value) ~= "number" then
    return nil
  end
  value = value + 0.0
  if value == value and math.abs(value) ~= math.huge and in_range(schema, value) then
    return value
  end
end

function check.boolean(_, value)
  if type(value) == "boolean" then
    return value
  end
end

function check.text(schema, value)
  return type(value) == "string" and utf8.len(value) and chosen(schema, value) and value or nil
end

-- A checkpoint is a path, or recipe.previous: the last checkpoint of the stage before.
function check.checkpoint(schema, value)
  if value == marker.previous then
    return value
  end
  return check.text(schema, value)
end

-- The length of a table whose keys are positive integers; nil for any other table.
local function list_length(value)
  local n = 0
  for key in next, value do
    if math.type(key) ~= "integer" or key < 1 then
      return nil
    end
    if key > n then
      n = key
    end
  end
  return n
end

function check.list(schema, value)
  if type(value) ~= "table" or getmetatable(value) then
    return nil
  end
  local n = list_length(value)
  if not n or (schema.count and n ~= schema.count) then
    return nil
  end
  local out = {}
  for i = 1, n do
    local item = value[i]
    if item == marker.none or item == nil then
      if not schema.element.none then
        return nil
      end
      out[i] = marker.none
    else
      out[i] = kinds.check(schema.element, item)
      if out[i] == nil then
        return nil, i
      end
    end
  end
  return out
end

-- Free data has the types of JSON: plain values, lists, and tables with text keys.
function check.free(_, value, depth)
  depth = depth or 0
  if type(value) ~= "table" then
    if type(value) == "function" or type(value) == "userdata" then
      return nil
    end
    return value
  end
  if value == marker.none then
    return value
  end
  if getmetatable(value) or depth > 64 then
    return nil
  end
  local out, n = {}, #value
  for key, item in next, value do
    if n == 0 and type(key) ~= "string" then
      return nil
    end
    if n > 0 and not (math.type(key) == "integer" and key >= 1 and key <= n) then
      return nil
    end
    out[key] = check.free(nil, item, depth + 1)
    if out[key] == nil then
      return nil
    end
  end
  return out
end

-- {keep, batch} or {{keep, try}, batch}: shares of samples, clips per step; the batch may be none
-- only if keep is 0
function check.bucket(_, value)
  if type(value) ~= "table" or getmetatable(value) then
    return nil
  end
  local share = { tag = "number", min = 0, max = 1 }
  local keep, batch = value[1], value[2]
  for key in next, value do
    if key ~= 1 and key ~= 2 then
      return nil
    end
  end
  if type(keep) == "table" then
    if getmetatable(keep) or #keep ~= 2 then
      return nil
    end
    keep = { kinds.check(share, keep[1]), kinds.check(share, keep[2]) }
    if #keep ~= 2 then
      return nil
    end
  else
    keep = kinds.check(share, keep)
    if not keep then
      return nil
    end
  end
  if batch == marker.none or batch == nil then
    if (type(keep) == "table" and keep[1] or keep) ~= 0 then
      return nil
    end
    return { keep, marker.none }
  end
  batch = kinds.check({ tag = "integer", min = 1 }, batch)
  return batch and { keep, batch }
end

-- in settings: {{name, hash}, ...}; settings/stages.lua reads what recipes write
function check.stages(_, value)
  return check.list({ element = { tag = "free" } }, value)
end

-- a leaf whose kind depends on a `type` that is not known yet; it is checked again when the type is
-- known
function check.either(_, value)
  return value
end

-- An aspect is {ratio, height, width}.
function check.aspect(_, value)
  local out = check.list({ count = 3, element = { tag = "number", min = 0 } }, value)
  if not out then
    return nil
  end
  for i = 2, 3 do
    out[i] = math.tointeger(out[i])
    if not out[i] or out[i] < 1 then
      return nil
    end
  end
  return out
end

local function choices_text(s)
  local shown = {}
  for i, choice in ipairs(s.choices) do
    shown[i] = kinds.show(choice)
  end
  return "one of " .. table.concat(shown, ", ") .. (s.more or "")
end

local expected = {
  integer = function(s) return s.choices and choices_text(s) or "integer" .. range_text(s) end,
  number = function(s) return "number" .. range_text(s) end,
  boolean = function() return "true or false" end,
  text = function(s) return s.choices and choices_text(s) or "text" end,
  checkpoint = function() return "a file, folder or pattern" end,
  list = function(s)
    return (s.count and "a list of " .. s.count or "a list, each") .. " "
      .. kinds.expected(s.element)
  end,
  free = function() return "plain data: a value, a list, or a table with text keys" end,
  bucket = function()
    return "{keep, batch} or {{keep, try}, batch} with shares from 0 to 1 and a batch of at least 1"
  end,
  stages = function() return "a list of {name = ..., recipe = ..., fields}" end,
  either = function() return "a value that its type allows" end,
  aspect = function() return "{ratio, height, width}" end,
  record = function() return "a table of fields" end,
  map = function(s)
    return "a table with " .. kinds.keys(s)
  end,
}

--- The keys that a map takes, in words.
---@param schema table
---@return string
function kinds.keys(schema)
  return schema.key ~= "integer" and "text keys"
    or "integer keys" .. (schema.least and (" of at least %d"):format(schema.least) or "")
end

--- A whole number as the key of a map with integer keys.
---@param schema table
---@param key any
---@return integer|nil  nil if the key is not such a number
function kinds.whole_key(schema, key)
  local n = type(key) == "number" and math.tointeger(key)
  return n and n >= (schema.least or n) and n or nil
end

--- The values that a schema allows, in words.
function kinds.expected(schema)
  return expected[schema.tag](schema) .. (schema.word and (", or %q"):format(schema.word) or "")
    .. (schema.none and ", or none" or "")
end

--- Checks a value that is neither a function nor a merge marker.
---@param schema table
---@param value any
---@return any|nil value  in normal form; nil if the schema does not allow it
function kinds.check(schema, value)
  if schema.word and value == schema.word then
    return value
  end
  return check[schema.tag](schema, value)
end

--- Makes the schema of a row's kind: "integer", {list = kind, count = n}, {map = kind, key =
-- "text"|"integer", least = n}, {record = rows}; the row's limits apply to the outermost leaf.
-- "text"|"integer", least = n}, {record = rows}; the row's own limits apply to the outermost leaf.
---@param kind string|table
---@param row table
---@return table schema
function kinds.schema(kind, row)
  if type(kind) == "string" then
    assert(check[kind], "unknown kind " .. kind)
    return { tag = kind, min = row.min, max = row.max, choices = row.choices,
      word = row.word, none = row.none, row = row }
  elseif kind.list then
    return { tag = "list", count = kind.count, word = row.word, none = row.none, row = row,
      element = kinds.schema(kind.list, { min = row.min, max = row.max, choices = row.choices,
        none = kind.holes }) }
  elseif kind.map then
    local value = kinds.schema(kind.map, { min = row.min, max = row.max,
      choices = row.choices, none = kind.holes })
    return { tag = "map", key = kind.key or "text", least = kind.least, keys = kind.keys,
      value = value, none = row.none, row = row }
  end
  local record = { tag = "record", fields = {}, none = row.none, row = row }
  for _, inner in ipairs(kind.record) do
    record.fields[inner[1]] = kinds.schema(inner[2], inner)
  end
  return record
end

return kinds
