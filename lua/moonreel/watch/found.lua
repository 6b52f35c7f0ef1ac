--- Finds the checkpoints of a run for a watcher, in the order of their steps.
-- @module moonreel.watch.found
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local find = require "moonreel.runs.find"
local json = require "moonreel.core.json"
local pins = require "moonreel.watch.pins"

local found = {}

local Found = {}
Found.__index = Found

--- Creates a finder for the checkpoints of a run.
---@param run_dir string
---@param choice table  sets: sets whose pins count; last_step: only later checkpoints; every: only
---   multiples of this number; only_first_of_epoch: the first checkpoint of each epoch, and the
---   last one; pinned: only checkpoints that are kept for a set
---@return mr.WatchFound
function found.new(run_dir, choice)
  return setmetatable({ run = run_dir, choice = choice, first = {}, known = {} }, Found)
end

--- The bytes of the files in a folder. The number grows while files are copied into it.
---@param path string
---@return string
function found.size(path)
  local sizes = {}
  local good, names = pcall(base.list_dir, path)
  for i, name in ipairs(good and names or {}) do
    local file <close> = io.open(path .. "/" .. name, "rb")
    sizes[i] = name .. (file and file:seek "end" or 0)
  end
  return table.concat(sizes, " ")
end

-- id, manifest and epoch of a checkpoint; nil: the manifest is missing or incomplete
local function look(self, one)
  local good, text = pcall(base.read_file, one.path .. "/MANIFEST.json")
  if not good then
    return
  end
  one.id = base.hash128(text)
  local known = self.known[one.id]
  if not known then
    local whole, manifest = pcall(json.decode, text, one.path)
    if not whole or type(manifest) ~= "table" then
      one.id = nil
      return
    end
    known = { settings = manifest.settings,
      epoch = tonumber(tostring(manifest.sampler or ""):match "\nepoch (%d+)") or 0 }
    self.known[one.id] = known
  end
  one.settings, one.epoch = known.settings, known.epoch
end

-- the steps in ckpt/, also of folders without a manifest, which are still being copied
local function steps_of(dir)
  local list, seen = {}, {}
  local good, names = pcall(base.list_dir, dir .. "/ckpt")
  for _, name in ipairs(good and names or {}) do
    local step = math.tointeger(tonumber(name:match "^step%-(%d%d%d%d%d%d%d%d%d%d%d%d)$"))
    list[#list + 1], seen[step or false] = step, true
  end
  for _, step in ipairs(ckpt.steps(dir)) do
    list[#list + 1] = not seen[step] and step or nil
  end
  return list
end

-- all checkpoints of a part of the run
local function all_of(self, part)
  local list = {}
  for _, step in ipairs(self.choice.pinned and {} or steps_of(part.dir)) do
    list[#list + 1] = { step = step, path = ckpt.dir(part.dir, step) }
  end
  for _, set in ipairs(self.choice.sets) do
    for _, pin in ipairs(pins.list(part.dir, set.name)) do
      pin.set = set.name
      list[#list + 1] = pin
    end
  end
  for i, one in ipairs(list) do
    one.at, one.dir, one.stage = i, part.dir, part.stage
    look(self, one)
  end
  table.sort(list, function(a, b)
    if a.step ~= b.step then
      return a.step < b.step
    end
    return a.at < b.at
  end)
  return list
end

local function is_chosen(self, one, last)
  local c = self.choice
  if one.step <= (c.last_step or -1) or c.every and one.step % c.every ~= 0 then
    return false
  elseif c.only_first_of_epoch and one.id then
    local key = one.dir .. " " .. one.epoch
    self.first[key] = math.min(self.first[key] or one.step, one.step)
    return one.step == self.first[key] or last
  end
  return true
end

--- Lists the checkpoints that exist now.
---@param ended boolean  the run has ended, so the newest checkpoint is its last
---@return table[]       {step, path, dir: of the run or stage, stage, id: of its manifest, nil:
---   there is no manifest yet, settings: their text, epoch; pin, set: it is kept for this set}
function Found:list(ended)
  local chosen = {}
  for _, part in ipairs(find.parts(self.run)) do
    local all = all_of(self, part)
    for _, one in ipairs(all) do
      if is_chosen(self, one, ended and one.step == all[#all].step) then
        chosen[#chosen + 1] = one
      end
    end
  end
  return chosen
end

return found
