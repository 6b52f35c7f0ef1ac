--- Checkpoints of a run: taken between two steps, written during later ones, and used for
-- rollbacks.
-- @module moonreel.trainer.saves
local base = require "moonreel.core.base"
local cadence = require "moonreel.trainer.cadence"
local ckpt = require "moonreel.ckpt"
local json = require "moonreel.core.json"
local life = require "moonreel.core.life"
local renderings = require "moonreel.trainer.renderings"
local samples = require "moonreel.trainer.samples"
local setup = require "moonreel.trainer.setup"
local state = require "moonreel.trainer.state"
local weights = require "moonreel.trainer.weights"
local writer = require "moonreel.trainer.writer"

local saves = {}

--- Seconds before a failed save is tried again; doubled each time, up to the longest.
saves.pause_s = 1

local LONGEST_PAUSE_S <const> = 30
local FAILED_MOST <const> = 3 -- failed saves in a row, after which the run waits for the next one
local TENSORS_MOST = 8 -- names of tensors with non-finite values in the journal

-- writes the events of a saver into journal and log
local function tell(r, saver)
  local event = saver:poll()
  while event do
    r.journal:append{kind = "save", event = event.kind, step = event.step, total = r.total_steps,
      bytes = event.bytes, copy_s = event.copy_s,
      write_s = event.write_s, text = event.text, wall = base.wall_s()}
    if event.kind == "commit" then
      renderings.committed(r, event.step)
    else
      r.progress:say(("save of step %d: %s: %s"):format(event.step, event.kind, event.text))
    end
    event = saver:poll()
  end
end

--- Writes the events of saves into journal and log.
---@param r mr.Run
function saves.tell(r) tell(r, r.saver) end

