--- Adds to errors of other rooms the line of the recipe, or the argument, that led to them. A room
-- that opens a file or builds a model knows nothing of recipes; its caller, which passes values of
-- settings, adds the place here.
-- @module moonreel.settings.blame
local base = require "moonreel.core.base"
local kinds = require "moonreel.recipe.kinds"
local registry = require "moonreel.recipe.registry"

local blame = {}

--- Who set a field; the recipe as a whole where it was not set.
---@param settings table
---@param path string
---@return string
function blame.place(settings, path)
  local origin = settings:origin(path)
  return origin:match("^default") and tostring(settings.recipe) or origin
end

-- A place and what is wrong there. An argument ends with its value: a message about a file of that
-- name need not begin with it again.
local function at_place(place, message)
  local value, rest = message:match("^([^\n]-): (.*)$")
  if value and (place:match("^%-%-?%S+ (.*)$") or place:match("^[%w_.]+=(.*)$")) == value then
    message = rest
  end
  return ("%s: %s"):format(place, message)
end

--- Raise an error about a field, with its place.
---@param settings table
---@param path string
---@param code string   "MR_E_..."
---@param form string   of string.format
function blame.raise(settings, path, code, form, ...)
  base.raise(code, at_place(blame.place(settings, path), form:format(...)))
end

-- Call f; `words` makes the text of what it raises. Requests to stop and lack of memory pass as
-- they are: no line of a recipe is at fault.
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

--- Call f with the value of one field; an error gets the place of that field.
---@param settings table
---@param path string
---@param f function
---@return any ...  results of f
function blame.field(settings, path, f, ...)
  return call(function(message)
    return at_place(blame.place(settings, path), message)
  end, f, ...)
end

-- Leaves of settings that a text names, in its order: by their paths, or by their names alone when
-- they lie in the record `within`.
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

-- the fields that a text names and somebody set: {leaf, at}, arguments before recipes
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

-- who chose a record: its type, where it has one
local function chosen(settings, within)
  local typed = registry.get().root.fields[within].types
  return typed and blame.place(settings, within .. ".type") or tostring(settings.recipe)
end

-- lines that tell who set fields
local function setters(named, first)
  local lines = {}
  for i = first, #named do
    local leaf = named[i].leaf
    lines[#lines + 1] = ("\n  %s = %s set by %s"):format(leaf.path, kinds.show(leaf.raw),
      named[i].at)
  end
  return table.concat(lines)
end

--- Call f with the values of a record; an error gets the places of the fields that its text names,
-- arguments before recipes, or the place of the record's type, or the recipe, when it names none.
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

--- Call f with settings whose records stand in the place of others; an error names the others, as
-- recipes and arguments have them.
---@param settings table
---@param moved table  as settings.with takes it
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

--- Call f, which compares something else with the values of a record; below an error stands who set
-- the fields that its text names. Its beginning is left to what f compares them with.
---@param settings table
---@param within string  the record
---@param f function
---@return any ...  results of f
function blame.beside(settings, within, f, ...)
  return call(function(message)
    return message .. setters(set_in(settings, message, within), 1)
  end, f, ...)
end

return blame
