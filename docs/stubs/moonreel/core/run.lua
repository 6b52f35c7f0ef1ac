---@meta moonreel.core.run
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Run directories and their lock; moonreel.run is what people use.
---@class moonreel.core.run
local run = {}

--- Make outputs/NNN-name; its path.
---@param outputs string
---@param name string
---@param staged? boolean
---@return string
function run.create(outputs, name, staged) end

--- Make RUN/stages/NAME, or take the one that is there.
---@param run_dir string
---@param name string
---@return string
function run.stage(run_dir, name) end

--- Become the one writer of a run; raises MR_E_LOCK naming the owner.
---@param run_dir string
---@return mr.RunLock
function run.lock(run_dir) end

--- Who holds it: {run, fence, owned, dead, host, pid}.
---@param run_dir string
---@return table
function run.owner(run_dir) end

return run
