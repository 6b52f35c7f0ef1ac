--- One source of values as a tree of writes on canonical paths.
-- A write is {tag, place} with tag = leaf (value) | late (f) | remove | none | table (children,
-- replace) | element (index, write). Spellings are mapped here, layer by layer, before anything
-- merges. Ref: recipes.md 2 and 3.
-- @module moonreel.recipe.layer
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"
local place = require "moonreel.recipe.place"
local registry = require "moonreel.recipe.registry"

local layer = {}

local write_of

local function at(p) return place.text(p) end

local function kind_error(p, path, schema, value)
  fault.at(p, "%s: expected %s, got %s", path, kinds.expected(schema), kinds.came(value))
end

-- put `write` at keys[from..] below `node`; two writes of one field in one layer are an error
local function put(node, keys, from, write, spelled, prefix)
  for i = from, #keys - 1 do
    local child = node.children[keys[i]]
    if not child then
      child = { tag = "table", place = write.place, children = {} }
      node.children[keys[i]] = child
    elseif child.tag ~= "table" then
      fault.at(write.place, "'%s' sets a part of %s, which is written whole at %s; write one of "
        .. "the two", spelled,
        table.concat(keys, ".", 1, i), at(child.place))
    end
    node = child
  end
  local last = keys[#keys]
  local old = node.children[last]
  if not old then
    node.children[last] = write
  elseif old.tag == "table" and write.tag == "table" and not (old.replace or write.replace) then
    for key, child in pairs(write.children) do
      put(old, { key }, 1, child, spelled, (prefix or "") .. table.concat(keys, ".") .. ".")
    end
  else
    fault.at(write.place, "%s is written twice, here as '%s', and at %s; write one of the two",
      (prefix or "") .. table.concat(keys, "."), spelled, at(old.place))
  end
end

local function common_prefix(keys, base)
  for i = 1, #base do
    if keys[i] ~= base[i] then
      return false
    end
  end
  return #keys > #base
end

-- children of a record; `root` receives what a spelling moves elsewhere
local function record_write(root, schema, t, p)
  local node = { tag = "table", place = p, children = {} }
  local base = registry.split(schema.path or "")
  for _, key in ipairs(environment.sorted_keys(t)) do
    local key_place = place.of_key(t, key, p)
    local shown = ((schema.path or "") ~= "" and schema.path .. "." or "") .. tostring(key)
    if type(key) ~= "string" then
      fault.at(key_place, "%s: a record has named fields, got element [%s]",
        (schema.path or "") ~= "" and schema.path or "recipe", tostring(key))
    end
    local keys
    if schema.path then
      keys = registry.resolve(schema, key)
    elseif schema.fields[key] then
      keys = { key }
    end
    if not keys then
      fault.at(key_place, "%s is not a field%s", shown, schema.path and registry.hint(schema, key)
        or "")
    end
    if not schema.path then
      node.children[key] = write_of(root, schema.fields[key], t[key], key_place)
    elseif common_prefix(keys, base) then
      local target, inner = schema, nil
      for i = #base + 1, #keys do
        inner = registry.field(target, keys[i])
        target = inner
      end
      put(node, keys, #base + 1, write_of(root, inner, t[key], key_place), shown)
    else
      if not root then
        fault.at(key_place, "%s stands for %s and cannot be set from here",
          shown, table.concat(keys, "."))
      end
      local target = registry.get().root
      for i = 1, #keys do
        target = registry.field(target, keys[i])
      end
      put(root, keys, 1, write_of(root, target, t[key], key_place), shown)
    end
  end
  return node
end

local function map_write(root, schema, t, p, path)
  local node = { tag = "table", place = p, children = {} }
  for _, key in ipairs(environment.sorted_keys(t)) do
    local key_place = place.of_key(t, key, p)
    local name = key
    if schema.key == "integer" then
      name = type(key) == "number" and math.tointeger(key)
      if not name then
        fault.at(key_place, "%s: expected integer keys, got %s", path, kinds.show(key))
      end
    elseif type(key) ~= "string" then
      fault.at(key_place, '%s: expected text keys, got [%s]; write ["%s"]',
        path, kinds.show(key), tostring(key))
    end
    if schema.keys and not schema.keys[name] then
      local names = environment.sorted_keys(schema.keys)
      local near = require("moonreel.text.nearest")(name, names)
      fault.at(key_place, "%s.%s is not known%s; there are %s", path, name,
        near and (", did you mean '" .. near .. "'?") or "",
        table.concat(names, ", "))
    end
    node.children[name] = write_of(root, schema.value, t[key], key_place,
      path .. "." .. tostring(name))
  end
  return node
end

-- private copy of list data: functions and markers inside stay, tables are copied
local function copy(value, depth)
  if type(value) ~= "table" or getmetatable(value) ~= nil then
    return value
  end
  if (depth or 0) > 64 then
    return value
  end
  local out = {}
  for key, item in next, value do
    out[key] = copy(item, (depth or 0) + 1)
  end
  return out
end

function write_of(root, schema, value, p, path)
  path = path or schema.path
  if type(value) == "function" then
    return { tag = "late", f = value, place = p }
  end
  if value == marker.none then
    return { tag = "none", place = p }
  end
  if value == marker.remove then
    return { tag = "remove", place = p }
  end
  local contents = marker.replacement(value)
  if schema.tag == "record" or schema.tag == "map" then
    local t = contents or value
    if type(t) ~= "table" or (getmetatable(t) ~= nil and not contents) then
      kind_error(p, path, schema, value)
    end
    local node
    if schema.tag == "record" then
      if schema.path == nil then
        schema = setmetatable({ shown = path }, { __index = schema })
      end
      node = record_write(root, schema, t, p)
    else
      node = map_write(root, schema, t, p, path)
    end
    node.place = p
    node.replace = contents ~= nil
    return node
  end
  -- entries of `stages` are recipes of their own and keep their places (settings/stages.lua)
  if schema.tag == "stages" then
    return { tag = "leaf", value = value, place = p }
  end
  return { tag = "leaf", value = copy(contents or value), place = p }
end

--- The writes of a recipe's table.
---@param body table
---@param file string  as shown in messages
---@return table write  tag = table
function layer.of_recipe(body, file)
  local p = place.of_table(body) or { file = file, line = 1 }
  if p.file ~= file then
    p = { file = file, line = 1 }
  end
  local root = { tag = "table", place = p, children = {} }
  local node = record_write(root, registry.get().root, body, p)
  for key, child in pairs(node.children) do
    put(root, { key }, 1, child, key)
  end
  return root
end

--- The write that a late-bound value's result stands for.
---@param schema table
---@param value any
---@param p table      where the function was written
---@param path string
---@return table write
function layer.of_result(schema, value, p, path)
  return write_of(nil, schema, value, p, path)
end

return layer
