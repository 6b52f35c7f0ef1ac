--- The times of an evaluation; refuses settings without any.
-- @module moonreel.settings.eval_times
local blame = require "moonreel.settings.blame"
local times = require "moonreel.diffusion.eval_times"

---@param settings table  baked
---@return number[]       0..1000, at least one
return function(settings)
  local list = times.of(settings)
  if #list == 0 then
    blame.raise(settings, "eval_timesteps", "MR_E_RECIPE", "eval_timesteps: expected at least "
      .. "one time from 0 to 1, got an empty list; try: eval_timesteps = { 0.25, 0.5, 0.75 }")
  end
  return list
end
