--- Code shared by jobs: resources and their release, name and place of the results.
-- @module moonreel.job.work
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local run = require "moonreel.run"
local samples = require "moonreel.trainer.samples"
local check = require "moonreel.trainer.check"
local signal = require "moonreel.core.signal"
local team = require "moonreel.comm.team"

local work = {}

---@class mr.Work
---@field settings table    baked
---@field write function?   takes each line
---@field progress table    says what happens, once the settings are checked
local Work = {}
Work.__index = Work

--- Begin: the settings are what training needs of them, a first signal is remembered.
---@param settings table  baked
---@param given table     write
---@return mr.Work        with <close>
function work.new(settings, given)
  local self = setmetatable({ settings = settings, write = given.write, kept = {}, notes = {},
    team = team.new(), catches = signal.catch() }, Work)
  local good, problem = pcall(check.run, self)
  if not good then
    self:__close()
    error(problem, 0)
  end
  return self
end

--- Close this at the end, newest first.
function Work:keep(object)
  self.kept[#self.kept + 1] = object
  return object
end

function Work:__close()
  if self.catches then
    signal.release()
  end
  for i = #self.kept, 1, -1 do
    self.kept[i]:close()
  end
end

--- Open the index of dataset.data_path.
---@param held boolean|nil  of the samples that are held back alone, where some are
function Work:open_index(held)
  self.index = self:keep(blame.field(self.settings, "dataset.data_path", samples.open_index, self,
    held))
end

--- Refuse fields that the job would ignore.
---@param names string[]
function Work:refuse(names)
  for _, name in ipairs(names) do
    if self.settings[name] then
      blame.raise(self.settings, name, "MR_E_RECIPE", "%s: job = %s does not read it; try: leave "
        .. "it out", name, self.settings.job)
    end
  end
end

--- Write a file into a run directory that is made for it.
---@param name string  of the file
---@param text string
---@return string path
function Work:save(name, text)
  local s = self.settings
  self.dir = self.dir or blame.field(s, "outputs", run.create, s.outputs, self.name)
  base.replace_file(self.dir .. "/recipe.lua", s:to_recipe())
  base.replace_file(self.dir .. "/settings.json", s:to_json())
  base.replace_file(self.dir .. "/" .. name, text)
  return self.dir .. "/" .. name
end

-- before anything closes, so that no signal disturbs that
local function why_not(problem)
  signal.raises(false)
  return team.traced(problem)
end

--- Do a part of the job that the first signal ends wherever it stands, and tell of that.
---@param f fun(self: mr.Work): any
---@param keep (fun(self: mr.Work): string|nil)|nil  saves what there is, and says what it saved
---@return any result             of f; nil: a signal came
---@return integer|nil exit code  then
function Work:until_stopped(f, keep)
  local good, result = xpcall(function()
    signal.raises(true)
    local all = f(self)
    signal.raises(false)
    return all
  end, why_not)
  local stop = signal.pending()
  if stop and (good or type(result) == "table" and result.code == "MR_E_STOPPED") then
    self.progress:say("stop requested: " .. (keep and keep(self) or "nothing is written"))
    return nil, 128 + stop
  elseif not good then
    error(result, 0)
  end
  return result
end

return work
