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

--- Seconds before a save that failed is tried again; doubled each time, up to the longest.
saves.pause_s = 1

local LONGEST_PAUSE_S <const> = 30
local FAILED_MOST <const> = 3 -- saves in a row without a commit, before one is waited for
local TENSORS_MOST = 8 -- names of those that are not finite, in the journal

-- put what happened to the saves of a saver into journal and log
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

--- Put what happened to saves into journal and log.
---@param r mr.Run
function saves.tell(r) tell(r, r.saver) end

-- Values of some tensors that are not finite: {n, names = of their tensors}; nil: all are.
local function nonfinite(rows)
  local found = {n = 0, names = {}}
  for _, row in ipairs(rows) do
    local n = state.nonfinite(row)
    found.n = found.n + n
    found.names[#found.names + 1] = n > 0 and row.name or nil
  end
  return found.n > 0 and found or nil
end

-- what ranks have found, each in its share; all get the same
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

-- Hand everything, or this rank's share of it, to a saver: is there a snapshot? A state that holds
-- only finite values count: else the second result says what it is.
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

-- what is not finite, as people read it
local function text_of(bad)
  return ("%d values are not finite, in %s%s"):format(bad.n, bad.names[1],
    #bad.names > 1 and (" and %d more tensors"):format(#bad.names - 1) or "")
end

--- Back to the newest checkpoint, unless the run has not come further since it did so last.
---@param r mr.Run
---@param o table    of go_back
---@return boolean
function saves.go_back_once(r, o)
  local further = r.step > (r.rolled_back_at or 0)
  r.rolled_back_at = r.step
  return further and saves.go_back(r, o)
end

-- a state that is not finite is not saved: the one before it is gone back to
local function leave(r, bad)
  r.journal:append{kind = "nonfinite", step = r.step, values = bad.n,
    tensors = json.array(table.move(bad.names, 1, TENSORS_MOST, 1, {})), wall = base.wall_s()}
  if not saves.go_back_once(r, {most = r.step, why = text_of(bad)}) then
    r.team:raise("MR_E_NONFINITE", ("step %d: %s; nothing of it is saved\n  try: --load the newest "
      .. "checkpoint with a smaller lr or grad_clip = 1; where that changes nothing, test the "
      .. "memory of this host"):format(r.step, text_of(bad)))
  end
end

--- Take a snapshot of everything, unless there is one of this step: the writer commits it while
-- training goes on. A save that is skipped leaves no snapshot. A state that is not finite is never
-- saved: the run is back at the checkpoint before then, or raises MR_E_NONFINITE.
---@param r mr.Run
---@param last boolean|nil  wait for a free buffer instead of skipping
function saves.take(r, last)
  if r.saved_step == r.step then
    return
  end
  -- those who train on the latents of a checkpoint find their numbers normal
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

--- Ranks have lost each other before anything of a step has changed the state. Where every rank
-- holds all of it (ZeRO 0), the first one commits it alone before it ends, so that the run goes on
-- from here; its launcher waits for that. Nothing of it may hide why the ranks have parted.
---@param r mr.Run
function saves.alone(r)
  local whole = r.team.leads and r.ranks and r.ranks.stage == 0 and not r.pipe.reconstructs
  -- a save that is on its way waits for the others
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

-- Wait before a save that failed is tried again. Where the first rank's clock says that it was
-- tried for long enough, this raises MR_E_CKPT.
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

--- Return when the step that the run stands at is committed: an earlier one, where the state is not
-- finite. A save that fails is tried again for `ckpt_deadline` seconds, so that a disk that is full
-- for a while costs no step; then, and when a save is stuck, this raises MR_E_CKPT.
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

--- Take a snapshot, as `take` does. Where saves in a row have failed, the run waits for this one as
-- for the last one, instead of going on without a checkpoint.
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

-- paths of checkpoints to go back to, the first ones first: the newest that are no newer than step
-- `most`, then the oldest of the others; all of them newer than step `above`
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

--- Back to a checkpoint of this run, in place; those of later steps are removed. False when there
-- does not count. Samples that are left out count as taken: their epoch has had them.
---@param r mr.Run
---@param o table  most: step that it should have at most; above: it has to be newer; skip: steps
---   whose batches are left out from there on, at least those taken since, nil: none; why: a text;
---   samples: for the journal
---@return boolean
function saves.go_back(r, o)
  -- a save that fails now leaves the one before it
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
    -- second moments began elsewhere: another bias correction
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
