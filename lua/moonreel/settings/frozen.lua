--- The settings object: values by path, each with its origin; it cannot be changed.
-- @module moonreel.settings.frozen
local environment = require "moonreel.recipe.environment"
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"

local frozen = {}
local methods = {}
local plain = marker.plain

local store = setmetatable({}, { __mode = "k" })  -- proxy -> its table

-- read-only view of a table; `names` lists fields that may be none, anything else is a mistake
local function view(t, path, names)
  -- most values are never asked for: they become plain, and views, when they are
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
    __newindex = function() error(("settings are fixed: %s"):format(path:gsub("^%.", "")), 2) end,
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

-- texts of lists and maps, which never change: defaults are the same tables in every bake
local texts = setmetatable({}, { __mode = "k" })

-- A chain with its values as texts, which are made when the chain is asked for: most never are.
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

--- A plain copy of what a settings object or a part of it shows.
---@param part table
---@return table
function frozen.copy(part)
  local out = {}
  for key, value in pairs(store[part] or part) do
    out[key] = store[value] and frozen.copy(value) or plain(value)
  end
  return out
end

--- Value at a canonical path or any spelling: s:get("optim.lr"). None is nil.
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

--- Where a value comes from, oldest first: {{at = "file:line" | "default" | argument, value = text,
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

--- The line, argument or default that has the last word: "recipes/tiny/demo.lua:12".
---@param path string
---@return string
function methods:origin(path)
  local chain = self:chain(path)
  return #chain > 0 and chain[#chain].at or "default"
end

-- what is made of a leaf when it is asked for; the key under which a row has its leaf
local on_demand = {}
function on_demand.__index(row, name)
  if name == "value" then
    return plain(row.raw)
  end
  return name == "chain" and shown_chain(rawget(row, on_demand)) or nil
end

--- All leaves, in path order: {path, value, chain, row}. Values are plain, none is nil.
function methods:leaves()
  local out = {}
  for i, leaf in ipairs(self.list) do
    out[i] = setmetatable({ path = leaf.path, row = leaf.row, keys = leaf.keys, raw = leaf.value,
      schema = leaf.schema, [on_demand] = leaf }, on_demand)
  end
  return out
end

--- Leaves of map entries that a recipe or an argument took out: {path, chain}; the last link says
-- who did.
function methods:removed()
  local out = {}
  for i, leaf in ipairs(self.gone) do
    out[i] = { path = leaf.path, chain = shown_chain(leaf) }
  end
  return out
end

--- A plain copy of everything, or of what lies below a path.
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

--- Text of a recipe that bakes to the same hash. Of a recipe with stages, each stage has one.
function methods:to_recipe()
  return require("moonreel.settings.store").to_recipe(self)
end

--- Raise when a set field has no reader yet: `train` refuses what would be ignored. Names field and
-- line.
---@param record string|nil  only fields below it: `sample` refuses what it would ignore of
---   `sampling`
function methods:require_readers(record)
  require("moonreel.settings.readers").check(self, record)
end

--- Make settings from leaves.
---@param leaves table[]  {path, keys, value, chain, row, schema}, in path order; lengths of buckets
---   by number
---@param facts table     {hash, recipe, notes, arguments = what the command line set, as typed}
---@param removed table[]  {path, chain}: leaves of entries that their maps have no more
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
  -- records know their fields, so that a mistyped one is an error and a none one is nil
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
