--- Runs recipe files and puts ancestors in order: name -> layers, weakest first.
-- A recipe runs once per bake, in a closed environment, with wrapped table constructors
-- (rewrite.lua). A helper that it requires runs once for each file that requires it: a file that
-- changes a helper's table changes only its own copy. Ref: recipes.md 1, 2, 4.
-- @module moonreel.recipe.loader
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local files = require "moonreel.recipe.files"
local marker = require "moonreel.recipe.marker"
local place = require "moonreel.recipe.place"
local rewrite = require "moonreel.recipe.rewrite"

local loader = {}
local Loader = {}
Loader.__index = Loader

--- Makes a loader, which keeps the files of one bake.
function loader.new()
  return setmetatable({ running = {}, compiled = {}, declared = {} }, Loader)
end

local function key_text(key)
  return type(key) == "number" and "element [" .. key .. "]" or "'" .. tostring(key) .. "'"
end

-- The keys that one call of a constructor has written: in order, with their lines (nil if all are
-- on its own line), and the last key, if any number of values, even no value, may be there.
local function written(constructor, computed, at)
  local keys, lines, position, k, one_line, open_ended = {}, {}, 0, 0, true, nil
  for _, item in ipairs(constructor.items) do
    local key, line = item.key, item.line
    if item.positional then
      position = position + 1
      key = position
    elseif item.computed then
      k = k + 1
      key = computed[k].key
    end
    if lines[key] then
      fault.recipe("%s: %s is written twice in one table, first at line %d, and Lua would "
        .. "silently keep the last one; try: remove one of the two",
        at(line), key_text(key), lines[key])
    end
    if item.open_ended then
      open_ended = key
    end
    one_line = one_line and line == constructor.line
    keys[#keys + 1], lines[key] = key, line
  end
  return { keys = keys, lines = not one_line and lines or nil, open_ended = open_ended }
end

-- The functions that rewritten constructors call. They record the lines, and refuse values that
-- plain Lua would drop silently.
local function hooks(file, constructors)
  local open = {}
  local function at(line) return ("%s:%d"):format(file.shown, line) end
  local env = {}
  -- A constructor without computed keys writes the same keys at every call.
  local frames = {}
  for id, constructor in ipairs(constructors) do
    local computed = false
    for _, item in ipairs(constructor.items) do
      computed = computed or item.computed
    end
    frames[id] = { constructor = constructor, computed = {}, varies = computed }
  end
  env.__open = function(id)
    local frame = frames[id]
    if frame.varies then
      frame = { constructor = frame.constructor, computed = {}, varies = true }
    end
    open[#open + 1] = frame
    return frame
  end
  env.__key = function(n, key)
    local frame = open[#open]
    local line = frame.constructor.items[n].line
    if key == nil then
      fault.recipe("%s: a key in [ ] is nil; expected a text or a number", at(line))
    end
    if math.type(key) == "float" and math.tointeger(key) then
      key = math.tointeger(key)
    end
    frame.computed[#frame.computed + 1] = { key = key, line = line }
    return key
  end
  env.__table = function(frame, t)
    open[#open] = nil
    local line = frame.constructor.line
    frame.written = frame.written or written(frame.constructor, frame.computed, at)
    local keys, lines, open_ended = frame.written.keys, frame.written.lines,
      frame.written.open_ended
    for i = 1, #keys do
      local key = keys[i]
      if t[key] == nil and key ~= open_ended then
        fault.recipe("%s: %s is nil, which Lua drops silently; try: recipe.none for no value, "
          .. "recipe.remove for the default",
            at(lines and lines[key] or line), key_text(key))
      end
    end
    place.remember(t, file.shown, line, lines)
    return t
  end
  return env
end

-- The environment of one file: the allow-list, `recipe` and `require`. New global names are
-- refused.
function Loader:environment(file, constructors)
  local env = environment.new()
  for name, hook in pairs(hooks(file, constructors)) do
    env[name] = hook
  end
  local function here() return environment.here() or file.shown end
  local api = { none = marker.none, remove = marker.remove, previous = marker.previous,
    replace = marker.replace }
  function api.extend(...)
    local parents = table.pack(...)
    for i = 1, parents.n do
      if type(parents[i]) ~= "string" then
        fault.recipe("%s: recipe.extend: expected names, got %s", here(), type(parents[i]))
      end
    end
    if parents.n == 0 then
      fault.recipe("%s: recipe.extend: names no parent; try: recipe {...}", here())
    end
    local where = here()
    return function(body)
      if type(body) ~= "table" then
        fault.recipe("%s: recipe.extend(...): expected a table after it, got %s", where, type(body))
      end
      return marker.declare({ where = where, table.unpack(parents, 1, parents.n) }, body)
    end
  end
  env.recipe = setmetatable({}, {
    __call = function(_, body)
      if type(body) ~= "table" then
        fault.recipe("%s: recipe: expected a table, got %s", here(), type(body))
      end
      return marker.declare({}, body)
    end,
    __index = function(_, name)
      if api[name] ~= nil then
        return api[name]
      end
      fault.recipe("%s: recipe.%s is not known; expected none, remove, replace, extend or previous",
        here(), tostring(name))
    end,
    __newindex = function() fault.recipe("%s: recipe cannot be changed", here()) end,
    __metatable = false, __name = "recipe",
  })
  local required = {}
  env.require = function(name)
    if type(name) ~= "string" then
      fault.recipe("%s: require: expected a name, got %s", here(), type(name))
    end
    local where = here()
    return environment.unguarded(function()
      local helper = files.from(name, file, where)
      if not required[helper.id] then
        required[helper.id] = { value = self:run(helper, where) }
      end
      return required[helper.id].value
    end)
  end
  return setmetatable({}, {
    __index = function(_, name)
      local value = env[name]
      if value == nil then
        fault.recipe("%s: '%s' is not defined here; what a recipe reaches: moonreel help recipe",
          here(), tostring(name))
      end
      return value
    end,
    __newindex = function(_, name)
      fault.recipe("%s: '%s' is assigned as a global; try: local %s", here(),
        tostring(name), tostring(name))
    end,
    __metatable = false,
  })
end

-- the code of a file with its constructors wrapped; compiled by each run for its own environment
function Loader:compile(file)
  local entry = self.compiled[file.id]
  if not entry then
    -- syntax errors refer to the text as it was written
    local chunk, problem = load(file.text, "@" .. file.shown, "t", {})
    if not chunk then
      -- an error of syntax has the path and the line; the one about bytecode has neither
      fault.recipe("%s%s", problem:find(file.shown, 1, true) and "" or file.shown .. ": ", problem)
    end
    entry = {}
    entry.code, entry.constructors = rewrite.source(file.text)
    self.compiled[file.id] = entry
  end
  return entry
end

--- Run a file.
---@param file table
---@param where string|nil  the place that requires the file
---@return any value  what the file returned
function Loader:run(file, where)
  for i, other in ipairs(self.running) do
    if other.id == file.id then
      local circle = {}
      for j = i, #self.running do
        circle[#circle + 1] = self.running[j].shown
      end
      circle[#circle + 1] = file.shown
      fault.recipe("%s: files require each other in a circle: %s", where or file.shown,
        table.concat(circle, " -> "))
    end
  end
  local compiled = self:compile(file)
  local chunk, problem = load(compiled.code, "@" .. file.shown, "t",
    self:environment(file, compiled.constructors))
  if not chunk then
    fault.recipe("%s", problem)
  end
  self.running[#self.running + 1] = file
  local ok, value = environment.guarded("@" .. file.shown, chunk)
  if not ok then
    local text = fault.raised(value)
    if not text then
      error(value, 0)
    end
    -- an error of Lua has its line; lack of memory and error(table) do not
    fault.recipe("%s%s", text:sub(1, #file.shown + 1) == file.shown .. ":" and ""
      or file.shown .. ": ", text)
  end
  self.running[#self.running] = nil
  return value
end

--- C3: the members of all lists, each once, in an order that agrees with the order of every list.
---@param lists table[]  strongest first; emptied
---@param name string    the recipe, for messages
---@return table[]  strongest first
function loader.merge(lists, name)
  local out = {}
  while true do
    local live = {}
    for _, list in ipairs(lists) do
      if #list > 0 then
        live[#live + 1] = list
      end
    end
    if #live == 0 then
      return out
    end
    local chosen
    for _, list in ipairs(live) do
      local head, blocked = list[1], false
      for _, other in ipairs(live) do
        for i = 2, #other do
          blocked = blocked or other[i] == head
        end
      end
      if not blocked then
        chosen = head
        break
      end
    end
    if not chosen then
      fault.recipe("%s: its parents have %s and %s in opposite orders, so neither can be the "
        .. "stronger one",
        name, live[1][1].shown, live[2][1].shown)
    end
    out[#out + 1] = chosen
    for _, list in ipairs(live) do
      if list[1] == chosen then
        table.remove(list, 1)
      end
    end
  end
end

-- Runs a file and its ancestors. Returns its layer and its line of ancestors: the file and all its
-- ancestors, strongest first.
function Loader:declare(file, path, where)
  for i, other in ipairs(path) do
    if other.id == file.id then
      local chain = {}
      for j = i, #path do
        chain[#chain + 1] = path[j].shown
      end
      fault.recipe("%s: recipes extend each other in a circle: %s -> %s",
        where, table.concat(chain, " -> "), file.shown)
    end
  end
  local known = self.declared[file.id]
  if known then
    return known
  end
  local declaration = marker.declaration(self:run(file, where))
  if not declaration then
    fault.recipe("%s: a recipe returns `recipe {...}` or `recipe.extend(...) {...}`; this file "
      .. "returns something else", file.shown)
  end
  path[#path + 1] = file
  local layer = { file = file, id = file.id, shown = file.shown, body = declaration.body }
  local lists, direct = {}, {}
  -- The parent that is named last is the strongest.
  for i = #declaration.parents, 1, -1 do
    local parent = self:declare(files.from(declaration.parents[i], file, declaration.parents.where),
      path, declaration.parents.where)
    lists[#lists + 1] = table.move(parent.line, 1, #parent.line, 1, {})
    -- A file that is named twice, perhaps by two names, counts as one parent.
    local known_parent = false
    for _, other in ipairs(direct) do
      known_parent = known_parent or other == parent.layer
    end
    if not known_parent then
      direct[#direct + 1] = parent.layer
    end
  end
  lists[#lists + 1] = direct
  path[#path] = nil
  local line = loader.merge(lists, file.shown)
  table.insert(line, 1, layer)
  known = { layer = layer, line = line }
  self.declared[file.id] = known
  return known
end

--- Layers of a recipe: ancestors first, the recipe last.
---@param file table  from files.root
---@return table[] layers  {file, id, shown, body}
function Loader:layers(file)
  local line = self:declare(file, {}, file.shown).line
  local out = {}
  for i = #line, 1, -1 do
    out[#out + 1] = line[i]
  end
  return out
end

return loader
