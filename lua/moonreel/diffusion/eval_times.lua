--- The times at which the loss of given weights is measured.
-- @module moonreel.diffusion.eval_times
local flow = require "moonreel.diffusion.flow"

local eval_times = {}

local TIMES <const> = 10 -- the default number

-- the number of times, and the listed times
local function named(settings)
  local list = settings.eval_timesteps and settings:plain "eval_timesteps"
  return list and #list or settings.num_eval_timesteps or TIMES, list
end

--- The times that settings list, or num_eval_timesteps between clean and noise, without the ends.
---@param settings table  eval_timesteps, num_eval_timesteps
---@return number[]       0..1000
function eval_times.of(settings)
  local times, n, list = {}, named(settings)
  for i = 1, n do
    times[i] = flow.T * (list and list[i] or i / (n + 1))
  end
  return times
end

--- The number of model passes for each sample.
---@param settings table  eval_timesteps, num_eval_timesteps, eval_in_turn
---@return integer
function eval_times.passes(settings)
  return settings.eval_in_turn and 1 or (named(settings))
end

return eval_times
