--- Adds to errors of other rooms the line of the recipe, or the argument, that led to them. A room
-- that opens a file or builds a model knows nothing about recipes. Its caller, which passes values
-- of settings, adds the place here.
-- @module moonreel.settings.blame
local base = require "moonreel.core.base"
local hint = require "moonreel.text.hint"
local kinds = require "moonreel.recipe.kinds"
local registry = require "moonreel.recipe.registry"

local blame = {}

--- The place that set a field; the recipe as a whole if the field was not set.
---@param settings table
---@param path string
---@return string
function blame.place(settings, path)
  local origin = settings:origin(path)
  return origin:match("^default") and tostring(settings.recipe) or origin
end

-- Joins a place and a message, unless the message begins with it. If an argument ends with a file
-- name with which the message begins, the name is not repeated.
local function at_place(place, message)
  if message:sub(1, #place + 2) == place .. ": " then
    return message
  end
  local value, rest = message:match("^([^\n]-): (.*)$")
  if value and (place:match("^%-%-?%S+ (.*)$") or place:match("^[%w_.]+=(.*)$")) == value then
    message = rest
  end
  return ("%s: %s"):format(place, message)
end

--- Raises an error about a field, with its place.
---@param settings table
---@param path string
---@param code string   "MR_E_..."
---@param form string   for string.format
function blame.raise(settings, path, code, form, ...)
  base.raise(code, at_place(blame.place(settings, path), form:format(...)))
end

-- Calls f; `words` makes the text of an error. Stop requests and lack of memory pass unchanged,
-- because no line of a recipe caused them.
local function call(words, f, ...)
  local results = table.pack(pcall(f, ...))
  if results[1] then
    return table.unpack(results, 2, results.n)
  end
  local problem = results[2]
  if type(problem) == "table" and problem.message and problem.code ~= "MR_E_STOPPED"
      and problem.code ~= "MR_E_MEMORY" then
    problem.message = words(problem.message)
  end
  error(problem, 0)
end

--- Calls f with the value of one field; an error gets the place of that field, and a file that does
-- not fit the advice to name another one.
---@param settings table
---@param path string
---@param f function
---@return any ...  results of f
function blame.field(settings, path, f, ...)
  return call(function(message)
    return at_place(blame.place(settings, path), message)
  end, hint, ("files of one release that fit the recipe, or another %s"):format(path), f, ...)
end

-- Leaves of settings that a text names, in its order: by their paths, or by their names alone if
-- they are in the record `within`.
local function named_in(settings, text, within)
  local by_path, found, seen = {}, {}, {}
  for _, leaf in ipairs(settings:leaves()) do
    by_path[leaf.path] = leaf
  end
  for word in text:gmatch("[%a_][%w_.]*") do
    word = word:gsub("%.+$", "")
    local leaf = by_path[word:find(".", 1, true) and word or within .. "." .. word]
    if leaf and not seen[leaf.path] then
      seen[leaf.path] = true
      found[#found + 1] = leaf
    end
  end
  return found
end

-- the fields that a text names and that were set: {leaf, at}, arguments before recipes
local function set_in(settings, text, within)
  local named = {}
  for _, leaf in ipairs(named_in(settings, text, within)) do
    local link = leaf.chain[#leaf.chain]
    if link and link.command_line then
      table.insert(named, 1, { leaf = leaf, at = link.at })
    elseif link and link.set then
      named[#named + 1] = { leaf = leaf, at = link.at }
    end
  end
  return named
end

-- the place that chose a record: that of its type, if it has one
local function chosen(settings, within)
  local typed = registry.get().root.fields[within].types
  return typed and blame.place(settings, within .. ".type") or tostring(settings.recipe)
end

-- lines that say where fields were set
local function setters(named, first)
  local lines = {}
  for i = first, #named do
    local leaf = named[i].leaf
    lines[#lines + 1] = ("\n  %s = %s set by %s"):format(leaf.path, kinds.show(leaf.raw),
      named[i].at)
  end
  return table.concat(lines)
end

--- Calls f with the values of a record. An error gets the places of the fields that its text names,
-- arguments before recipes; or the place of the record's type, or the recipe, if it names no field.
---@param settings table
---@param within string  the record
---@param f function
---@return any ...  results of f
function blame.record(settings, within, f, ...)
  return call(function(message)
    local named = set_in(settings, message, within)
    local at = named[1] and named[1].at or chosen(settings, within)
    return at_place(at, message) .. setters(named, 2)
  end, f, ...)
end

--- Calls f with settings whose records replace others; an error names the others, as recipes and
-- arguments write them.
---@param settings table
---@param moved table  as in settings.with
---@param f function
---@return any ...  results of f
function blame.renamed(settings, moved, f, ...)
  return call(function(message)
    for record, was in pairs(moved) do
      message = message:gsub("%f[%w_./-]" .. record .. "%.([%w_]+)", function(field)
        local known = pcall(settings.chain, settings, record .. "." .. field)
        return known and was .. "." .. field or nil
      end):gsub("%f[%w_./-]" .. record .. "(:%f[^:])", was .. "%1")
    end
    return message
  end, f, ...)
end

--- Calls f, which compares values of a record with something else. Below an error the places are
-- listed that set the fields in its text. The beginning of the text stays unchanged.
---@param settings table
---@param within string  the record
---@param f function
---@return any ...  results of f
function blame.compare(settings, within, f, ...)
  return call(function(message)
    return message .. setters(set_in(settings, message, within), 1)
  end, f, ...)
end

return blame
