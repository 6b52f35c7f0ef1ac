--- Jobs of `moonreel train` other than training: one module for each value of `job`.
-- @module moonreel.job
local job = {}

--- Runs the job of a recipe.
---@param settings table     baked; job is not "train"
---@param given table|nil    write: takes each line instead of standard output
---@return integer exit code
---@return table facts       facts of the job
function job.run(settings, given)
  return require("moonreel.job." .. settings.job).run(settings, given or {})
end

return job
