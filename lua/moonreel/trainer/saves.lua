--- Checkpoints of a run: taken between two steps, written behind those that follow, gone back to.
-- @module moonreel.trainer.saves
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local life = require "moonreel.core.life"
local renderings = require "moonreel.trainer.renderings"
local samples = require "moonreel.trainer.samples"
local setup = require "moonreel.trainer.setup"
local state = require "moonreel.trainer.state"

local saves = {}

local PAUSE_S = 1 -- before a last save that failed is tried again

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

-- hand everything, or this rank's share of it, to a saver: is there a snapshot?
local function snapshot(r, saver, share, last)
  local before, taken = life.phase "snapshot", nil
  state.with_rows(r.exec, r.pipe.params, function(rows)
    taken = saver:save{step = r.step, tensors = rows, wait = last, meta = {
      recipe_hash = r.settings.hash, dataset_fingerprint = samples.fingerprint(r),
        sampler = r.sampler, excluded = r.loader:excluded(), seed = r.settings.seed,
      machine = r.machine, settings = r.settings:to_json(), name = r.name,
        dtype = r.dtype, parent = r.parent,
      run_state = state.counts(r)}}
  end, share)
  life.phase(before)
  return taken
end

--- Take a snapshot of everything, unless there is one of this step: the writer commits it while
-- training goes on. A save that is skipped leaves no snapshot.
---@param r mr.Run
---@param last boolean|nil  wait for a free buffer instead of skipping
function saves.take(r, last)
  if r.saved_step == r.step then
    return
  end
  -- those who train on the latents of a checkpoint find their numbers normal
  if r.pipe.reconstructs then
    setup.measure(r)
  end
  r.saved_step = snapshot(r, r.saver, r.share, last) and r.step or nil
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
    local saver <close> = setup.open_saver(r, 1)
    snapshot(r, saver, nil, true)
    life.phase "persist"
    saver:wait()
    tell(r, saver)
  end)
  r.progress:say(good and ("step %d is saved by rank 0 alone"):format(r.step)
    or ("step %d: rank 0 alone could not save it: %s"):format(r.step, tostring(problem)))
end

--- Return when the step that the run stands at is committed. A save that fails is tried again until
-- the saver has counted too many in a row; then, and when a save is stuck, this raises MR_E_CKPT.
---@param r mr.Run
function saves.commit(r)
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
    base.sleep(PAUSE_S)
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
-- is none. Samples that are left out count as taken: their epoch has had them.
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
