--- One source of values (a recipe's table, an argument) as a tree of writes to canonical paths. A
-- write is {tag, place} plus the fields of its tag: leaf {value}, late {f}, table {children,
-- replace}, element {indices, value}; remove and none have no further fields. Each layer's
-- spellings are mapped here, before layers merge. Ref: recipes.md 2 and 3.
-- @module moonreel.recipe.layer
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"
local peers = require "moonreel.recipe.peers"
local place = require "moonreel.recipe.place"
local registry = require "moonreel.recipe.registry"

local layer = {}

local write_of

local function at(p) return place.text(p) end

local function kind_error(p, path, schema, value)
  local more = schema.tag == "record" and path and peers.answer(path)
  fault.at(p, "%s: expected %s, got %s%s", path, kinds.expected(schema), kinds.came(value),
    more and "; " .. more or "")
end

-- Puts a write at keys below `node`; missing tables on the way are made. Two writes of one field in
-- one layer are an error, and so are a field and a part of it. `spelled` and `prefix` are for
-- messages: what the recipe wrote, and the path of `node` with a dot after it.
local function put(node, keys, write, spelled, prefix)
  for i = 1, #keys - 1 do
    local child = node.children[keys[i]]
    if not child then
      child = { tag = "table", place = write.place, children = {} }
      node.children[keys[i]] = child
    elseif child.tag ~= "table" then
      fault.at(write.place, "'%s' sets a part of %s, which is written whole at %s; write one of "
        .. "the two", spelled, prefix .. table.concat(keys, ".", 1, i), at(child.place))
    end
    node = child
  end
  local last = keys[#keys]
  local old = node.children[last]
  local path = prefix .. table.concat(keys, ".")
  if not old then
    node.children[last] = write
  elseif old.tag == "table" and write.tag == "table" and not (old.replace or write.replace) then
    -- the same record under two spellings: allowed while no field is in both
    for key, child in pairs(write.children) do
      put(old, { key }, child, spelled, path .. ".")
    end
  else
    fault.at(write.place, "%s is written twice, here as '%s', and at %s; write one of the two",
      path, spelled, at(old.place))
  end
end

-- The field that `name` means in a record: its schema, its keys from the record on, and whether the
-- spelling leads out of the record, so that the keys count from the root; nil for an unknown name.
local function find_field(record, name)
  if not record.path then
    -- a record inside a map has no spellings
    return record.fields[name], { name }, false
  end
  local keys = registry.resolve(record, name)
  if not keys then
    return nil
  end
  local field = registry.get().root
  for _, key in ipairs(keys) do
    field = registry.field(field, key)
  end
  local base = registry.split(record.path)
  for i, key in ipairs(base) do
    if keys[i] ~= key then
      return field, keys, true
    end
  end
  return field, table.move(keys, #base + 1, #keys, 1, {}), false
end

-- a hint for a mistyped field of a record inside a map
local function hint_inside(record, name)
  local near = require("moonreel.text.nearest")(name, environment.sorted_keys(record.fields))
  return near and (", did you mean '%s'?"):format(near) or ""
end

-- The write of a record's table. `root` is the layer's own write; a spelling such as `ema_decay`
-- for `optim.ema_decay` moves its value out of the record to there. Without a root such a spelling
-- is refused. `path` is that of a record inside a map.
local function record_write(root, record, t, p, path)
  local node = { tag = "table", place = p, children = {} }
  path = record.path or path or ""
  local prefix = path ~= "" and path .. "." or ""
  for _, name in ipairs(environment.sorted_keys(t)) do
    local name_place = place.of_key(t, name, p)
    if type(name) ~= "string" then
      fault.at(name_place, "%s: a record has named fields, got element [%s]",
        prefix ~= "" and path or "recipe", tostring(name))
    end
    local field, keys, leads_out = find_field(record, name)
    if not field then
      fault.at(name_place, "%s is not a field%s", prefix .. name,
        record.path and registry.hint(record, name) or hint_inside(record, name))
    elseif leads_out and not root then
      fault.at(name_place, "%s stands for %s and cannot be set from here", prefix .. name,
        table.concat(keys, "."))
    end
    put(leads_out and root or node, keys, write_of(root, field, t[name], name_place,
      not record.path and prefix .. name or nil), prefix .. name, leads_out and "" or prefix)
  end
  return node
end

--- The message about a key that is not among the keys of a map.
---@param schema table  of the map
---@param path string   its path
---@param name string   the key
---@return string
function layer.unknown_key(schema, path, name)
  local names = environment.sorted_keys(schema.keys)
  local near = require("moonreel.text.nearest")(name, names)
  return ("%s.%s is not known%s; expected one of %s"):format(path, name,
    near and (", did you mean '" .. near .. "'?") or "", table.concat(names, ", "))
end

-- The write of a map's table: every key is an entry.
local function map_write(root, schema, t, p, path)
  local node = { tag = "table", place = p, children = {} }
  for _, key in ipairs(environment.sorted_keys(t)) do
    local key_place = place.of_key(t, key, p)
    local name = key
    if schema.key == "integer" then
      name = kinds.whole_key(schema, key)
      if not name then
        fault.at(key_place, "%s: expected %s, got %s", path, kinds.keys(schema), kinds.show(key))
      end
    elseif type(key) ~= "string" then
      fault.at(key_place, '%s: expected text keys, got [%s]; write ["%s"]',
        path, kinds.show(key), tostring(key))
    elseif not utf8.len(key) then
      fault.at(key_place, "%s: the key %s is not UTF-8", path, kinds.show(key))
    end
    if schema.keys and not schema.keys[name] then
      fault.at(key_place, "%s", layer.unknown_key(schema, path, name))
    end
    node.children[name] = write_of(root, schema.value, t[key], key_place,
      path .. "." .. tostring(name))
  end
  return node
end

-- A private copy of list data: tables are copied, functions and markers inside stay the same.
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

-- The write that a value means where a field of this schema is expected.
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
      node = record_write(root, schema, t, p, path)
    else
      node = map_write(root, schema, t, p, path)
    end
    node.place = p
    node.replace = contents ~= nil
    return node
  end
  -- each entry of `stages` is a recipe of its own and keeps its places (settings/stages.lua)
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
  for _, key in ipairs(environment.sorted_keys(node.children)) do
    put(root, { key }, node.children[key], key, "")
  end
  return root
end

--- The write that the result of a late-bound value means.
---@param schema table
---@param value any
---@param p table      the place where the function was written
---@param path string
---@return table write
function layer.of_result(schema, value, p, path)
  return write_of(nil, schema, value, p, path)
end

return layer
