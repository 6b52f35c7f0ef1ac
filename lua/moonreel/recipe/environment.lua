--- The names that a recipe can use: an allow-list, with limits of time and memory that a recipe
-- cannot catch and ignore. There is no pcall, coroutine, load, metatable, file, clock or random
-- number. `pairs` visits keys in order, so that equal recipes give equal bytes. `moonreel help
-- recipe` prints the list. Ref: recipes.md 5 and 6.
-- @module moonreel.recipe.environment
local fault = require "moonreel.recipe.fault"

local environment = {}

-- The budget of one bake in instructions. The largest shipped recipe takes one million.
environment.instructions = 20 * 1000 * 1000
environment.text_bytes = 16 * 1024 * 1024     -- longest text that a recipe may build

-- chunk names of recipes, to distinguish their code from moonreel's own
local sources = {}

--- The line of recipe code that is running; nil if no recipe code runs.
---@return string|nil  "file:line"
function environment.here()
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then
      return nil
    end
    if sources[info.source] then
      return ("%s:%d"):format(info.source:sub(2), info.currentline)
    end
    level = level + 1
  end
end

-- Raises an error with the recipe's line, whatever number of library functions lies between.
local function fail(text)
  local here = environment.here()
  error(here and here .. ": " .. text or text, 0)
end

-- Calls a library function. Its errors blame the recipe's line, not the lines here.
local function library(f, ...)
  local results = table.pack(pcall(f, ...))
  if not results[1] then
    fail((tostring(results[2]):gsub("^moonreel/[%w_/]+%.lua:%d+: ", "")))
  end
  return table.unpack(results, 2, results.n)
end

-- Keys have a fixed order: numbers first, then texts, then booleans. Other keys have no order.
local rank = { number = 1, string = 2, boolean = 3 }
local function key_before(a, b)
  local x, y = rank[type(a)], rank[type(b)]
  if x ~= y then
    return x < y
  end
  if x == 3 then
    return a == false and b == true
  end
  return a < b
end
local function sorted_keys(t)
  local keys, n, numbers, texts, listed = {}, 0, true, true, true
  for key in next, t do
    local of = rank[type(key)]
    if not of then
      fail("pairs: a key of type " .. type(key) .. " has no order; use numbers or text")
    end
    n = n + 1
    keys[n] = key
    numbers, texts, listed = numbers and of == 1, texts and of == 2, listed and key == n
  end
  -- keys of one kind are sorted; the keys of a list already come in order
  if not listed then
    table.sort(keys, not (numbers or texts) and key_before or nil)
  end
  return keys
end
environment.sorted_keys = sorted_keys

local function ordered_pairs(t)
  local meta = type(t) == "table" and debug.getmetatable(t)
  if meta and meta.__pairs then
    return meta.__pairs(t)
  end
  if type(t) ~= "table" then
    fail("pairs: expected a table, got " .. type(t))
  end
  local keys, i = sorted_keys(t), 0
  return function()
    i = i + 1
    local key = keys[i]
    if key ~= nil then
      return key, t[key]
    end
  end, t, nil
end

-- tostring() without addresses, which would make two bakes differ.
local function plain_tostring(value)
  local kind = type(value)
  if kind == "table" or kind == "function" or kind == "userdata" then
    local meta = debug.getmetatable(value)
    if meta and meta.__name then
      return meta.__name
    end
    fail("tostring: a " .. kind .. " has no text form in a recipe")
  end
  return tostring(value)
end

local function plain_format(form, ...)
  if type(form) ~= "string" then
    fail("string.format: expected text, got " .. type(form))
  end
  if form:gsub("%%%%", ""):find("%%[^%a]*p") then
    fail("string.format: %p prints an address, which differs from bake to bake")
  end
  local args = table.pack(...)
  for i = 1, args.n do
    if type(args[i]) == "table" or type(args[i]) == "function" then
      args[i] = plain_tostring(args[i])
    end
  end
  return library(string.format, form, table.unpack(args, 1, args.n))
end

