--- Stages: `stages = { {name = "a", recipe = "./a", fields...}, ... }`. The layers of a stage are,
-- weakest first: the ancestors of the file with the list, the stage's recipe, the file with the
-- list and the recipes that extend it, the stage's entry, key=value, stages.NAME.key=value. A file
-- that the stage's recipe also inherits counts once, below that recipe. Each stage bakes to its own
-- settings; the outer settings have their names and hashes. Only `load` is not passed on: in the
-- outer recipe and as key=value it says where the whole series continues. Ref: recipes.md 8.
-- @module moonreel.settings.stages
local fault = require "moonreel.recipe.fault"
local files = require "moonreel.recipe.files"
local layer = require "moonreel.recipe.layer"
local loader = require "moonreel.recipe.loader"
local place = require "moonreel.recipe.place"

local stages = {}

-- Checks one entry of the list.
local function read_entry(i, entry, list_place, seen)
  local p = type(entry) == "table" and place.of_table(entry) or list_place
  if type(entry) ~= "table" or getmetatable(entry) ~= nil then
    fault.at(p, "stages[%d]: expected {name = ..., recipe = ..., fields}, got %s", i, type(entry))
  end
  local name = entry.name
  if type(name) ~= "string" or not name:match("^[%w_-]+$") then
    fault.at(p, "stages[%d].name: expected text of letters, digits, - and _, got %s",
      i, tostring(name))
  end
  if seen[name] then
    fault.at(p, "stages[%d].name: '%s' is the name of an earlier stage", i, name)
  end
  seen[name] = true
  if entry.recipe ~= nil and type(entry.recipe) ~= "string" then
    fault.at(p, "stages[%d].recipe: expected the name of a recipe, got %s", i, type(entry.recipe))
  end
  return { name = name, recipe = entry.recipe, place = p,
    body = place.without(entry, { name = true, recipe = true }) }
end

--- Takes the list out of a recipe's layers.
---@param layers table[]  {write, shown, file}
---@return table[]|nil entries  {name, recipe, place, body, file}; place: of the list, layer: the
---   layer with it
function stages.take(layers)
  local entries
  for _, one in ipairs(layers) do
    local write = one.write.children.stages
    one.write.children.stages = nil
    one.names_stages = write ~= nil
    if write and (write.tag == "none" or write.tag == "remove") then
      entries = nil
    elseif write then
      if write.tag ~= "leaf" or type(write.value) ~= "table"
          or getmetatable(write.value) ~= nil then
        fault.at(write.place, "stages: expected a list of {name = ..., recipe = ..., fields}")
      end
      local seen = {}
      entries = { place = write.place, layer = one }
      for i, entry in ipairs(write.value) do
        entries[i] = read_entry(i, entry, write.place, seen)
        entries[i].file = one.file
      end
      if #entries == 0 then
        fault.at(write.place, "stages: the list is empty; try: leave it out")
      end
    end
  end
  return entries
end

--- `stages.NAME.key` of the command line: NAME and key, or nil.
function stages.split(key)
  return key:match("^stages%.([^.]+)%.(.+)$")
end

--- The entry with this name; a usage error names the others.
function stages.find(entries, name, argument)
  local names = {}
  for i, entry in ipairs(entries or {}) do
    if entry.name == name then
      return entry
    end
    names[i] = entry.name
  end
  local near = require("moonreel.text.nearest")(name, names)
  fault.usage("%s: there is no stage '%s'%s; %s", argument, name,
    near and (", did you mean '" .. near .. "'?") or "",
    #names > 0 and "expected one of " .. table.concat(names, ", ") or "the recipe has no stages")
end

-- layers of the recipe in an entry, strongest first; a file that the outer recipe also read keeps
-- its layer
local function recipe_layers(files_read, outer, entry)
  local known = {}
  for _, one in ipairs(outer) do
    known[one.file.id] = one
  end
  local file = files.from(entry.recipe, entry.file, place.text(entry.place))
  local line = {}
  for _, part in ipairs(files_read:layers(file)) do
    local one = known[part.id]
    if not one then
      one = { write = layer.of_recipe(part.body, part.shown), shown = part.shown, file = part.file }
      stages.take { one }
    end
    if one.names_stages then
      fault.at(entry.place, "stages: the recipe '%s' has stages itself, and stages cannot be "
        .. "nested; try: list its stages here",
        entry.recipe)
    end
    table.insert(line, 1, one)
  end
  return line
end

--- The layers of one stage.
---@param files_read table   the loader of this bake
---@param outer table[]   layers of the outer recipe, without `stages`
---@param entries table   from stages.take
---@param entry table     one of these
---@return table[] layers  weakest first
function stages.layers(files_read, outer, entries, entry)
  local line = entry.recipe and recipe_layers(files_read, outer, entry) or {}
  local inherited = {}
  for _, one in ipairs(line) do
    inherited[one] = true
  end
  -- strongest first: the outer recipe down to the file with the list, and the ancestors of that
  -- file
  local above, below = {}, {}
  local part = above
  for i = #outer, 1, -1 do
    local one = outer[i]
    one.write.children.load = nil
    if part == below or not inherited[one] then
      part[#part + 1] = one
    end
    if one == entries.layer then
      part = below
    end
  end
  local out = { { write = layer.of_recipe(entry.body, entry.place.file),
    shown = entry.place.file, file = entry.file } }
  table.move(above, 1, #above, 2, out)
  local rest = loader.merge({ line, below }, place.text(entry.place))
  table.move(rest, 1, #rest, #out + 1, out)
  -- the result goes from the weakest to the strongest
  for i = 1, #out // 2 do
    out[i], out[#out + 1 - i] = out[#out + 1 - i], out[i]
  end
  return out
end

return stages
