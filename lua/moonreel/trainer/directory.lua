--- The directory of a run: created or continued, locked, with recipe and settings in it, and a log
-- of each rank.
-- @module moonreel.trainer.directory
local base = require "moonreel.core.base"
local life = require "moonreel.core.life"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local blame = require "moonreel.settings.blame"
local check = require "moonreel.trainer.check"

local directory = {}

-- The directory of a new run: the next number, or that of the stage, which a killed launch may have
-- left without a checkpoint. If it is new, also the folders that were made around it.
local function fresh_directory(r)
  local s = r.settings
  if not r.stage then
    return blame.field(s, "outputs", run.create, s.outputs, r.name)
  end
  local made = not base.exists(r.stage.dir) and {} or nil
  local dir = run.stage(r.stage.outer, r.stage.name)
  os.remove(dir .. "/quarantine.jsonl")
  return dir, made
end

--- Writes recipe and settings into the directory.
---@param r mr.Run
function directory.write_settings(r)
  base.replace_file(r.dir .. "/recipe.lua", r.settings:to_recipe())
  base.replace_file(r.dir .. "/settings.json", r.settings:to_json())
end

-- the journal of a run names the working directory
local function check_place()
  local here = process.real_path "."
  if not utf8.len(here) then
    base.raise("MR_E_USAGE", ("the working directory '%s' is not UTF-8; try: cd to a folder whose "
      .. "path is"):format(base.printable(here)))
  end
end

-- locks the directory and writes recipe and settings into it
local function take_directory(r)
  local found = r.found
  check_place()
  -- a stage continues in its directory only as the same stage
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

--- Takes or makes the run directory, of which the first rank becomes the only writer.
function directory.take(r)
  local taken = r.team:first(function() return take_directory(r) end)
  r.dir, r.continues, r.fence = taken.dir, taken.continues, taken.fence
  life.set_run(taken.id, process.real_path(taken.dir), taken.fence)
  r.journal = r.journal or check.silent
  r.progress:keep_in(("%s/log/rank-%d.log"):format(r.dir, r.team.rank))
end

return directory
