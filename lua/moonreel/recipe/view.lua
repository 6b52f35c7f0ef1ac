--- The final recipe as late-bound functions see it: read-only, with every spelling of a name. Each
-- value is computed when it is read.
-- @module moonreel.recipe.view
local marker = require "moonreel.recipe.marker"
local registry = require "moonreel.recipe.registry"

local view = {}

--- A plain copy of a value for recipes; none becomes nil.
---@param value any
---@return any
function view.plain(value)
  if value == marker.none or value == marker.absent then
    return nil
  end
  if type(value) ~= "table" or getmetatable(value) ~= nil then
    return value
  end
  local out = {}
  for key, item in next, value do
    out[key] = view.plain(item)
  end
  return out
end

-- Records that the running late-bound value reads a path, for `why`.
local function note_read(fold, keys)
  local call = fold.calls[#fold.calls]
  if call then
    call.reads[registry.path(keys)] = true
  end
end

local function contains(list, wanted)
  for _, one in ipairs(list) do
    if one == wanted then
      return true
    end
  end
  return false
end

-- The keys of the child `name` of a view, and its schema; nil for an entry that a map lacks.
local function child_of(fold, keys, schema, name)
  local path = table.move(keys, 1, #keys, 1, {})
  if schema.tag == "map" then
    path[#path + 1] = name
    if contains(fold:map_keys(keys, #keys), name) then
      return path, schema.value
    end
    return nil
  end
  local target = schema.path and type(name) == "string" and registry.resolve(schema, name)
  if target then
    path = target
  else
    path[#path + 1] = name
  end
  local inner = fold:schema(path)
  if not inner then
    local hint = schema.path and registry.hint(schema, tostring(name)) or ""
    -- level 1 is this function, 2 the view's __index, 3 the recipe's line
    error(("%s is not a field%s"):format(table.concat(path, "."),
      target and " of the present type" or hint), 3)
  end
  return path, inner
end

--- The value at a path: a leaf's value, or a view of the fields below it.
---@param fold table
---@param keys table
---@param schema table
---@return any
function view.of(fold, keys, schema)
  if schema.tag ~= "record" and schema.tag ~= "map" then
    note_read(fold, keys)
    return view.plain(fold:leaf(keys))
  end
  if schema.tag == "map" then
    note_read(fold, keys)
    if not fold:map_keys(keys, #keys) then
      return nil
    end
  end
  keys = table.move(keys, 1, #keys, 1, {})
  local function names()
    if schema.tag == "map" then
      return fold:map_keys(keys, #keys)
    end
    return registry.names(schema, schema.types and (fold:type_name(keys, #keys) or "\0"))
  end
  local function index(_, name)
    local path, inner = child_of(fold, keys, schema, name)
    return path and view.of(fold, path, inner)
  end
  return setmetatable({}, {
    __index = index,
    __newindex = function() error("the final recipe cannot be changed", 2) end,
    __pairs = function()
      local list, i = names(), 0
      return function()
        i = i + 1
        if list[i] ~= nil then
          return list[i], index(nil, list[i])
        end
      end
    end,
    __len = function() return #names() end,
    __name = "recipe", __metatable = { __name = "recipe" },
  })
end

return view
