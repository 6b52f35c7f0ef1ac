--- The checkpoint writer of a run, and the check that the disk has space for its files.
-- @module moonreel.trainer.writer
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local ckpt = require "moonreel.ckpt"
local cadence = require "moonreel.trainer.cadence"
local progress = require "moonreel.trainer.progress"
local state = require "moonreel.trainer.state"

local writer = {}

local NEVER <const> = 0x7fffffff -- the run decides how many failed saves it accepts

-- a note if a rollback is meant to go further back than checkpoints are kept
local function tell_reach(r)
  local s = r.settings
  local kept = ckpt.kept(s.keep_n_latest)
  local every = cadence.interval(s)
  local reach = (kept - 1) * every
  if s.spike.action == "rollback" and reach < s.spike.back_steps then
    r.notes[#r.notes + 1] = ("spike.back_steps = %d: the %d kept checkpoints go back at "
      .. "least %d steps; try: keep_n_latest=%d"):format(s.spike.back_steps, kept, reach,
      -(-s.spike.back_steps // every) + 1)
  end
end

--- The checkpoint writer of the run, one of those that write each checkpoint together.
---@param r mr.Run
---@param writers integer
---@return mr.Saver
function writer.new(r, writers)
  local kept = ckpt.kept(r.settings.keep_n_latest)
  local behind = writers == r.team.size and cadence.buffers(r.settings) > 0
  -- moonreel.trainer.saves decides how often a save may fail
  return ckpt.saver(r.dir, {lock = r.lock, keep = math.tointeger(kept) or -1,
    intervals_max = NEVER, buffer_bytes = behind and 0 or cadence.WINDOW_BYTES,
    deadline_s = r.settings.ckpt_deadline, rank = r.team.rank, ranks = writers,
    fence = not r.team.leads and r.fence or nil})
end

-- The older checkpoint is removed only when the newer one is complete. So a disk without space for
-- two checkpoints would end the run at its first or second save. Checkpoints of this run that exist
-- already will make room.
local function check_disk(r)
  local bytes = r.team:sum{state.saved_bytes(r.exec, r.pipe.params, r.share)}[1]
  r.saved_bytes = bytes
  r.team:first(function()
    local free, there = base.free_bytes(r.dir), #ckpt.steps(r.dir)
    if free and free + there * bytes < 2 * bytes then
      base.raise("MR_E_IO", ("%s: %s are free, and two checkpoints of %s take %s: the newer one is "
        .. "written before the older one is removed; try: outputs=FOLDER on another disk"):format(
        r.dir,
          progress.bytes(free), progress.bytes(bytes), progress.bytes(2 * bytes)))
    end
    return {}
  end)
end

-- Checks that the snapshots of all ranks of a host fit its memory.
local function check_memory(r, buffers)
  local names, need = r.team:texts(os.getenv "MOONREEL_HOST"
    or base.read_file("/proc/sys/kernel/hostname"):match "%S*"), 0
  for i, row in ipairs(r.team:all{state.saved_bytes(r.exec, r.pipe.params, r.share)}) do
    need = need + (names[i] == names[r.team.rank + 1] and buffers * row[1] or 0)
  end
  r.team:try(function()
    local host <close> = E.device("cpu", 1)
    local free = host:memory()
    if need > free then
      blame.raise(r.settings, "async_io", "MR_E_MEMORY", "async_io = true: %d checkpoint%s in host "
        .. "memory, from which they are written while training continues, take %s of %s; %s are "
        .. "free\n  try: async_io=false, and steps wait while a checkpoint goes through %s",
        buffers, buffers > 1 and "s" or "", progress.bytes(need), names[r.team.rank + 1],
        progress.bytes(free), progress.bytes(cadence.WINDOW_BYTES))
    end
  end)
end

--- Starts the checkpoint writer, with its buffers if it saves during the run.
function writer.open(r)
  check_disk(r)
  r.saver = r:keep(writer.new(r, r.team.size))
  tell_reach(r)
  local buffers = cadence.buffers(r.settings)
  if buffers > 0 then
    check_memory(r, buffers)
    r.saver:prepare(state.rows(r.exec, r.pipe.params, r.share), buffers)
  end
end

return writer
