--- The value of a path that no layer has written. `fold` is the fold (moonreel.recipe.fold) that
-- needs it.
-- @module moonreel.recipe.defaults
local late = require "moonreel.recipe.late"
local marker = require "moonreel.recipe.marker"
local registry = require "moonreel.recipe.registry"

local defaults = {}

-- A default that is a function is called once, like a late-bound value.
local function computed(fold, keys, schema, f)
  local path = registry.path(keys)
  local write = fold.computed_defaults[path]
  if not write then
    write = { place = { argument = "default of " .. path } }
    fold.computed_defaults[path] = write
  end
  if write.value == nil then
    local value = late.call(fold, write, keys, #keys, f, nil)
    write.value = fold:checked(schema, keys, value, write.place)
  end
  return write.value
end

-- The registry's value of a field: the preset of its record's type, or its row's default, or none.
-- An entry of a map is absent until a layer writes it.
local function of_field(fold, parent, keys, schema)
  if parent.tag == "map" then
    return marker.absent
  end
  local name = keys[#keys]
  if parent.types and not parent.fields[name] then
    local type_name = fold:type_name(keys, #keys - 1)
    local of_type = type_name and parent.types[type_name]
    if of_type and of_type.preset[name] ~= nil then
      return of_type.preset[name], "default of " .. type_name
    end
  end
  local default = schema.row and schema.row.default
  if type(default) == "function" then
    default = computed(fold, keys, schema, default)
  end
  return default == nil and marker.none or default, "default"
end

-- The value of a default map at keys[from..], or nil.
local function inside(value, keys, from)
  for i = from, #keys do
    value = type(value) == "table" and value[keys[i]] or nil
  end
  return value
end

--- Default of a leaf or of a map.
---@param fold table
---@param keys table
---@param schema table  of that field
---@return any value     marker.none for none, marker.absent for an entry that its map lacks
---@return any bare      the same without entries of default maps: the value under a `replace` above
---   it
---@return string|nil source  its name in chains
function defaults.of(fold, keys, schema)
  local parent, entry = fold.root, nil
  for i = 1, #keys - 1 do
    parent = parent.tag == "record" and fold:field(parent, keys, i) or parent.value
    if parent.tag == "map" and parent.row and parent.row.default then
      entry = inside(parent.row.default, keys, i + 1)
    end
  end
  local bare, source = of_field(fold, parent, keys, schema)
  if entry ~= nil then
    return entry, bare, "default"
  end
  return bare, bare, source
end

--- What a computed default has read, as a set of paths; nil for any other default.
function defaults.reads(fold, keys)
  local write = fold.computed_defaults[registry.path(keys)]
  return write and write.reads
end

return defaults
