--- Finds the file of a recipe name. A file is {id, shown, text, shipped}: the id is the real path,
-- `shown` is the path that messages print. Ref: recipes.md 1.
-- @module moonreel.recipe.files
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"
local app = require "moonreel.app"
local fault = require "moonreel.recipe.fault"

local files = {}

-- The shortest form of a path: "a/./b/../c" becomes "a/c". A leading ".." is kept.
local function clean(path)
  local rooted, parts = path:sub(1, 1) == "/", {}
  for part in path:gmatch("[^/]+") do
    if part == ".." and #parts > 0 and parts[#parts] ~= ".." then
      parts[#parts] = nil
    elseif part ~= "." then
      parts[#parts + 1] = part
    end
  end
  return (rooted and "/" or "") .. table.concat(parts, "/")
end

local function with_extension(path)
  return path:match("%.lua$") and path or path .. ".lua"
end

local function on_disk(path)
  path = clean(with_extension(path))
  if not base.exists(path) then
    return nil
  end
  local text = base.read_file(path)
  -- some editors write a byte order mark
  text = text:gsub("^\xEF\xBB\xBF", "")
  return { id = process.real_path(path), shown = path, text = text, shipped = false }
end

local function shipped(path)
  path = clean(with_extension(path))
  if path:sub(1, 8) ~= "recipes/" then
    return nil
  end
  local text = app.embedded(path)
  return text and { id = "shipped:" .. path, shown = path, text = text, shipped = true }
end

-- Looks a name up in the folders of MOONREEL_RECIPES, then among the shipped recipes.
local function by_name(name)
  for folder in (os.getenv("MOONREEL_RECIPES") or ""):gmatch("[^:]+") do
    local found = on_disk(folder .. "/" .. name)
    if found then
      return found
    end
  end
  return shipped("recipes/" .. name) or shipped(name)
end

local function shipped_names()
  local names = {}
  for _, path in ipairs(app.embedded_list()) do
    names[#names + 1] = path:match("^recipes/(.*)%.lua$")
  end
  return names
end
files.shipped_names = shipped_names

--- What a shipped recipe says about itself: the first sentence of its head. A head with three
-- dashes marks a file that other files extend or require.
---@param name string
---@return string sentence
---@return boolean helper
function files.about(name)
  local words, helper = {}, nil
  for line in shipped("recipes/" .. name).text:gmatch "[^\n]*" do
    local dashes, text = line:match "^(%-%-+)%s*(.*)$"
    if not dashes then
      break
    end
    helper = helper or (dashes == "---" and "yes" or "no")
    words[#words + 1] = text
  end
  local head = table.concat(words, " ")
  return head:match "^(.-%.)%s+%u" or head, helper == "yes"
end

-- the suggestion when a name is a folder with a recipe in it, as the folder of a run
local function within(name)
  local inner = name:gsub("/+$", "") .. "/recipe"
  return base.exists(inner .. ".lua") and "; try: " .. inner or ""
end

local function not_found(name, where, may_be)
  local near = require("moonreel.text.nearest")(name:gsub("%.lua$", ""):gsub("^recipes/", ""),
    shipped_names())
  return fault.new("MR_E_RECIPE", ("%sno %s '%s'%s; tried: %s%s, MOONREEL_RECIPES, the shipped "
    .. "recipes%s"):format(where and where .. ": " or "", may_be and may_be.what or "recipe",
      name, near and (", did you mean '" .. near .. "'?") or "",
      may_be and may_be.path .. ", " or "", with_extension(name),
      within(name)))
end

--- The file that a name in a recipe or helper means.
---@param name string
---@param from table  the file that contains the name; "./x" and "../x" are relative to it
---@return table file
function files.from(name, from, where)
  if name:match("^%.%.?/") then
    local folder = from.shown:match("^(.*)/[^/]*$") or "."
    local path = folder .. "/" .. name
    local found
    if from.shipped then
      found = shipped(path)
    else
      found = on_disk(path)
    end
    if not found then
      fault.recipe("%s: there is no file %s; './' and '../' are relative to the recipe's own "
        .. "folder",
        where, clean(with_extension(path)))
    end
    return found
  end
  local found = name:sub(1, 1) == "/" and on_disk(name) or by_name(name)
  if not found then
    error(not_found(name, where), 0)
  end
  return found
end

--- The file that the user names: a path from the working directory, or a recipe's name. A name that
-- begins with ./, ../ or / is only a path: if its file is missing, the shipped recipes are not
-- searched.
---@param name string
---@param may_be table|nil  for the message, if the word may mean more than a recipe: {what =
---   "recipe or run", path: where else was searched}
---@return table file
function files.root(name, may_be)
  if name:match("%.py$") then
    local names = require("moonreel.recipe.twins").of(name, shipped_names())
    fault.usage("'%s' is a recipe of the reference; moonreel's are Lua%s", name,
      #names > 0 and "; try: " .. table.concat(names, ", ") or "; try: moonreel help recipes")
  end
  local found = on_disk(name)
  if not found and name:match("^%.?%.?/") then
    fault.recipe("there is no file %s%s; a name without ./ is looked up among the shipped "
      .. "recipes as well%s",
      with_extension(name), may_be and (" or %s, for a %s"):format(may_be.path, may_be.what) or "",
      within(name))
  end
  found = found or by_name(name)
  if not found then
    error(not_found(name, nil, may_be), 0)
  end
  return found
end

return files
