---@meta moonreel.core.run
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Run directories and their lock; use moonreel.run.
---@class moonreel.core.run
local run = {}

--- Create outputs/NNN-name; returns its path.
---@param outputs string
---@param name string
---@param staged? boolean
---@return string
function run.create(outputs, name, staged) end

--- Create RUN/stages/NAME, or use the existing one.
---@param run_dir string
---@param name string
---@return string
function run.stage(run_dir, name) end

--- Become the one writer of a run; raises MR_E_LOCK naming the owner.
---@param run_dir string
---@return mr.RunLock
function run.lock(run_dir) end

--- The owner of the lock: {run, fence, owned, dead, host, pid}.
---@param run_dir string
---@return table
function run.owner(run_dir) end

return run
