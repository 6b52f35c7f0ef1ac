--- A random simulation of a whole run, step by step: the slowest rank decides each step, data
-- arrive late, saves stop training, ranks fail and lose unsaved steps. Ranks are alike, so one step
-- needs one draw for all of them: thousands of ranks cost no more than one.
-- Ref: reference plan 6; reliability 3.6.
-- @module moonreel.plan.hazards
local base = require "moonreel.core.base"
local simulate = require "moonreel.plan.simulate"

local hazards = {}

local QUANTILES = 256
local MOST_STEPS = 1e5  -- these are simulated one by one; the rest is scaled from them

---@class moonreel.plan.Hazards
---@field steps integer
---@field step_s number      of a rank without delays
---@field ranks integer
---@field sigma number|nil   deviation of a rank's seconds; default 0
---@field stall_share number|nil  share of a rank's steps whose data come `stall_s` late; default 0
---@field stall_s number|nil
---@field between_s number|nil  mean time between failures of one rank, in seconds; nil: no failures
---@field restart_s number|nil  from a failure to the next step
---@field interval integer|nil  steps between saves; nil: no saves
---@field save_s number|nil  time that a save stops training
---@field seed integer|nil

-- x with P(a normal draw <= x) = p
local function normal_at(p)
  local low, high = -9, 9
  for _ = 1, 50 do
    local x = (low + high) / 2
    if simulate.normal_below(x) < p then
      low = x
    else
      high = x
    end
  end
  return (low + high) / 2
end

-- the factor of the slowest of n ranks, at evenly spread probabilities
local function slowest_of(n, sigma)
  local factors = {}
  for k = 1, QUANTILES do
    -- P(largest <= x) = P(x)^n
    factors[k] = math.exp(sigma * normal_at(((k - 0.5) / QUANTILES) ^ (1 / n)))
  end
  return factors
end

--- Simulates a run.
---@param of moonreel.plan.Hazards
---@return table run  seconds; of these useful, slowest, stalled, saving, lost (repeated work),
---   restarting; failures
function hazards.run(of)
  local function draw(purpose, k) return base.random_uniform(of.seed or 1, purpose, k, 0) end
  -- a single rank does not wait for others
  local factors = slowest_of(of.ranks, of.ranks > 1 and of.sigma or 0)
  local any_stall = 1 - (1 - (of.stall_share or 0)) ^ of.ranks
  local together_s = of.between_s and of.between_s / of.ranks or math.huge
  local run = { useful = 0, slowest = 0, stalled = 0, saving = 0, lost = 0, restarting = 0,
    failures = 0 }
  -- work since the last save, and the time until the next failure
  local unsaved, steps_unsaved, drawn = 0, 0, 0
  local function next_failure()
    drawn = drawn + 1
    return -math.log(1 - draw("failure", drawn)) * together_s
  end
  local left, done, at = next_failure(), 0, 0
  local steps = math.min(of.steps, MOST_STEPS)
  while done < steps do
    at = at + 1
    local slowest = (factors[1 + draw("rank", at) * QUANTILES // 1 | 0] - 1) * of.step_s
    local stalled = draw("data", at) < any_stall and of.stall_s or 0
    local seconds = of.step_s + slowest + stalled
    if left < seconds then
      -- all work since the last save is repeated
      run.failures, run.lost = run.failures + 1, run.lost + unsaved + left
      run.restarting = run.restarting + (of.restart_s or 0)
      done, unsaved, steps_unsaved, left = done - steps_unsaved, 0, 0, next_failure()
    else
      left, done = left - seconds, done + 1
      unsaved, steps_unsaved = unsaved + seconds, steps_unsaved + 1
      run.slowest, run.stalled = run.slowest + slowest, run.stalled + stalled
      if steps_unsaved == of.interval then
        unsaved, steps_unsaved, run.saving = 0, 0, run.saving + (of.save_s or 0)
      end
    end
    -- a run that fails sooner than it can save makes no progress
    if at > 100 * steps then
      return nil
    end
  end
  run.useful = steps * of.step_s
  local share = of.steps / steps
  run.seconds = 0
  for _, part in ipairs { "useful", "slowest", "stalled", "saving", "lost", "restarting" } do
    run[part] = run[part] * share
    run.seconds = run.seconds + run[part]
  end
  run.failures = run.failures * share
  return run
end

return hazards