-- Non-finite values in some tensors: {n, names = of their tensors}; nil if all values are finite.
local function nonfinite(rows)
  local found = {n = 0, names = {}}
  for _, row in ipairs(rows) do
    local n = state.nonfinite(row)
    found.n = found.n + n
    found.names[#found.names + 1] = n > 0 and row.name or nil
  end
  return found.n > 0 and found or nil
end

-- combines what the ranks have found in their shares; all ranks get the same
local function of_all(r, found)
  local n = r.team:sum{found and found.n or 0}[1]
  if n == 0 then
    return nil
  end
  local names = {}
  for _, text in ipairs(r.team:texts(found and table.concat(found.names, "\n") or "")) do
    for name in text:gmatch "[^\n]+" do
      names[#names + 1] = name
    end
  end
  return {n = n, names = names}
end

-- Gives the whole state, or this rank's share of it, to a saver, and returns whether there is a
-- snapshot. A state with non-finite values is not accepted; the second result describes them.
local function snapshot(r, saver, share, last)
  local behind = saver == r.saver and cadence.buffers(r.settings) > 0
  local before = life.phase(behind and "snapshot" or "persist")
  local rows = state.rows(r.exec, r.pipe.params, share)
  local bad = nonfinite(rows)
  if share then
    bad = of_all(r, bad)
  end
  local taken = not bad and saver:save{step = r.step, tensors = rows, wait = last, meta = {
    recipe_hash = r.settings.hash, dataset_fingerprint = samples.fingerprint(r),
      sampler = r.sampler, excluded = r.loader:excluded(), seed = r.settings.seed,
    machine = r.machine, settings = r.settings:to_json(), name = r.name,
      dtype = r.dtype, parent = r.parent,
    run_state = state.counts(r)}}
  life.phase(before)
  return taken, bad
end

-- text about non-finite values
local function text_of(bad)
  return ("%d values are not finite, in %s%s"):format(bad.n, bad.names[1],
    #bad.names > 1 and (" and %d more tensors"):format(#bad.names - 1) or "")
end

--- Goes back to the newest checkpoint, unless the run has not passed the step of its last return.
---@param r mr.Run
---@param o table    for go_back
---@return boolean
function saves.go_back_once(r, o)
  local further = r.step > (r.rolled_back_at or 0)
  r.rolled_back_at = r.step
  return further and saves.go_back(r, o)
end

-- refuses to save a state that is not finite: the run goes back to the checkpoint before
local function leave(r, bad)
  r.journal:append{kind = "nonfinite", step = r.step, values = bad.n,
    tensors = json.array(table.move(bad.names, 1, TENSORS_MOST, 1, {})), wall = base.wall_s()}
  if not saves.go_back_once(r, {most = r.step, why = text_of(bad)}) then
    r.team:raise("MR_E_NONFINITE", ("step %d: %s; this step is not saved\n  try: --load the newest "
      .. "checkpoint with a smaller lr or grad_clip = 1; if that does not help, test the "
      .. "memory of this host"):format(r.step, text_of(bad)))
  end
end

--- Takes a snapshot of the state, unless there is one of this step. The writer commits it while
-- training continues. A skipped save leaves no snapshot. A state that is not finite is never saved:
-- the run goes back to the checkpoint before, or this raises MR_E_NONFINITE.
---@param r mr.Run
---@param last boolean|nil  wait for a free buffer instead of skipping the save
function saves.take(r, last)
  if r.saved_step == r.step then
    return
  end
  -- models that train on the latents of this autoencoder need the statistics of these
  if r.pipe.reconstructs and r.pipe.autoencoder.moments then
    setup.measure(r)
  end
  local taken, bad = snapshot(r, r.saver, r.share, last)
  if bad then
    leave(r, bad)
  else
    r.saved_step = taken and r.step or nil
  end
  r.saved_s, r.late = base.now_s(), nil
  saves.tell(r)
end

--- Saves a state after ranks have lost contact, before the step has changed it. If every rank has
-- the whole state (ZeRO 0), the first rank commits it alone before it ends, so that the run can
-- continue from here; its launcher waits for that. An error here must not hide why the ranks lost
-- contact.
function saves.alone(r)
  local whole = r.team.leads and r.ranks and r.ranks.stage == 0 and not r.pipe.reconstructs
  -- a save in progress waits for the other ranks
  if not whole or r.step == 0 or r.saved_step == r.step or r.saver:status().pending > 0 then
    return
  end
  local good, problem = pcall(function()
    local saver <close> = writer.new(r, 1)
    local _, bad = snapshot(r, saver, nil, true)
    if bad then
      base.raise("MR_E_NONFINITE", text_of(bad))
    end
    life.phase "persist"
    saver:wait()
    tell(r, saver)
  end)
  r.progress:say(good and ("step %d is saved by rank 0 alone"):format(r.step)
    or ("step %d: rank 0 alone could not save it: %s"):format(r.step, tostring(problem)))
end

-- Waits before a failed save is tried again. If the clock of the first rank says that the time for
-- retries is over, this raises MR_E_CKPT.
local function pause(r, began, length, problem)
  local patience = r.settings.ckpt_deadline
  r.team:try(function()
    if r.team.leads and base.now_s() + length >= began + patience then
      base.raise("MR_E_CKPT", ("no checkpoint of step %d was committed in %.3g s (ckpt_deadline); "
        .. "the last save: %s"):format(r.step, patience, tostring(problem)))
    end
  end)
  local before, till = life.phase "persist", base.now_s() + length
  while base.now_s() < till do
    life.phase "persist"
    base.sleep(math.min(1, length))
  end
  life.phase(before)
end

--- Returns when the current step is committed; an earlier step, if the state is not finite. A
-- failed save is tried again for `ckpt_deadline` seconds, so that a disk that is full for a while
-- costs no step. After that time, or if a save hangs, this raises MR_E_CKPT.
---@param r mr.Run
function saves.commit(r)
  local began, length = base.now_s(), saves.pause_s
  while true do
    r.team:try(saves.take, r, true)
    local before = life.phase "persist"
    local committed, problem = pcall(r.saver.wait, r.saver)
    life.phase(before)
    saves.tell(r)
    local failed = r.team:sum{committed and 0 or 1}[1]
    if failed == 0 then
      return
    end
    r.saved_step = nil
    r.team:try(function()
      if r.saver:status().pending > 0 then
        error(problem, 0)
      end
      r.saver:check()
    end)
    r.progress:say(("step %d is not saved; the save is tried again in %.3g s"):format(r.step,
      length))
    pause(r, began, length, problem)
    length = math.min(2 * length, LONGEST_PAUSE_S)
  end
end

--- Takes a snapshot, as `take` does. After several failed saves in a row the run waits for this
-- one, as for the last one, instead of continuing without a checkpoint.
---@param r mr.Run
function saves.between(r)
  local failing = r.team:first(function()
    return {r.saver:status().failures_in_row >= FAILED_MOST}
  end)[1]
  if failing then
    saves.commit(r)
  else
    r.team:try(function()
      saves.take(r)
      r.saver:check()
    end)
  end
end

-- Paths of checkpoints to go back to, in order of preference: the newest with at most step `most`,
-- then the oldest of the others; all are newer than step `above`.
local function candidates(r, most, above)
  local older, newer = {}, {}
  for _, step in ipairs(ckpt.steps(r.dir)) do
    if step > (above or -1) then
      table.insert(step <= most and older or newer, step <= most and #older + 1 or 1,
        ckpt.dir(r.dir, step))
    end
  end
  return table.move(newer, 1, #newer, #older + 1, older)
end

--- Goes back to a checkpoint of this run, in place; later checkpoints are removed. Returns false if
-- there is no such checkpoint. Samples that are left out count as trained in their epoch.
---@param r mr.Run
---@param o table  most: largest step that it should have; above: it has to be newer; skip: number
---   of steps whose batches are left out from there on, at least those taken since; nil: no steps;
---   why: a text; samples: for the journal
---@return boolean
function saves.go_back(r, o)
  -- a save that fails now leaves the checkpoint before it
  pcall(r.saver.wait, r.saver)
  local opened
  local path = r.team:first(function()
    local good, found = pcall(ckpt.load, {spec = r.dir, fallback = true,
      candidates = candidates(r, o.most, o.above)})
    if not good then
      return {}
    end
    opened = found
    ckpt.drop_after(r.lock, found.step)
    return {found.path}
  end)[1]
  if not path then
    return false
  end
  local source <close> = opened or ckpt.open(path)
  local from, m, rolled_back_at = r.step, source.manifest, r.rolled_back_at
  local skip = o.skip and math.max(o.skip, from - m.run_state.step) or 0
  state.load(r.exec, r.pipe.params, source)
  r.since = state.second_moments(r.pipe.params, source)
  if next(r.since) then
    -- second moments began at another step, so bias correction differs
    samples.open_update(r)
    weights.open(r)
  end
  r.ahead = nil
  local left_out = samples.loader(r, m, skip)
  r.sampler = r.loader:state()
  state.set_counts(r, m.run_state)
  r.saved_step, r.failed, r.rolled_back_at = r.step, 0, rolled_back_at
  if o.skip then
    r.spikes.back = r.step
  end
  r.progress:say(("step %d: %s: back to step %d%s"):format(from, o.why, r.step, skip > 0
    and (", without the batches of %d steps from there on, %d samples"):format(skip, left_out)
    or ""))
  r.journal:append{kind = "rollback", step = r.step, from = from, why = o.why, skipped = skip,
    left_out = left_out, samples = o.samples, wall = base.wall_s()}
  return true
end

return saves
