--- The checkpoint writer of a run, and whether the disk has room for what it writes.
-- @module moonreel.trainer.writer
local ckpt = require "moonreel.ckpt"
local base = require "moonreel.core.base"
local cadence = require "moonreel.trainer.cadence"
local progress = require "moonreel.trainer.progress"
local state = require "moonreel.trainer.state"

local writer = {}

local NEVER <const> = 0x7fffffff -- saves in a row without a commit, of which none ends the run

-- a rollback may be meant to go further back than checkpoints are kept
local function tell_reach(r)
  local s = r.settings
  local kept = ckpt.kept(s.keep_n_latest)
  local every = cadence.interval(s)
  local reach = (kept - 1) * every
  if s.spike.action == "rollback" and reach < s.spike.back_steps then
    r.notes[#r.notes + 1] = ("spike.back_steps = %d: the %d checkpoints that are kept go back at "
      .. "least %d steps; try: keep_n_latest=%d"):format(s.spike.back_steps, kept, reach,
      -(-s.spike.back_steps // every) + 1)
  end
end

--- A checkpoint writer of the run, one of so many that write each checkpoint together.
---@param r mr.Run
---@param writers integer
---@return mr.Saver
function writer.new(r, writers)
  local kept = ckpt.kept(r.settings.keep_n_latest)
  -- how often a save may fail is for moonreel.trainer.saves to say
  return ckpt.saver(r.dir, {lock = r.lock, keep = math.tointeger(kept) or -1,
    intervals_max = NEVER,
    deadline_s = r.settings.ckpt_deadline, rank = r.team.rank, ranks = writers,
    fence = not r.team.leads and r.fence or nil})
end

-- A disk that cannot hold two checkpoints loses the run at its first or second save: the older one
-- goes when the newer one is there. Those of this run that are there already make room.
local function check_disk(r)
  local bytes = r.team:sum{state.saved_bytes(r.exec, r.pipe.params, r.share)}[1]
  r.saved_bytes = bytes
  r.team:first(function()
    local free, there = base.free_bytes(r.dir), #ckpt.steps(r.dir)
    if free and free + there * bytes < 2 * bytes then
      base.raise("MR_E_IO", ("%s: %s are free, and two checkpoints of %s take %s: the newer one is "
        .. "written before the older one goes; try: outputs=FOLDER on another disk"):format(r.dir,
          progress.bytes(free), progress.bytes(bytes), progress.bytes(2 * bytes)))
    end
    return {}
  end)
end

--- Start the checkpoint writer, with its buffers where it will save on the way.
function writer.open(r)
  check_disk(r)
  r.saver = r:keep(writer.new(r, r.team.size))
  tell_reach(r)
  local buffers = cadence.buffers(r.settings)
  if buffers > 0 then
    state.with_rows(r.exec, r.pipe.params, function(rows) r.saver:prepare(rows, buffers) end,
      r.share)
  end
end

return writer
