--- Settings as text: settings.json with provenance, and a flattened recipe; both bake to the same
-- hash.
-- @module moonreel.settings.store
local base = require "moonreel.core.base"
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local families = require "moonreel.recipe.families"
local fold = require "moonreel.recipe.fold"
local hash = require "moonreel.settings.hash"
local json = require "moonreel.core.json"
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"
local registry = require "moonreel.recipe.registry"

local store = {}

-- A value as JSON has it. An empty list stays a list.
local function to_value(raw, schema)
  local value = marker.plain(raw, json.null)
  return schema and schema.tag == "list" and type(value) == "table" and json.array(value) or value
end

--- The nested form of JSON: none is null, integer keys are text.
---@param leaves table[]  of settings:leaves()
---@return table
function store.tree(leaves)
  local root = {}
  for _, leaf in ipairs(leaves) do
    local at = root
    for i = 1, #leaf.keys - 1 do
      local key = tostring(leaf.keys[i])
      at[key] = at[key] or {}
      at = at[key]
    end
    at[tostring(leaf.keys[#leaf.keys])] = to_value(leaf.raw, leaf.schema)
  end
  return root
end

--- Where each leaf comes from.
function store.origins(leaves)
  local origins = {}
  for _, leaf in ipairs(leaves) do
    local chain = {}
    for i, link in ipairs(leaf.chain) do
      chain[i] = { at = link.at, value = link.value, reads = link.reads and json.array(link.reads),
        command_line = link.command_line, set = link.set, replace = link.replace }
    end
    origins[leaf.path] = json.array(chain)
  end
  return origins
end

-- A sum over the values as they stand in a file and the hash they had when written. It tells an
-- edited file, whatever fields this version has.
local function sum_of(tree, settings_hash)
  return base.hash128(settings_hash .. json.encode(tree))
end

local function plain_list(list) return json.array(table.move(list, 1, #list, 1, {})) end

---@param settings table
---@return string text
function store.to_json(settings)
  local leaves = settings:leaves()
  local tree = store.tree(leaves)
  return json.encode({
    hash = settings.hash, sum = sum_of(tree, settings.hash), recipe = settings.recipe,
    removed = store.origins(settings:removed()), arguments = plain_list(settings.arguments),
    notes = plain_list(settings.notes), settings = tree, origin = store.origins(leaves),
  }, { indent = 2 }) .. "\n"
end

-- A value of JSON as leaves hold it.
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

local function is_set(chain)
  local link = chain and chain[#chain]
  return link ~= nil and link.set == true
end

-- Has somebody set a field, or one below it?
local function is_set_below(origin, path)
  for other, chain in pairs(origin) do
    if (other == path or other:sub(1, #path + 1) == path .. ".") and is_set(chain) then
      return true
    end
  end
end

-- what made the settings may have had families that are not here
local function check_family(record, name, where)
  if record.types and type(name) == "string" and not record.types[name] then
    fault.recipe("%s: %s.type = '%s': this build has no such family; try: %s=FOLDER, the folder in "
      .. "which that family lies", where, record.path, name, families.VARIABLE)
  end
end

-- The leaves of a decoded tree, checked against the registry. A field that this version lacks is
-- left out where it was not set.
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
      -- JSON's keys are text; lengths of buckets come by number
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

-- Adds the fields that the file does not know, at their defaults.
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
function store.from_json(text, where)
  local decoded = json.decode(text, where)
  if type(decoded) ~= "table" or type(decoded.settings) ~= "table"
      or type(decoded.hash) ~= "string" then
    fault.recipe("%s: no settings: expected an object with hash and settings", where)
  end
  local leaves = leaves_of(decoded.settings, type(decoded.origin) == "table"
    and decoded.origin or {}, where)
  -- files of older versions have no sum
  local good = decoded.sum == sum_of(decoded.settings, decoded.hash)
    or (decoded.sum == nil and decoded.hash == hash.of(leaves))
  if not good then
    fault.recipe("%s: the values are not those that were written: it was changed by hand; try: the "
      .. "recipe.lua next to it", where)
  end
  add_new(leaves, decoded.settings)
  local removed = {}
  for _, path in ipairs(environment.sorted_keys(decoded.removed or {})) do
    removed[#removed + 1] = { path = path, chain = decoded.removed[path] }
  end
  return require("moonreel.settings.frozen").new(leaves,
    { hash = decoded.hash, recipe = decoded.recipe, notes = from_value(decoded.notes or {}),
      arguments = from_value(decoded.arguments or {}) }, removed)
end

-- Lua source of a value
local function source(value)
  if value == nil or value == marker.none then
    return "recipe.none"
  end
  if value == marker.previous then
    return "recipe.previous"
  end
  if type(value) ~= "table" then
    return kinds.show(value)
  end
  local parts, n = {}, #value
  for i = 1, n do
    parts[i] = source(value[i])
  end
  for _, key in ipairs(environment.sorted_keys(value)) do
    if not (math.type(key) == "integer" and key >= 1 and key <= n) then
      parts[#parts + 1] = ("[%s] = %s"):format(kinds.show(key), source(value[key]))
    end
  end
  return "{ " .. table.concat(parts, ", ") .. (#parts > 0 and " }" or "}")
end

--- A recipe without parents that sets every leaf that is not at its default.
---@param settings table
---@return string text
function store.to_recipe(settings)
  local root, whole, leaves = {}, {}, settings:leaves()
  -- a map with a default is written whole as soon as one of its leaves is set
  local function in_map_with_default(leaf)
    return leaf.row.default ~= nil and leaf.row.path ~= leaf.path
  end
  for _, leaf in ipairs(leaves) do
    if in_map_with_default(leaf) and is_set(leaf.chain) then
      whole[leaf.row.path] = true
    end
  end
  for _, leaf in ipairs(leaves) do
    local wanted = is_set(leaf.chain)
    if in_map_with_default(leaf) then
      wanted = whole[leaf.row.path]
    end
    if wanted then
      local at = root
      for i = 1, #leaf.keys - 1 do
        at[leaf.keys[i]] = at[leaf.keys[i]] or { children = {} }
        at = at[leaf.keys[i]].children
      end
      at[leaf.keys[#leaf.keys]] = { text = source(leaf.raw) }
    end
  end
  local lines = { "-- written by moonreel; bakes to " .. settings.hash, "return recipe {" }
  local function write(children, indent, path)
    for _, key in ipairs(environment.sorted_keys(children)) do
      local child = children[key]
      local name = type(key) == "string" and key:match("^[%a_][%w_]*$") and key
        or "[" .. kinds.show(key) .. "]"
      if child.text then
        lines[#lines + 1] = indent .. name .. " = " .. child.text .. ","
      else
        local inner = path == "" and tostring(key) or path .. "." .. tostring(key)
        lines[#lines + 1] = indent .. name .. (whole[inner] and " = recipe.replace {" or " = {")
        write(child.children, indent .. "  ", inner)
        lines[#lines + 1] = indent .. "},"
      end
    end
  end
  write(root, "  ", "")
  lines[#lines + 1] = "}"
  return table.concat(lines, "\n") .. "\n"
end

return store
