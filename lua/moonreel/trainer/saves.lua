--- Checkpoints of a run: taken between two steps, written behind those that follow, gone back to.
-- @module moonreel.trainer.saves
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local life = require "moonreel.core.life"
local samples = require "moonreel.trainer.samples"
local setup = require "moonreel.trainer.setup"
local state = require "moonreel.trainer.state"

local saves = {}

local PAUSE_S = 1 -- before a last save that failed is tried again

--- Put what happened to saves into journal and log.
---@param r mr.Run
function saves.tell(r)
  local event = r.saver:poll()
  while event do
    r.journal:append{kind = "save", event = event.kind, step = event.step,
      bytes = event.bytes, copy_s = event.copy_s,
      write_s = event.write_s, text = event.text, wall = base.wall_s()}
    if event.kind ~= "commit" then
      r.progress:say(("save of step %d: %s: %s"):format(event.step, event.kind, event.text))
    end
    event = r.saver:poll()
  end
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
  local before = life.phase "snapshot"
  state.with_rows(r.exec, r.pipe.params, function(rows)
    local taken = r.saver:save{step = r.step, tensors = rows, wait = last, meta = {
      recipe_hash = r.settings.hash, dataset_fingerprint = samples.fingerprint(r),
        sampler = r.sampler, excluded = r.loader:excluded(), seed = r.settings.seed,
      machine = r.machine, settings = r.settings:to_json(), name = r.name,
        dtype = r.dtype, parent = r.parent,
      run_state = {step = r.step, updates = r.updates, step_ranks = r.step_ranks}}}
    r.saved_step = taken and r.step or nil
  end, r.share)
  life.phase(before)
  saves.tell(r)
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

--- Back to the newest checkpoint of this run, in place; false when there is none.
---@param r mr.Run
---@return boolean
function saves.go_back(r)
  -- a save that fails now leaves the one before it
  pcall(r.saver.wait, r.saver)
  local newest
  local path = r.team:first(function()
    newest = #ckpt.steps(r.dir) > 0 and ckpt.newest(r.dir, r.lock)
    return {newest and newest.path}
  end)[1]
  if not path then
    return false
  end
  local source <close> = newest or ckpt.open(path)
  local m = source.manifest
  r.progress:say(
    ("step %d: %d steps in a row without a finite loss and gradient: back to step %d"):format(
    r.step, r.bad, m.run_state.step))
  r.journal:append{kind = "rollback", step = m.run_state.step, from = r.step, wall = base.wall_s()}
  state.load(r.exec, r.pipe.params, source)
  r.ahead = nil
  samples.loader(r, m)
  r.step, r.updates, r.sampler = m.run_state.step, m.run_state.updates, m.sampler
  r.bad, r.saved_step, r.failed = 0, r.step, 0
  return true
end

return saves
