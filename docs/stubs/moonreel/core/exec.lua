---@meta moonreel.core.exec
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Devices, executors and programs: graphs that run.
---@class moonreel.core.exec
local exec = {}

--- Open a device: cpu, shadow or, with its plug-in, cuda (cuda:1 is the second); default: MOONREEL_DEVICE or cpu. Up to 4096 threads, 0: all.
---@param name? string
---@param threads? integer
---@return mr.Device
function exec.device(name, threads) end

---@class moonreel.core.exec.new.options
---@field regions? table[] Regions of an optimizer: tables of name, dtype, role, prefix, start, stop, per, space, transient.
---@field poison? boolean Fill the arena with poison before each run; for tests. Default: false.
---@field no_reuse? boolean Share no memory between values; for tests. Default: false.

--- An executor: the memory of the parameters, and programs over it.
---@param device mr.Device
---@param params? mr.Params
---@param options? moonreel.core.exec.new.options
---@return mr.Exec
function exec.new(device, params, options) end

---@class moonreel.core.exec.plan.options
---@field regions? table[] As of exec.new.
---@field facts? table As device:facts() gives them; absent: this processor's.
---@field rates? mr.Device By whose rates it predicts seconds, which the device measures when needed.

--- An executor without a device: its programs predict bytes, cost and seconds, and need no memory.
---@param params? mr.Params
---@param options? moonreel.core.exec.plan.options
---@return mr.Exec
function exec.plan(params, options) end

return exec
