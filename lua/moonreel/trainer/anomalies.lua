--- How a run reacts to faulty steps: a loss or gradient that is not finite, or a spike. All ranks
-- have the same sums of a step, so they decide the same without communication.
-- @module moonreel.trainer.anomalies
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local saves = require "moonreel.trainer.saves"
local spikes = require "moonreel.trainer.spikes"

local anomalies = {}

local BAD_STEPS_MAX <const> = 3

--- Keeps the samples of a step until the step is judged, and those of earlier steps that may be
-- judged with it.
---@param r mr.Run
---@param batches table[]  {source, ids, n} of all micro-batches, of all ranks
function anomalies.remember(r, batches)
  table.insert(r.recent, { step = r.step, batches = batches })
  if #r.recent > math.max(BAD_STEPS_MAX, r.settings.spike.norm_steps) then
    table.remove(r.recent, 1)
  end
end

-- the samples of the last steps, as index rows counted from 0
local function samples_of(r, steps)
  local rows = json.array()
  for i = math.max(1, #r.recent - steps + 1), #r.recent do
    for _, batch in ipairs(r.recent[i].batches) do
      rows[#rows + 1] = { step = r.recent[i].step,
        source = #r.sources > 1 and batch.source or nil,
        ids = json.array(table.move(batch.ids, 1, batch.n, 1, {})) }
    end
  end
  return rows
end

-- goes back after several bad steps in a row; stops the run if that did not help before
local function check_bad(r)
  if r.bad < BAD_STEPS_MAX then
    return
  end
  if saves.go_back_once(r, { most = r.step, samples = samples_of(r, r.bad),
      why = ("%d steps in a row without a finite loss and gradient"):format(r.bad) }) then
    return
  end
  saves.commit(r)
  r.team:raise("MR_E_NONFINITE", ("step %d: %d steps in a row without a finite loss and gradient; "
    .. "the parameters are those of step %d\n"
    .. "  try: a smaller lr, grad_clip = 1, dtype = \"fp32\""):format(r.step,
      r.bad, r.step - r.bad))
end

-- reports a spike once; goes back if the recipe says so, to each checkpoint once
local function check_spike(r)
  local spike, policy = r.spike, r.settings.spike
  if not spike or policy.action ~= "skip" and (spike.steps or 0) > policy.norm_steps then
    return
  end
  local steps, why = math.min(spike.steps or 1, policy.norm_steps), spikes.text(spike)
  r.journal:append { kind = "spike", step = r.step, action = policy.action, cause = spike.cause,
    value = spike.value, limit = spike.limit, group = spike.group, steps = steps,
    samples = samples_of(r, steps), wall = base.wall_s() }
  if policy.action ~= "skip" then
    r.progress:say(("step %d is a spike: %s"):format(r.step, why))
  end
  if policy.action == "rollback" and not saves.go_back(r, { most = r.step - policy.back_steps,
      above = r.spikes.back, skip = policy.skip_batches, why = why }) then
    r.progress:say(("step %d: there is no checkpoint to go back to: all are too new, or the run "
      .. "has gone back to it before; the run continues"):format(r.step))
  end
end

--- Judges the step that has just ended, and acts.
---@param r mr.Run
function anomalies.check(r)
  check_bad(r)
  check_spike(r)
  r.spike = nil
end

return anomalies
