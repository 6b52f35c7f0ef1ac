--- Computes the value of a path from the writes of all layers, from the weakest layer to the
-- strongest. Values are computed on demand, because a late-bound value f(r, inherited) reads other
-- final values; a cycle is an error that prints the cycle. Ref: recipes.md 2.
-- @module moonreel.recipe.fold
local defaults = require "moonreel.recipe.defaults"
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local kinds = require "moonreel.recipe.kinds"
local late = require "moonreel.recipe.late"
local marker = require "moonreel.recipe.marker"
local place = require "moonreel.recipe.place"
local registry = require "moonreel.recipe.registry"

local path_of = registry.path
local plain = require("moonreel.recipe.view").plain

local Fold = {}
Fold.__index = Fold

local fold = {}
local absent = marker.absent

--- Start folding.
---@param layers table[]  {write, shown}, weakest first
---@return table fold
function fold.new(layers)
  return setmetatable({ layers = layers, root = registry.get().root, values = {}, chains = {},
    calls = {}, computed_defaults = {}, writers_of = {} }, Fold)
end

local function key_of(keys, count) return table.concat(keys, "\0", 1, count) end

local function first_keys(keys, count) return table.move(keys, 1, count, 1, {}) end

-- ---- schemas ----

-- The field keys[i] of a record. The record's type is computed only for a field that depends on it,
-- because computing the type folds the field `type`.
function Fold:field(record, keys, i)
  return record.fields[keys[i]]
    or (record.types and registry.field(record, keys[i], self:type_name(keys, i - 1)))
end

--- The schema at a path under the final types; or nil and the depth at which the path fails.
function Fold:schema(keys, count)
  local schema = self.root
  for i = 1, count or #keys do
    if schema.tag == "record" then
      schema = self:field(schema, keys, i)
    elseif schema.tag == "map" then
      schema = schema.value
    else
      schema = nil
    end
    if not schema then
      return nil, i
    end
  end
  return schema
end

--- The final value of `type` of the record at keys[1..count]; false if the record has no types.
function Fold:type_name(keys, count)
  local path = first_keys(keys, count)
  path[count + 1] = "type"
  local value = self:leaf(path)
  return value ~= marker.none and value or false
end

-- Names of the fields that a record has under its final type.
function Fold:field_names(record, keys, count)
  local type_name = record.types and (self:type_name(keys, count) or "\0")
  return registry.names(record, type_name)
end

