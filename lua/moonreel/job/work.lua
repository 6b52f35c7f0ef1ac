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
---@field progress table    prints what happens, after the settings are checked
local Work = {}
Work.__index = Work

--- Begins a job: checks the settings that training also needs, and remembers a first signal.
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

--- Registers an object that is closed at the end, newest first.
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

--- Opens the index of dataset.data_path.
---@param held boolean|nil  true: only the samples that are held back, if there are any
function Work:open_index(held)
  self.index = self:keep(blame.field(self.settings, "dataset.data_path", samples.open_index, self,
    held))
end

--- Refuses fields that the job would ignore.
---@param names string[]
function Work:refuse(names)
  for _, name in ipairs(names) do
    if self.settings[name] then
      blame.raise(self.settings, name, "MR_E_RECIPE", "%s: job = %s does not read it; try: leave "
        .. "it out", name, self.settings.job)
    end
  end
end

--- Writes a file into a run directory that is made for it.
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

-- before anything is closed, so that no signal disturbs that
local function why_not(problem)
  signal.raises(false)
  return team.traced(problem)
end

--- Runs a part of the job that the first signal ends at any point, and reports the end.
---@param f fun(self: mr.Work): any
---@param keep (fun(self: mr.Work): string|nil)|nil  saves what there is, and returns a text about
---   it
---@return any result             of f; nil: a signal came
---@return integer|nil exit code  after a signal
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
