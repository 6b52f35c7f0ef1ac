--- Reads settings from the text of settings.json, also from that of an earlier version.
-- @module moonreel.settings.restore
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local families = require "moonreel.recipe.families"
local fold = require "moonreel.recipe.fold"
local frozen = require "moonreel.settings.frozen"
local hash = require "moonreel.settings.hash"
local json = require "moonreel.core.json"
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"
local registry = require "moonreel.recipe.registry"
local store = require "moonreel.settings.store"

local restore = {}

-- A value of JSON in the form of leaves.
local function from_value(value)
  if value == json.null then
    return marker.none
  end
  if type(value) ~= "table" then
    return value
  end
  local out = {}
  for key, item in pairs(value) do
    out[key] = from_value(item)
  end
  return out
end

-- Was a field, or one below it, set?
local function is_set_below(origin, path)
  for other, chain in pairs(origin) do
    if (other == path or other:sub(1, #path + 1) == path .. ".") and store.is_set(chain) then
      return true
    end
  end
end

-- the program that made the settings may have had families that are missing here
local function check_family(record, name, where)
  if record.types and type(name) == "string" and not record.types[name] then
    fault.recipe("%s: %s.type = '%s': this build has no such family; try: %s=FOLDER, the folder in "
      .. "which that family is", where, record.path, name, families.VARIABLE)
  end
end

-- The leaves of a decoded tree, checked against the registry. A field that this version lacks is
-- left out if it was not set.
local function leaves_of(tree, origin, where)
  local leaves = {}
  local function leaf(keys, schema, value, row)
    local path = registry.path(keys)
    local chain = origin[path] or {}
    leaves[#leaves + 1] = { path = path, keys = table.move(keys, 1, #keys, 1, {}),
      schema = schema, row = row,
      affects = row.affects, value = value, chain = chain }
  end
  local function walk(keys, schema, value, row)
    row = schema.row and schema.row.path and schema.row or row
    local path = table.concat(keys, ".")
    if schema.tag == "record" then
      if type(value) ~= "table" then
        fault.recipe("%s: %s: expected an object", where, path)
      end
      check_family(schema, value.type, where)
      for _, name in ipairs(environment.sorted_keys(value)) do
        local inner = registry.field(schema, name, schema.types and (value.type or "\0"))
        keys[#keys + 1] = name
        if inner then
          walk(keys, inner, value[name], row)
        elseif is_set_below(origin, registry.path(keys)) then
          fault.recipe("%s: %s is not a field of this version", where, registry.path(keys))
        end
        keys[#keys] = nil
      end
    elseif schema.tag == "map" and type(value) == "table" and next(value) ~= nil then
      -- keys of JSON are texts; lengths of buckets are sorted by number
      local entries = {}
      for name, item in pairs(value) do
        entries[schema.key == "integer" and math.tointeger(tonumber(name)) or name] = item
      end
      for _, name in ipairs(environment.sorted_keys(entries)) do
        keys[#keys + 1] = name
        walk(keys, schema.value, entries[name], row)
        keys[#keys] = nil
      end
    elseif schema.tag == "map" then
      leaf(keys, schema, value == json.null and marker.none or {}, row)
    else
      local plain = from_value(value)
      if schema.tag == "checkpoint" and plain == "recipe.previous" then
        plain = marker.previous
      end
      if plain ~= marker.none then
        local good = kinds.check(schema, plain)
        if good == nil then
          fault.recipe("%s: %s: expected %s, got %s", where, path, kinds.expected(schema),
            kinds.show(plain))
        end
        plain = good
      end
      leaf(keys, schema, plain, row)
    end
  end
  walk({}, registry.get().root, tree, nil)
  return leaves
end

-- Adds fields that the file does not have, with their defaults.
local function add_new(leaves, tree)
  local known, types = {}, { tag = "table", children = {} }
  for _, leaf in ipairs(leaves) do
    known[leaf.path] = true
    if leaf.row then
      known[leaf.row.path] = true
    end
  end
  for name, record in pairs(tree) do
    local schema = registry.get().root.fields[name]
    local type_name = schema and schema.types and record.type
    if type_name then
      types.children[name] = { tag = "table",
        children = { type = { tag = "leaf", value = from_value(type_name), place = {} } } }
    end
  end
  fold.new({ { write = types } }):each(function(keys, schema, value)
    local path = registry.path(keys)
    if not known[path] and not known[schema.row and schema.row.path or path] then
      leaves[#leaves + 1] = { path = path, keys = table.move(keys, 1, #keys, 1, {}),
        schema = schema, row = schema.row,
        affects = schema.row.affects, value = value, chain = {} }
    end
  end)
end

---@param text string
---@param where string  for messages
---@return table settings
function restore.from_json(text, where)
  local decoded = json.decode(text, where)
  if type(decoded) ~= "table" or type(decoded.settings) ~= "table"
      or type(decoded.hash) ~= "string" then
    fault.recipe("%s: expected an object with hash and settings; try: the settings.json of a run",
      where)
  end
  local leaves = leaves_of(decoded.settings, type(decoded.origin) == "table"
    and decoded.origin or {}, where)
  -- files of older versions have no checksum
  local good = decoded.sum == store.sum_of(decoded.settings, decoded.hash)
    or (decoded.sum == nil and decoded.hash == hash.of(leaves))
  if not good then
    fault.recipe("%s: the values do not match their checksum: the file was changed by hand; try: "
      .. "the recipe.lua next to it", where)
  end
  add_new(leaves, decoded.settings)
  local removed = {}
  for _, path in ipairs(environment.sorted_keys(decoded.removed or {})) do
    removed[#removed + 1] = { path = path, chain = decoded.removed[path] }
  end
  return frozen.new(leaves,
    { hash = decoded.hash, recipe = decoded.recipe, notes = from_value(decoded.notes or {}),
      arguments = from_value(decoded.arguments or {}) }, removed)
end

return restore
