--- The directory of a run: made or gone on in, locked, with recipe and settings in it, and what
-- each rank says.
-- @module moonreel.trainer.directory
local base = require "moonreel.core.base"
local life = require "moonreel.core.life"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local blame = require "moonreel.settings.blame"
local check = require "moonreel.trainer.check"

local directory = {}

-- the directory of a fresh run: the next number, or the stage's own, which a killed launch may have
-- left without a checkpoint
local function fresh_directory(r)
  local s = r.settings
  if not r.stage then
    return blame.field(s, "outputs", run.create, s.outputs, r.name), true
  end
  local made = not base.exists(r.stage.dir)
  local dir = run.stage(r.stage.outer, r.stage.name)
  os.remove(dir .. "/quarantine.jsonl")
  return dir, made
end

--- Write recipe and settings into the directory.
---@param r mr.Run
function directory.write_settings(r)
  base.replace_file(r.dir .. "/recipe.lua", r.settings:to_recipe())
  base.replace_file(r.dir .. "/settings.json", r.settings:to_json())
end

-- the directory, locked, with recipe and settings in it
local function take_directory(r)
  local found = r.found
  -- only a stage itself goes on in its directory
  r.continues = found ~= nil and found.continues and not r.scratch and found.run ~= nil
    and (r.stage and found.run == r.stage.dir or not r.stage and not run.outer(found.run))
  if r.continues then
    r.dir = found.run
  else
    r.dir, r.made = fresh_directory(r)
    directory.write_settings(r)
  end
  r.lock = r:keep(run.lock(r.dir))
  r.journal = r:keep(run.journal(r.dir))
  return {dir = r.dir, continues = r.continues, fence = r.lock:fence(), id = r.lock:id()}
end

--- Take or make the run directory and become its one writer: the first rank does.
function directory.take(r)
  local taken = r.team:first(function() return take_directory(r) end)
  r.dir, r.continues, r.fence = taken.dir, taken.continues, taken.fence
  life.set_run(taken.id, process.real_path(taken.dir), taken.fence)
  r.journal = r.journal or check.silent
  r.progress:keep_in(("%s/log/rank-%d.log"):format(r.dir, r.team.rank))
end

return directory