--- Which line gave the record at keys[1..count] its type, and what to try when a field does not
-- belong to this type.
---@return string
function Fold:type_note(keys, count)
  local path = first_keys(keys, count)
  path[count + 1] = "type"
  local name = kinds.show(self:leaf(path))
  local chain = self.chains[key_of(path, #path)]
  local by, shown = chain[#chain].place, path_of(keys, count)
  return ("its type is %s%s\n  try: %s = recipe.replace { type = %s, ... }, which drops inherited "
    .. "fields"):format(name,
    by and " by " .. place.text(by) or " by default", shown, name)
end

-- ---- one layer ----

--- The effect of layer `index` on the value at keys[1..count].
---@return table effect  {reset, write, passed}. reset: "remove", "replace" or "none", if the layer
---   writes that above the value and so drops what was inherited; write: what it writes at the path
---   itself, with late-bound values called; passed: the writes from the root to the last one
function Fold:effect(index, keys, count)
  local write, effect = self.layers[index].write, { passed = {} }
  for i = 0, count do
    if i > 0 then
      write = write.children[keys[i]]
      if not write then
        return effect
      end
    end
    write = late.resolve(self, write, keys, i, index)
    effect.passed[#effect.passed + 1] = write
    if i < count and write.tag ~= "table" then
      effect.reset = effect.reset or write.tag
      return effect
    elseif i < count and write.replace then
      effect.reset = "replace"
    end
  end
  effect.write = write
  return effect
end

--- Does a layer drop everything that was inherited at and below a path?
function Fold:drops(index, keys, count)
  local effect = self:effect(index, keys, count)
  local write = effect.write
  return effect.reset ~= nil
    or (write ~= nil and (write.replace or write.tag == "remove" or write.tag == "none"))
end

-- The paths that late-bound values have read on the way to an effect, as a set; nil if there are no
-- late-bound values.
local function reads_of(effect)
  local reads
  for _, write in ipairs(effect.passed) do
    for _, by in ipairs { write, write.late } do
      for path in pairs(by.reads or {}) do
        reads = reads or {}
        reads[path] = true
      end
    end
  end
  return reads
end

-- The link of a chain for an effect. `replace` marks a value whose layer had dropped the inherited
-- value.
local function link_of(effect, value)
  return { value = value, place = effect.passed[#effect.passed].place, reads = reads_of(effect),
    replace = effect.reset and effect.write and true or nil }
end

-- The layers that write at or below a name of the root. Most layers write only a few fields.
function Fold:writers(name)
  local list = self.writers_of[name]
  if not list then
    list = {}
    for index, one in ipairs(self.layers) do
      if one.write.children[name] then
        list[#list + 1] = index
      end
    end
    self.writers_of[name] = list
  end
  return list
end

-- ---- leaves ----

--- Checks a leaf's value against its schema; `p` is the place where it was written.
-- @return the value in normal form
function Fold:checked(schema, keys, value, p)
  if value == marker.none then
    if not schema.none then
      fault.at(p, "%s: expected %s, got none", path_of(keys), kinds.expected(schema))
    end
    return value
  end
  local good = kinds.check(schema, value)
  if good == nil then
    -- another file or argument may have changed what the field means
    local record, note = self:schema(keys, #keys - 1), ""
    if record.types and not record.fields[keys[#keys]] then
      note = self:type_note(keys, #keys - 1)
      note = note:find(place.text(p):gsub(":%d+$", ""), 1, true) and "" or "; " .. note
    end
    fault.at(p, "%s: expected %s, got %s%s", path_of(keys), kinds.expected(schema),
      type(value) == "table" and kinds.show(plain(value)) or kinds.came(value), note)
  end
  return good
end

-- `betas.1=0.8`: the inherited list with one element changed, counted from 1.
local function with_element(schema, keys, value, write)
  local path = path_of(keys) .. "." .. table.concat(write.indices, ".")
  local out = type(value) == "table" and value ~= marker.none and value ~= absent
    and plain(value) or nil
  local at = out
  for i, index in ipairs(write.indices) do
    if type(at) ~= "table" or at[index] == nil then
      fault.at(write.place, "%s: the list has %d elements, counted from 1",
        path, type(at) == "table" and #at or 0)
    end
    if i < #write.indices then
      at = at[index]
    end
  end
  at[write.indices[#write.indices]] = write.value
  local good = kinds.check(schema, out)
  if good == nil then
    fault.at(write.place, "%s: expected %s, got %s", path_of(keys), kinds.expected(schema),
      kinds.show(out))
  end
  return good
end

-- Was the record of a field, with its type, replaced after this layer?
function Fold:is_dropped(index, keys, upto)
  for later = index + 1, upto or #self.layers do
    if self:effect(later, keys, #keys).reset then
      return true
    end
  end
  return false
end

-- The value of a leaf after one layer. A leaf here is {keys, schema, default, bare, of_type};
-- `of_type` marks a field that not every type of its record has.
function Fold:after(leaf, value, effect, index, upto)
  local write = effect.write
  if write and leaf.of_type and self:is_dropped(index, leaf.keys, upto) then
    -- The record had another type in this layer and was replaced later, so the value cannot be
    -- checked.
    return write.tag == "leaf" and write.value or value
  end
  if effect.reset == "remove" then
    value = leaf.default
  elseif effect.reset == "replace" then
    value = leaf.bare
  elseif effect.reset == "none" then
    value = absent
  end
  if not write then
    return value
  elseif write.tag == "remove" then
    return leaf.default
  elseif write.tag == "none" then
    return self:checked(leaf.schema, leaf.keys, marker.none, write.place)
  elseif write.tag == "element" then
    return with_element(leaf.schema, leaf.keys, value, write)
  end
  return self:checked(leaf.schema, leaf.keys,
    late.list_items(self, write, write.value, value, leaf.keys), write.place)
end

--- The value of a leaf after layers 1..upto (default: all); marker.none, or `absent` for a missing
-- map entry.
---@param keys table
---@param upto integer|nil
---@param schema table|nil  of the leaf, if the caller has it
function Fold:leaf(keys, upto, schema)
  local memo = not upto and key_of(keys, #keys)
  if memo and self.values[memo] ~= nil then
    return self.values[memo]
  end
  local leaf = { keys = keys, schema = schema or self:schema(keys) }
  local record = #keys > 1 and self:schema(keys, #keys - 1)
  leaf.of_type = record and record.types and not record.fields[keys[#keys]]
  local source
  leaf.default, leaf.bare, source = defaults.of(self, keys, leaf.schema)
  local value, chain = leaf.default, {}
  if value ~= absent then
    chain[1] = { value = value, source = source, reads = defaults.reads(self, keys) }
  end
  for _, index in ipairs(self:writers(keys[1])) do
    if upto and index > upto then
      break
    end
    local effect = self:effect(index, keys, #keys)
    local before = value
    value = self:after(leaf, value, effect, index, upto)
    if effect.write or not rawequal(before, value) then
      chain[#chain + 1] = link_of(effect, value)
    end
  end
  if memo then
    self.values[memo], self.chains[memo] = value, chain
  end
  return value
end

-- ---- maps ----

local function set_of_keys(value)
  if type(value) ~= "table" or value == marker.none or value == absent then
    return nil
  end
  local set = {}
  for key in pairs(value) do
    set[key] = true
  end
  return set
end

-- The keys of a map after one layer has written a table to it.
function Fold:with_entries(present, write, index, path, count)
  present = not write.replace and present or {}
  for key in pairs(write.children) do
    path[count + 1] = key
    local entry = self:effect(index, path, count + 1).write
    path[count + 1] = nil
    present[key] = not (entry and entry.tag == "remove") or nil
  end
  return present
end

--- Keys of an open map after layers 1..upto, in order; nil if the map is recipe.none.
---@return any[]|nil keys
---@return any[] removed  keys that existed after some layer and were removed later
function Fold:map_keys(keys, count, upto)
  local path = first_keys(keys, count)
  local schema = self:schema(path)
  local default = defaults.of(self, path, schema)
  local present = set_of_keys(default)
  local seen = set_of_keys(default) or {}
  for _, index in ipairs(self:writers(keys[1])) do
    if upto and index > upto then
      break
    end
    local effect = self:effect(index, path, count)
    local write = effect.write
    local tag = write and write.tag
    if tag == "none" and not schema.none then
      fault.at(write.place, "%s: expected %s, got none", path_of(path), kinds.expected(schema))
    end
    if effect.reset == "remove" or tag == "remove" then
      present = set_of_keys(default)
    elseif effect.reset or tag == "none" then
      present = nil
    end
    if tag == "table" then
      present = self:with_entries(present, write, index, path, count)
    end
    for key in pairs(present or {}) do
      seen[key] = true
    end
  end
  local removed = {}
  for _, key in ipairs(environment.sorted_keys(seen)) do
    if not (present and present[key]) then
      removed[#removed + 1] = key
    end
  end
  return present and environment.sorted_keys(present), removed
end

-- The chain of an open map without entries: recipe.none, or empty.
function Fold:map_chain(keys)
  local chain = { { value = marker.none, source = "default" } }
  for index = 1, #self.layers do
    local effect = self:effect(index, keys, #keys)
    if effect.reset or effect.write then
      chain[#chain + 1] = link_of(effect,
        effect.write and effect.write.tag == "table" and {} or marker.none)
    end
  end
  return chain
end

-- ---- all values ----

--- The value at any path after layers 1..upto as plain data, with markers inside.
function Fold:value(keys, count, upto)
  local path = first_keys(keys, count)
  local schema = self:schema(path)
  local names
  if schema.tag == "record" then
    names = self:field_names(schema, path, count)
  elseif schema.tag == "map" then
    names = self:map_keys(path, count, upto)
    if not names then
      return marker.none
    end
  else
    return (self:leaf(path, upto))
  end
  local out = {}
  for _, name in ipairs(names) do
    path[count + 1] = name
    out[name] = self:value(path, count + 1, upto)
  end
  return out
end

-- The effect that removed the entry at `keys` from its map.
function Fold:remover(keys)
  for index = #self.layers, 1, -1 do
    if self:drops(index, keys, #keys) then
      return self:effect(index, keys, #keys)
    end
  end
end

-- The chain of a leaf in a removed entry: up to the link that removed it.
local function removed_chain(chain, remover)
  local out, last = {}, link_of(remover, absent)
  for _, link in ipairs(chain) do
    if link.place ~= last.place then
      out[#out + 1] = link
    end
  end
  out[#out + 1] = last
  return out
end

--- Visits all leaves, each with its keys, schema, value and chain. Removed entries of a map come
-- with the value `absent`; the last link of their chain says who removed them.
---@param visit function  (keys, schema, value, chain)
function Fold:each(visit)
  local walk

  local function walk_below(keys, names, step)
    for _, name in ipairs(names or {}) do
      keys[#keys + 1] = name
      step(name)
      keys[#keys] = nil
    end
  end

  local function walk_map(keys, schema, remover)
    local names, removed = self:map_keys(keys, #keys)
    if not remover and (not names or #names == 0) then
      visit(keys, schema, names and {} or marker.none, self:map_chain(keys))
    end
    walk_below(keys, names, function() walk(keys, schema.value, remover) end)
    walk_below(keys, removed, function()
      walk(keys, schema.value, remover or self:remover(keys))
    end)
  end

  function walk(keys, schema, remover)
    if schema.tag == "map" then
      return walk_map(keys, schema, remover)
    elseif schema.tag == "record" then
      return walk_below(keys, self:field_names(schema, keys, #keys), function()
        walk(keys, self:field(schema, keys, #keys), remover)
      end)
    end
    local value = self:leaf(keys, nil, schema)
    local chain = self.chains[key_of(keys, #keys)]
    if remover then
      visit(keys, schema, absent, removed_chain(chain, remover))
    elseif value ~= absent then
      visit(keys, schema, value, chain)
    end
  end

  walk({}, self.root, nil)
end

return fold
