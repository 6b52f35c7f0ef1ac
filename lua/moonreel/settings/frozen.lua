--- The settings object: values by path, each with its origin; it cannot be changed.
-- @module moonreel.settings.frozen
local environment = require "moonreel.recipe.environment"
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"

local frozen = {}
local methods = {}
local plain = marker.plain

local store = setmetatable({}, { __mode = "k" })  -- proxy -> its table

-- a read-only view of a table; `names` lists fields that may be none; other names are errors
local function view(t, path, names)
  -- most values are never read: views and plain copies are made on the first read
  local below = {}
  local function at(_, key)
    local value = t[key]
    if type(value) == "table" and not store[value] then
      local part = below[key] or plain(value)
      if part ~= below[key] and type(part) == "table" then
        part = view(part, path .. "." .. tostring(key))
      end
      below[key] = part
      return part
    elseif value == nil and names and not names[key] then
      local known = {}
      for name in pairs(names) do
        known[#known + 1] = name
      end
      local near = require("moonreel.text.nearest")(tostring(key), known)
      local shown = (path .. "." .. tostring(key)):gsub("^%.", "")
      error(("settings have no field '%s'%s"):format(shown,
        near and (", did you mean '" .. near .. "'?") or ""), 2)
    end
    return value
  end
  local proxy = setmetatable({}, {
    __index = at,
    __newindex = function() error(("settings cannot be changed: %s; try: settings.with, or an "
      .. "argument"):format(path:gsub("^%.", "")), 2) end,
    __pairs = function(self)
      local keys, i = environment.sorted_keys(t), 0
      return function()
        i = i + 1
        if keys[i] ~= nil then
          return keys[i], at(self, keys[i])
        end
      end
    end,
    __len = function() return #t end,
    __name = "mr.Settings",
  })
  store[proxy] = t
  return proxy
end

-- texts of lists and maps, which never change: all bakes share the tables of defaults
local texts = setmetatable({}, { __mode = "k" })

-- A chain with its values as texts, which are made on the first read: most are never read.
local function shown_chain(leaf)
  for _, link in ipairs(leaf.chain) do
    if link.value == nil then
      local raw = link.raw
      link.value = texts[raw] or kinds.show(raw)
      if type(raw) == "table" then
        texts[raw] = link.value
      end
      link.raw = nil
    end
  end
  return leaf.chain
end

--- A plain copy of a settings object or of a part of it.
---@param part table
---@return table
function frozen.copy(part)
  local out = {}
  for key, value in pairs(store[part] or part) do
    out[key] = store[value] and frozen.copy(value) or plain(value)
  end
  return out
end

--- The value at a canonical path or any spelling: s:get("optim.lr"). None is nil.
---@param path string
function methods:get(path)
  local leaf = self.by_path[path]
  if leaf then
    return plain(leaf.value)
  end
  local target, problem = require("moonreel.recipe.override").target(path)
  if not target then
    error("settings: " .. problem, 3)
  end
  local at = self.values
  for _, key in ipairs(target.keys) do
    if type(at) ~= "table" then
      return nil
    end
    at = at[key]
  end
  for _, index in ipairs(target.indices or {}) do
    at = type(at) == "table" and at[index] or nil
  end
  return plain(at)
end

--- The origin of a value, oldest first: {{at = "file:line" | "default" | argument, value = text,
-- reads}, ...}.
---@param path string
---@return table[] chain
function methods:chain(path)
  local leaf = self.by_path[path]
  if not leaf then
    local target, problem = require("moonreel.recipe.override").target(path)
    if not target then
      error("settings: " .. problem, 3)
    end
    leaf = self.by_path[table.concat(target.keys, ".")]
  end
  return leaf and shown_chain(leaf) or {}
end

--- The line, argument or default that decided the value: "recipes/tiny/demo.lua:12".
---@param path string
---@return string
function methods:origin(path)
  local chain = self:chain(path)
  return #chain > 0 and chain[#chain].at or "default"
end

-- fields of a leaf that are made on the first read; a row has its leaf under this key
local on_demand = {}
function on_demand.__index(row, name)
  if name == "value" then
    return plain(row.raw)
  end
  return name == "chain" and shown_chain(rawget(row, on_demand)) or nil
end

--- All leaves, in the order of paths: {path, value, chain, row}. Values are plain, none is nil.
function methods:leaves()
  local out = {}
  for i, leaf in ipairs(self.list) do
    out[i] = setmetatable({ path = leaf.path, row = leaf.row, keys = leaf.keys, raw = leaf.value,
      schema = leaf.schema, [on_demand] = leaf }, on_demand)
  end
  return out
end

--- Leaves of map entries that a recipe or an argument removed: {path, chain}; the last link names
-- the place.
function methods:removed()
  local out = {}
  for i, leaf in ipairs(self.gone) do
    out[i] = { path = leaf.path, chain = shown_chain(leaf) }
  end
  return out
end

--- A plain copy of everything, or of the values below a path.
function methods:plain(path)
  if path then
    return methods.get(self, path)
  end
  return plain(self.values)
end

--- Text of settings.json: {hash, recipe, arguments, settings, origin, removed, notes}.
function methods:to_json()
  return require("moonreel.settings.store").to_json(self)
end

--- Text of a recipe that bakes to the same hash. For a recipe with stages, each stage has one.
function methods:to_recipe()
  return require("moonreel.settings.store").to_recipe(self)
end

--- Raises an error that names field and line if a set field has no reader yet, because
-- `train` would ignore it.
---@param record string|nil  only fields below it: `sample` refuses the fields of `sampling` that it
---   would ignore
function methods:require_readers(record)
  require("moonreel.settings.readers").check(self, record)
end

--- Makes settings from leaves.
---@param leaves table[]  {path, keys, value, chain, row, schema}, in the order of paths; lengths of
---   buckets by number
---@param facts table     {hash, recipe, notes, arguments = those of the command line, as typed}
---@param removed table[]  {path, chain}: leaves of removed map entries
---@return table
function frozen.new(leaves, facts, removed)
  local self = { list = leaves, gone = removed, by_path = {}, values = {} }
  for _, leaf in ipairs(leaves) do
    self.by_path[leaf.path] = leaf
    local at = self.values
    for i = 1, #leaf.keys - 1 do
      at[leaf.keys[i]] = at[leaf.keys[i]] or {}
      at = at[leaf.keys[i]]
    end
    if leaf.value ~= marker.none then
      at[leaf.keys[#leaf.keys]] = leaf.value
    end
  end
  -- records know their fields, so that a mistyped field is an error and an empty one is nil
  local registry = require "moonreel.recipe.registry"
  local function tree(schema, values, path)
    if schema.tag ~= "record" then
      return values
    end
    local t, names = {}, {}
    for _, name in ipairs(registry.names(schema)) do
      names[name] = true
      local inner = registry.field(schema, name, schema.types and values.type)
      if inner and values[name] ~= nil then
        t[name] = tree(inner, values[name], path .. "." .. name)
      end
    end
    if path == "" then
      for name, value in pairs(facts) do
        t[name] = value
        names[name] = true
      end
      for name, method in pairs(methods) do
        t[name] = function(_, ...) return method(self, ...) end
        names[name] = true
      end
    end
    return view(t, path, names)
  end
  for name, value in pairs(facts) do
    self[name] = value
  end
  for name, method in pairs(methods) do
    self[name] = method
  end
  return tree(registry.get().root, self.values, "")
end

return frozen
