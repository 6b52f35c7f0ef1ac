--- The command line as layers: `key=value`, `--key value`, `--key=value`, `--flag`, `--no-flag`.
-- Markers of the recipe language are values here too: `key=recipe.remove`,
-- `key=recipe.replace{...}`. An argument is {key, text | nil, argument}; text is nil for a flag
-- without a value. Ref: recipes.md 7.
-- @module moonreel.recipe.override
local fault = require "moonreel.recipe.fault"
local kinds = require "moonreel.recipe.kinds"
local layer = require "moonreel.recipe.layer"
local literal = require "moonreel.recipe.literal"
local marker = require "moonreel.recipe.marker"
local peers = require "moonreel.recipe.peers"
local registry = require "moonreel.recipe.registry"

local override = {}

local function whole(text)
  local n = literal.number(text)
  return n and math.tointeger(n)
end

--- The field that a key means.
---@param key string
---@return table|nil target  {keys, schema, indices}; for an unknown key nil, and problem
---@return string|nil problem
function override.target(key)
  local record = registry.get().root
  local keys, schema, indices = {}, record, {}
  local parts = registry.split(key)
  if #parts == 0 or key:find("%.%.") or key:match("^%.") or key:match("%.$") then
    return nil, ("'%s' is not a field name"):format(key)
  end
  for i, part in ipairs(parts) do
    if schema.tag == "record" then
      local resolved
      if schema.path then
        resolved = registry.resolve(schema, part)
      elseif schema.fields[part] then
        resolved = table.move(keys, 1, #keys, 1, {})
        resolved[#resolved + 1] = part
      end
      if not resolved then
        local hint, all = "", false
        if schema.path then
          hint, all = registry.hint(schema, part, key)
        end
        return nil, ("%s is not a field%s"):format(all and key or table.concat(parts, ".", 1, i),
          hint)
      end
      if #resolved ~= #keys + 1 or schema.path then
        -- A spelling may lead into another record, so the schema is looked up from the root.
        keys, schema = resolved, record
        for _, name in ipairs(resolved) do
          schema = registry.field(schema, name)
        end
      else
        keys, schema = resolved, schema.fields[part]
      end
    elseif schema.tag == "map" then
      local name = part
      if schema.key == "integer" then
        name = kinds.whole_key(schema, whole(part))
        if not name then
          return nil, ("%s: expected %s, got '%s'"):format(table.concat(parts, ".", 1, i - 1),
            kinds.keys(schema), part)
        end
      elseif schema.keys and not schema.keys[name] then
        return nil, layer.unknown_key(schema, table.concat(parts, ".", 1, i - 1), name)
      end
      keys[#keys + 1] = name
      schema = schema.value
    elseif schema.tag == "list" or schema.tag == "bucket" or schema.tag == "aspect" then
      indices[#indices + 1] = whole(part)
      if not indices[#indices] then
        return nil, ("%s is a list; expected an element counted from 1, got '%s'"):format(
          table.concat(parts, ".", 1, i - 1), part)
      end
    else
      return nil, ("%s has no fields of its own%s"):format(table.concat(parts, ".", 1, i - 1),
        (registry.hint(record, key, key)))
    end
  end
  return { keys = keys, schema = schema, indices = #indices > 0 and indices or nil }
end

local booleans = { ["true"] = true, ["1"] = true, ["false"] = false, ["0"] = false }

-- words that people write for a boolean, and what to try instead
local near_booleans = { yes = "true", on = "true", no = "false", off = "false" }

--- Is a word meant as the value of the flag before it? This includes words that `override.value`
-- refuses, so that the refusal names the flag.
---@param word string
---@return boolean
function override.is_flag_value(word)
  word = word:lower()
  return booleans[word] ~= nil or near_booleans[word] ~= nil or word == "none"
    or literal.marker(word) ~= nil
end

--- A text of the command line as a value of a schema.
---@return any|nil value
---@return string|nil problem
function override.value(schema, text)
  local tag = schema.tag
  if literal.marker(text) then
    return literal.marker(text)
  end
  if text:lower() == "none" and schema.none then
    return marker.none
  elseif text == schema.word then
    return text
  end
  if tag == "text" or tag == "checkpoint" then
    return text
  end
  if tag == "boolean" then
    local value = booleans[text:lower()]
    if value == nil then
      local near = near_booleans[text:lower()]
      return nil, "got '" .. text .. "'" .. (near and "; try: " .. near or "")
    end
    return value
  end
  if text == "" then
    if tag == "free" then
      return text
    end
    return nil, "the value is missing"
  end
  if tag == "integer" or tag == "number" then
    local value = literal.number(text)
    if not value then
      return nil, "got '" .. text .. "'"
    end
    return value
  end
  -- A bare text means a list with this one element.
  if tag == "list" and schema.element.tag == "text" and not text:match("^%s*[%[{(]") then
    return { text }
  end
  local value, problem = literal.read(text)
  if value == nil and problem then
    if tag == "free" or tag == "either" then
      return text
    end
    local more = tag == "record" and peers.answer(schema.path)
    return nil, more or problem
  end
  return value
end

-- Changes keys to the type that the schema needs: JSON has only texts as keys.
local function fit_keys(schema, value)
  local contents = marker.replacement(value)
  if contents then
    return marker.replace(fit_keys(schema, contents))
  end
  if type(value) ~= "table" or getmetatable(value) ~= nil then
    return value
  end
  if schema.tag == "map" then
    local out = {}
    for key, item in pairs(value) do
      if schema.key == "integer" and type(key) == "string" then
        key = whole(key) or key
      end
      out[key] = fit_keys(schema.value, item)
    end
    return out
  elseif schema.tag == "record" then
    local out = {}
    for key, item in pairs(value) do
      local inner = type(key) == "string" and registry.field(schema, key)
      out[key] = inner and fit_keys(inner, item) or item
    end
    return out
  end
  return value
end

-- The value of one element of a list or of a bucket entry: a literal, or else the text itself.
local function element_value(text)
  local value = literal.read(text)
  if value == nil then
    return text
  end
  return value
end

--- Makes a layer of one argument.
---@param argument table  {key, text, argument}
---@return table layer  {write, shown}
function override.layer(argument)
  local place = { argument = argument.argument }
  local key, text = argument.key, argument.text
  local target, problem = override.target(key)
  -- `--no-x` for booleans
  if not target and text == nil and key:match("^no[-_]") then
    local positive = override.target(key:sub(4))
    if positive and positive.schema.tag == "boolean" then
      target, text = positive, "false"
    end
  end
  if not target then
    fault.usage("%s: %s", argument.argument, problem)
  end
  local schema = target.schema
  local path = table.concat(target.keys, ".")
  if text == nil then
    if schema.tag ~= "boolean" then
      fault.usage("%s: %s: expected %s, got nothing; try: %s=VALUE", argument.argument,
        path, kinds.expected(schema), key)
    end
    text = "true"
  end
  local write
  if target.indices then
    write = { tag = "element", indices = target.indices, value = element_value(text),
      place = place }
  else
    local value
    value, problem = override.value(schema, text)
    if value == nil then
      fault.usage("%s: %s: expected %s, %s", argument.argument, path, kinds.expected(schema),
        problem)
    end
    if schema.tag == "record" or schema.tag == "map" then
      value = fit_keys(schema, value)
    end
    write = layer.of_result(schema, value, place, path)
    if write.tag == "leaf" and kinds.check(schema, value) == nil then
      fault.at(place, "%s: expected %s, got %s", path, kinds.expected(schema),
        type(value) == "table" and kinds.show(value) or kinds.came(value))
    end
  end
  local root = { tag = "table", place = place, children = {} }
  local node = root
  for i = 1, #target.keys - 1 do
    node.children[target.keys[i]] = { tag = "table", place = place, children = {} }
    node = node.children[target.keys[i]]
  end
  node.children[target.keys[#target.keys]] = write
  return { write = root, shown = "command line", argument = argument.argument,
    keys = target.keys, on_command_line = true }
end

--- Parses `key=value`, as Lua functions take it, into an argument.
---@param text string
---@return table argument
function override.parse(text)
  local key, value = text:match("^%-?%-?([^=]+)=(.*)$")
  if not key then
    key = text:match("^%-%-(.+)$")
    if not key then
      fault.usage("'%s': expected key=value", text)
    end
  end
  return { key = key, text = value, argument = text }
end

return override
