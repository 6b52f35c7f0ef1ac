--- Layers to values: folds the writes of every path from the weakest layer to the strongest, on
-- demand. On demand, because a late-bound value f(r, inherited) reads other final values; reading
-- in circles is an error that prints the circle. Ref: recipes.md 2.
-- @module moonreel.recipe.fold
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
  return setmetatable({ layers = layers, root = registry.get().root, memo = {},
    calls = {}, chains = {}, writers_of = {} }, Fold)
end

local function key_of(keys, count) return table.concat(keys, "\0", 1, count) end

-- field keys[i] of a record, of its type only when it is no common one
function Fold:field(record, keys, i)
  return record.fields[keys[i]]
    or (record.types and registry.field(record, keys[i], self:type_name(keys, i - 1)))
end

--- Schema at a path under the final types, or nil with the depth that fails.
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

--- Final value of `type` of the typed record at keys[1..count]; false when none.
function Fold:type_name(keys, count)
  local path = table.move(keys, 1, count, 1, {})
  path[count + 1] = "type"
  local value = self:leaf(path)
  return value ~= marker.none and value or false
end

-- default of a leaf or map entry: of the type, of the row, or none / absent
function Fold:default(keys, schema)
  local parent = self.root
  local inside_map = false
  for i = 1, #keys - 1 do
    if parent.tag == "record" then
      parent = self:field(parent, keys, i)
    else
      parent = parent.value
    end
    inside_map = inside_map or parent.tag == "map"
    if parent.tag == "map" and parent.row and parent.row.default then
      -- an entry of a map that has a default
      local at = parent.row.default
      for j = i + 1, #keys do
        at = type(at) == "table" and at[keys[j]] or nil
      end
      if at ~= nil then
        return at, "default"
      end
    end
  end
  if parent.tag == "map" then
    return absent
  end
  if parent.types and not parent.fields[keys[#keys]] then
    local type_name = self:type_name(keys, #keys - 1)
    local of_type = type_name and parent.types[type_name]
    if of_type and of_type.preset[keys[#keys]] ~= nil then
      return of_type.preset[keys[#keys]], "default of " .. type_name
    end
  end
  local row = schema.row
  if inside_map and (not row or row.default == nil) then
    return marker.none, "default"
  end
  if row and row.default ~= nil then
    return row.default, "default"
  end
  return marker.none, "default"
end

-- the effect of layer `index` on a path: a write, and whether something above took the path back
-- first
function Fold:effect(index, keys, count)
  local write, reset = self.layers[index].write, nil
  for i = 1, count do
    write = late.resolve(self, write, keys, i - 1, index)
    if write.tag ~= "table" then
      return reset or write.tag, nil, write
    end
    if write.replace then
      reset = "replace"
    end
    local child = write.children[keys[i]]
    if not child then
      return reset, nil, write
    end
    write = child
  end
  return reset, late.resolve(self, write, keys, count, index), write
end

--- Who gave the typed record at keys[1..count] its type, and what to try when a field does not suit
-- it.
---@return string
function Fold:type_note(keys, count)
  local path = table.move(keys, 1, count, 1, {})
  path[count + 1] = "type"
  local name = kinds.show(self:leaf(path))
  local chain = self.chains[key_of(path, #path)]
  local by, shown = chain[#chain].place, path_of(keys, count)
  return ("its type is %s%s\n  try: %s = recipe.replace { type = %s, ... }, which drops inherited "
    .. "fields"):format(name,
    by and " by " .. place.text(by) or " by default", shown, name)
end

--- Check a leaf's value against its schema; `p` is where it was written.
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

-- `betas.1=0.8`: one element of a list, counted from 1
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

-- layers that say something at or below a name of the root; most say nothing about most fields
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

-- was a typed record replaced after a layer?
function Fold:is_dropped(index, keys, upto)
  for later = index + 1, upto or #self.layers do
    if self:effect(later, keys, #keys) then
      return true
    end
  end
  return false
end

--- Value of a leaf after layers 1..upto (default all); marker.none, or `absent` for a missing map
-- entry.
---@param keys table
---@param upto integer|nil
---@param schema table|nil  of the leaf, where the caller has it
function Fold:leaf(keys, upto, schema)
  local final = upto == nil
  local memo_key = final and key_of(keys, #keys)
  if final and self.memo[memo_key] ~= nil then
    return self.memo[memo_key]
  end
  schema = schema or self:schema(keys)
  local default, source = self:default(keys, schema)
  if type(default) == "function" then
    local write = { place = { argument = "default of " .. path_of(keys) } }
    self.default_writes = self.default_writes or {}
    write = self.default_writes[key_of(keys, #keys)] or write
    self.default_writes[key_of(keys, #keys)] = write
    if write.value == nil then
      write.value = self:checked(schema, keys, late.call(self, write, keys, #keys, default, nil),
        write.place)
    end
    default = write.value
  end
  local value = default
  local chain = {}
  if value ~= absent then
    chain[1] = { value = value, source = source }
  end
  local record = #keys > 1 and self:schema(keys, #keys - 1)
  local of_type = record and record.types and not record.fields[keys[#keys]]
  for _, index in ipairs(self:writers(keys[1])) do
    if upto and index > upto then
      break
    end
    local reset, write, holder = self:effect(index, keys, #keys)
    local was = value
    local tag = write and write.tag
    if write and of_type and self:is_dropped(index, keys, upto) then
      -- a record of another type, replaced since: what it held is of no kind here
      tag, value = nil, tag == "leaf" and write.value or value
    end
    if reset == "remove" then
      value = default
    elseif reset == "replace" then
      value = #keys > 1 and self:schema(keys, #keys - 1).tag == "map" and absent or default
    elseif reset == "none" then
      value = absent
    end
    if tag == "leaf" then
      value = self:checked(schema, keys, late.list_items(self, write, write.value, value, keys),
        write.place)
    elseif tag == "element" then
      value = with_element(schema, keys, value, write)
    elseif tag == "none" then
      value = self:checked(schema, keys, marker.none, write.place)
    elseif tag == "remove" then
      value = default
    end
    if write or (reset and not rawequal(was, value)) then
      local by = write or holder
      -- the inherited value was dropped before this one was written
      local replace = reset and write and true or nil
      chain[#chain + 1] = { value = value, place = by.place, reads = (by.late or by).reads,
        replace = replace }
    end
  end
  if final then
    self.memo[memo_key] = value
    self.chains[memo_key] = chain
  end
  return value, chain
end

--- Keys of an open map after layers 1..upto, in order; nil when the map is none.
function Fold:map_keys(keys, count, upto)
  local path = table.move(keys, 1, count, 1, {})
  -- a map inside a map has its part of the outer one's default
  local default = self:default(path, self:schema(path))
  local has_default = default ~= marker.none and default ~= absent
  local present = has_default
  local found = {}
  if present then
    for key in pairs(default) do
      found[key] = true
    end
  end
  for index = 1, upto or #self.layers do
    local reset, write = self:effect(index, path, #path)
    local tag = write and write.tag
    if reset == "none" or reset == "replace" or tag == "none" then
      found, present = {}, false
    end
    if reset == "remove" or tag == "remove" then
      found, present = {}, has_default
      if present then
        for key in pairs(default) do
          found[key] = true
        end
      end
    end
    if tag == "none" and not self:schema(path).none then
      fault.at(write.place, "%s: expected %s, got none", path_of(path),
        kinds.expected(self:schema(path)))
    end
    if tag == "table" then
      if write.replace then
        found = {}
      end
      present = true
      for key in pairs(write.children) do
        path[count + 1] = key
        local _, child = self:effect(index, path, count + 1)
        path[count + 1] = nil
        if child and child.tag == "remove" then
          found[key] = nil
        else
          found[key] = true
        end
      end
    end
  end
  if not present then
    return nil
  end
  return environment.sorted_keys(found)
end

--- Value at any path after layers 1..upto as plain data (markers inside).
function Fold:value(keys, count, upto)
  local path = table.move(keys, 1, count, 1, {})
  local schema = self:schema(path)
  if schema.tag == "record" then
    local out = {}
    if schema.types and not self:type_name(path, count) and not schema.fields.type then
      return out
    end
    for _, name in ipairs(registry.names(schema, schema.types
        and (self:type_name(path, count) or "\0"))) do
      path[count + 1] = name
      out[name] = self:value(path, count + 1, upto)
    end
    return out
  elseif schema.tag == "map" then
    local names = self:map_keys(path, count, upto)
    if not names then
      return marker.none
    end
    local out = {}
    for _, name in ipairs(names) do
      path[count + 1] = name
      out[name] = self:value(path, count + 1, upto)
    end
    return out
  end
  return (self:leaf(path, upto))
end

--- All leaves: visits each with its keys, schema, value and chain. Absent entries are left out.
---@param visit function  (keys, schema, value, chain)
function Fold:each(visit)
  local function walk(keys, schema)
    if schema.tag == "record" then
      for _, name in ipairs(registry.names(schema, schema.types
          and (self:type_name(keys, #keys) or "\0"))) do
        keys[#keys + 1] = name
        walk(keys, self:field(schema, keys, #keys))
        keys[#keys] = nil
      end
    elseif schema.tag == "map" then
      local names = self:map_keys(keys, #keys)
      if not names then
        visit(keys, schema, marker.none, self:map_chain(keys))
      elseif #names == 0 then
        visit(keys, schema, {}, self:map_chain(keys))
      end
      for _, name in ipairs(names or {}) do
        keys[#keys + 1] = name
        walk(keys, schema.value)
        keys[#keys] = nil
      end
    else
      local value = self:leaf(keys, nil, schema)
      if value ~= absent then
        visit(keys, schema, value, self.chains[key_of(keys, #keys)])
      end
    end
  end
  walk({}, self.root)
end

-- who made an open map none or empty
function Fold:map_chain(keys)
  local chain = { { value = marker.none, source = "default" } }
  for index = 1, #self.layers do
    local reset, write, holder = self:effect(index, keys, #keys)
    if reset or write then
      chain[#chain + 1] = { value = write and write.tag == "table" and {} or marker.none,
        place = (write or holder).place }
    end
  end
  return chain
end

return fold
