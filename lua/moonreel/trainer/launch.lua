--- The settings of a launch: its recipe and each stage, with the arguments of its own command line
-- and, below them, those of the run that it continues. The latter come from the checkpoint that is
-- really continued: the newest one that opens, unless the run that opens goes back to an older one.
-- @module moonreel.trainer.launch
local ckpt = require "moonreel.ckpt"
local resume = require "moonreel.settings.resume"
local settings = require "moonreel.settings"

local launch = {}

---@class mr.Launch
---@field own table[]     {key, text, argument} of this command line
---@field words table     settings with these arguments only
---@field hash string    hash of those, without the initial weights. Hosts compare it. A restart
---   continues from a checkpoint in place of the weights
---@field all table[]     also the arguments of the run that is continued, weakest first
---@field settings table  with all arguments; for a recipe with stages, its outer settings
---@field list table[]    {name, settings} of each stage, or of the recipe as its only part
---@field taken string    the arguments taken from the run that is continued, as typed; "": no
---   arguments
---@field note string|nil a note about them
local Launch = {}
Launch.__index = Launch

-- bakes all parts with these arguments; the tables of the parts stay the same
local function bake(self, arguments)
  local whole = settings.bake(self.recipe, arguments)
  local parts = { { settings = whole } }
  for i, one in ipairs(whole.stages or {}) do
    parts[i] = { name = one.name,
      settings = settings.bake(self.recipe, arguments, { stage = one.name }) }
  end
  self.all, self.settings = arguments, whole
  for i, part in ipairs(parts) do
    self.list[i] = self.list[i] or {}
    self.list[i].name, self.list[i].settings = part.name, part.settings
  end
end

-- The newest checkpoint that `load` names and that opens, or nil. The step that opens it reports
-- what is wrong with it.
local function glance(s)
  local good, source = pcall(function()
    local found = ckpt.resolve(s.load, s.outputs, require("moonreel.trainer.check").name(s))
    return found and ckpt.glance(found)
  end)
  return good and source or nil
end

--- Takes the arguments of the command line that made a checkpoint.
---@param source mr.Checkpoint
---@return string|nil note  nil: nothing has changed
function Launch:take(source)
  if not (source.manifest and source.manifest.settings) then
    return nil
  end
  local earlier = settings.from_json(source.manifest.settings, source.path)
  local rows = resume.taken(earlier, self.words, self.own, self.command)
  local texts = {}
  for i, one in ipairs(rows) do
    texts[i] = one.argument
  end
  local taken = table.concat(texts, " ")
  if taken == self.taken then
    return nil
  end
  local before = self.taken
  self.taken = taken
  local good, problem = pcall(bake, self, table.move(self.own, 1, #self.own, #rows + 1, rows))
  if not good then
    bake(self, self.own)
  end
  return ("note: the run that is continued was started with %s%s"):format(
    taken == "" and "no arguments that apply here" or taken,
    not good and ", which cannot be applied: " .. tostring(problem)
    or before ~= "" and (", according to %s; this applies instead of %s"):format(source.path,
    before)
    or ", which apply again; arguments given now win")
end

--- Compares the arguments taken here with those of the first rank: another host may see another
-- folder.
---@param team mr.Team
function Launch:agree(team)
  local first = team:first(function() return { taken = self.taken, all = self.all } end)
  if first.taken ~= self.taken then
    self.taken = first.taken
    bake(self, first.all)
  end
end

--- Settings of one part.
---@param name string|nil  name of the stage; nil: the recipe has no stages
---@return table settings
function Launch:part(name)
  for _, one in ipairs(self.list) do
    if one.name == name then
      return one.settings
    end
  end
end

--- Bakes a recipe for a launch.
---@param recipe string
---@param own table[]    {key, text, argument} of the command line
---@param command table  the command of these arguments
---@return mr.Launch
function launch.new(recipe, own, command)
  local self = setmetatable({ recipe = recipe, own = own, command = command, list = {},
    taken = "" }, Launch)
  bake(self, own)
  self.words, self.hash = self.settings, self.settings.hash
  if self.words.ckpt_path then
    local without = { key = "ckpt_path", text = "none", argument = "ckpt_path=none" }
    self.hash = settings.bake(recipe, table.move(own, 1, #own, 1, { [#own + 1] = without })).hash
  end
  local source <close> = self.words.load and glance(self.words) or nil
  self.note = source and self:take(source)
  return self
end

return launch