local function capped_rep(text, n, separator)
  text = tostring(text)
  n = math.tointeger(n) or fail("string.rep: expected a count")
  if n > 0 and (#text + #(separator or "")) * n > environment.text_bytes then
    fail("string.rep: the text would pass 16 MiB")
  end
  return library(string.rep, text, n, separator)
end

-- Table functions are not counted in instructions while they run, so their ranges are limited.
local function span(name, from, to, most)
  from, to = math.tointeger(from), math.tointeger(to)
  if not from or not to then
    fail(name .. ": expected integers")
  end
  if to - from > most or to - from < 0 and to > from then
    fail(("%s: more than %d elements"):format(name, most))
  end
end

local function capped_move(a, from, to, at, b)
  span("table.move", from, to, 1000 * 1000)
  return library(table.move, a, from, to, at, b)
end

local function capped_unpack(t, from, to)
  span("table.unpack", from or 1, to or #t, 100 * 1000)
  return library(table.unpack, t, from, to)
end

local function capped_concat(t, separator, from, to)
  span("table.concat", from or 1, to or #t, 1000 * 1000)
  return library(table.concat, t, separator, from, to)
end

local function take(from, names)
  local out = {}
  for name in names:gmatch("%S+") do
    out[name] = from[name]
  end
  return out
end

local allowed = take(_G, "assert error ipairs select tonumber type")
allowed.pairs, allowed.tostring = ordered_pairs, plain_tostring
allowed.math = take(math, "abs ceil cos deg exp floor fmod huge log max maxinteger min mininteger "
  .. "modf pi rad sin sqrt " ..
  "tan tointeger type ult")
allowed.string = take(string, "byte char len lower reverse sub upper")
allowed.string.format, allowed.string.rep = plain_format, capped_rep
allowed.table = take(table, "insert pack remove sort")
allowed.table.move, allowed.table.unpack, allowed.table.concat = capped_move,
  capped_unpack, capped_concat

--- A new allow-list. The loader adds `recipe` and `require`.
---@return table
function environment.new()
  local env = {}
  for name, value in next, allowed do
    -- a recipe may change its own copy
    env[name] = value
    if type(value) == "table" then
      env[name] = {}
      for inner, f in next, value do
        env[name][inner] = f
      end
    end
  end
  return env
end

--- Calls recipe code. All texts share one metatable, through which ("x"):find would avoid the
-- allow-list. So while a recipe runs, its own lines see only the allowed string functions there.
---@param source string|nil  chunk name of the recipe; it is remembered
---@param f function
---@return boolean ok
---@return any ...  results or the error
function environment.guarded(source, f, ...)
  if source then
    sources[source] = true
  end
  local meta = debug.getmetatable("")
  local before = meta.__index
  if type(before) == "function" then
    return pcall(f, ...)
  end
  meta.__index = function(_, name)
    local caller = debug.getinfo(2, "S")
    if caller and sources[caller.source] then
      local value = allowed.string[name]
      if value == nil then
        fail(("text has no method '%s' in a recipe"):format(tostring(name)))
      end
      return value
    end
    return before[name]
  end
  local results = table.pack(pcall(f, ...))
  meta.__index = before
  return table.unpack(results, 1, results.n)
end

--- Calls our own code from within recipe code, with the full string functions.
---@param f function
---@return any ...  results of f
function environment.unguarded(f, ...)
  local meta = debug.getmetatable("")
  local guard = meta.__index
  meta.__index = string
  -- an error ends the recipe, and with it guarded()
  local results = table.pack(f(...))
  meta.__index = guard
  return table.unpack(results, 1, results.n)
end

--- The names that a recipe may use, for help: {"math.abs", ...}, sorted.
---@return string[]
function environment.names()
  local names = { "recipe", "require" }
  for name, value in pairs(environment.new()) do
    if type(value) == "table" then
      for inner in pairs(value) do
        names[#names + 1] = name .. "." .. inner
      end
    else
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end

--- Runs `f` under the instruction budget. A recipe has no error handler, so it cannot catch this
-- error.
---@param f function
---@return any ...  results of f
function environment.within_budget(f, ...)
  local step, left = 10000, environment.instructions
  local old_hook, old_mask, old_count = debug.gethook()
  debug.sethook(function()
    left = left - step
    if left < 0 then
      -- each further count raises the error again, so that no code can catch it
      fault.recipe("%s: more than %d instructions; a recipe is data, not a program; try: look for "
        .. "a loop without end", environment.here() or "recipe", environment.instructions)
    end
  end, "", step)
  local results = table.pack(pcall(f, ...))
  if old_hook then
    debug.sethook(old_hook, old_mask, old_count)
  else
    debug.sethook()
  end
  if not results[1] then
    error(results[2], 0)
  end
  return table.unpack(results, 2, results.n)
end

return environment
