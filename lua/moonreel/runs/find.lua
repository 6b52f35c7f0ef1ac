--- Finds run directories: decides which folders are runs, which run a word means, and where a run
-- has its journals. A run may have started a moment ago, so one file is enough to recognize it.
-- @module moonreel.runs.find
local base = require "moonreel.core.base"
local nearest = require "moonreel.text.nearest"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local find = {}

-- each of these makes a folder a run
local MARKS <const> = { "journal.jsonl", "lock", "settings.json" }

--- The folder of runs if the command names none.
find.OUTPUTS = "outputs"

--- Is this folder the directory of a run?
---@param dir string
---@return boolean
function find.is_run(dir)
  for _, name in ipairs(MARKS) do
    if base.exists(dir .. "/" .. name) then
      return true
    end
  end
  return false
end

--- The last name of a path: "outputs/001-demo/" gives "001-demo", "." gives the name of this
-- folder.
---@param dir string
---@return string
function find.name(dir)
  local name = dir:gsub("/+$", ""):match("([^/]+)$") or dir
  if name == "." or name == ".." then
    name = (process.real_path(dir) or dir):match("([^/]+)$") or name
  end
  return name
end

--- The runs in a folder, or the folder itself if it is a run, in the order of their names.
---@param folder string
---@return table[] runs  {name, dir}; raises MR_E_USAGE if there is no such folder
function find.all(folder)
  if not base.exists(folder .. "/.") then
    base.raise("MR_E_USAGE", ("%s: no such folder; try: moonreel runs FOLDER, with the "
      .. "folder that `outputs` names in the recipe"):format(folder))
  end
  if find.is_run(folder) then
    return { { name = find.name(folder), dir = folder } }
  end
  local list = {}
  for _, name in ipairs(base.list_dir(folder)) do
    local dir = folder .. "/" .. name
    if find.is_run(dir) then
      list[#list + 1] = { name = name, dir = dir }
    end
  end
  return list
end

-- runs in a folder whose number or name is the word
local function in_outputs(word, outputs)
  local list, names = {}, {}
  if not base.exists(outputs .. "/.") then
    return list, names
  end
  local wanted = math.tointeger(tonumber(word))
  for _, one in ipairs(find.all(outputs)) do
    local number, rest = one.name:match("^(%d+)%-(.*)$")
    names[#names + 1] = one.name
    if one.name == word or rest == word
        or wanted and math.tointeger(tonumber(number)) == wanted then
      list[#list + 1] = one
    end
  end
  return list, names
end

-- the only run of a list; raises an error if there are several
local function only(list, word, who)
  if #list > 1 then
    for i, one in ipairs(list) do
      list[i] = one.name
    end
    base.raise("MR_E_USAGE", ("%s'%s' is the name of several runs: %s; try: one of these"):format(
      who, word, table.concat(list, ", ")))
  end
  return list[1] and list[1].dir
end

--- The directory of a run, by its path, by its full name in a folder of runs, or, if no recipe has
-- the name, by its number or the rest of its name there; nil for other words.
---@param word string
---@param outputs string|nil  the folder, default outputs
---@return string|nil dir     raises MR_E_USAGE if several runs match
function find.named(word, outputs)
  for _, dir in ipairs { word, (outputs or find.OUTPUTS) .. "/" .. word } do
    if word ~= "" and find.is_run(dir) then
      return (dir:gsub("(.)/+$", "%1"))
    end
  end
  local list = in_outputs(word, outputs or find.OUTPUTS)
  local is_recipe = #list > 0 and pcall(require("moonreel.recipe.files").root, word)
  return not is_recipe and only(list, word, "") or nil
end

--- The directory of the run that a word means: a path, or the full name, the number or the rest of
-- the name of a run in outputs/ ("001-demo", "1", "demo").
---@param word string
---@param command string  its name, for the error
---@param outputs? string a folder of runs other than outputs/
---@return string dir     raises MR_E_USAGE if no run or more than one run matches
function find.one(word, command, outputs)
  if find.is_run(word) then
    return (word:gsub("(.)/+$", "%1"))
  end
  local list, names = in_outputs(word, outputs or find.OUTPUTS)
  if #list > 0 then
    return only(list, word, command .. ": ")
  end
  local near = nearest(word, names)
  base.raise("MR_E_USAGE", ("%s: '%s' is not a run directory: it has no %s%s; try: moonreel runs, "
    .. "which lists the runs in outputs/"):format(command, word, table.concat(MARKS, ", "),
    near and (", did you mean '" .. near .. "'?") or ""))
end

--- The parts of a run with their own journal: the run itself, or its stages that have begun, oldest
-- first.
---@param dir string
---@return table[]  {dir, stage = name of the stage or nil}
function find.parts(dir)
  local good, stages = pcall(run.stages, dir)
  if not good or not stages then
    return { { dir = dir } }
  end
  local parts = {}
  for i, one in ipairs(stages) do
    parts[i] = { dir = one.path, stage = one.name }
  end
  return parts
end

return find
