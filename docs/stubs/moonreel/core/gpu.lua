---@meta moonreel.core.gpu
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Facts and readings of GPUs.
---@class moonreel.core.gpu
local gpu = {}

--- The GPUs that NVIDIA's driver reports; raises MR_E_UNSUPPORTED without a driver. MOONREEL_NVML names another library.
---@return mr.Gpus
function gpu.open() end

return gpu
