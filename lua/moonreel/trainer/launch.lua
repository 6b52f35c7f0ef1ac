--- The settings of a launch: its recipe and each stage, with the arguments of its own command line
-- and, below them, those of the run that it continues. The latter come from the checkpoint that is
-- really continued: the newest one that opens, unless the opened run had gone back to an older one.
-- @module moonreel.trainer.launch
local ckpt = require "moonreel.ckpt"
local resume = require "moonreel.settings.resume"
local settings = require "moonreel.settings"

local launch = {}

---@class mr.Launch
---@field own table[]     {key, text, argument} of this command line
---@field words table     settings under these alone
---@field hash string    of those, whatever weights they begin with: what hosts compare; a restart
---   goes on from a checkpoint in place of the weights
---@field all table[]     with those of the run that is continued, weakest first
---@field settings table  under all of them; of a recipe with stages, those around them
---@field list table[]    {name, settings} of each stage, or of the recipe as its only part
---@field taken string    what was taken of the run that is continued, as typed; "": nothing
---@field note string|nil what to say about it
local Launch = {}
Launch.__index = Launch

-- settings of all parts under these arguments; parts stay the same tables
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

-- the newest checkpoint that `load` names and that opens, or nil: what is wrong with one is said by
-- the step that opens it
local function glance(s)
  local good, source = pcall(function()
    local found = ckpt.resolve(s.load, s.outputs, require("moonreel.trainer.check").name(s))
    return found and ckpt.glance(found)
  end)
  return good and source or nil
end

--- Take what the command line had set that made a checkpoint.
---@param source mr.Checkpoint
---@return string|nil note  nil: nothing else than so far
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
    taken == "" and "nothing that counts here" or taken,
    not good and ", which does not count: " .. tostring(problem)
    or before ~= "" and (", by %s: this counts, not %s"):format(source.path, before)
    or ", which counts again below what is given now")
end

--- Hold what was taken to what the first rank took: another host may see another folder.
---@param team mr.Team
function Launch:agree(team)
  local first = team:first(function() return { taken = self.taken, all = self.all } end)
  if first.taken ~= self.taken then
    self.taken = first.taken
    bake(self, first.all)
  end
end

--- Settings of one part.
---@param name string|nil  of the stage; nil: the recipe has none
---@return table settings
function Launch:part(name)
  for _, one in ipairs(self.list) do
    if one.name == name then
      return one.settings
    end
  end
end

--- Bake a recipe for a launch.
---@param recipe string
---@param own table[]    {key, text, argument} of the command line
---@param command table  that they were given to
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
