---@meta moonreel.core.gpu
-- Made from the rows of the bindings: moonreel help stubs DIR

--- What GPUs say of themselves.
---@class moonreel.core.gpu
local gpu = {}

--- The GPUs that NVIDIA's driver reports; raises MR_E_UNSUPPORTED without a driver. MOONREEL_NVML names another library.
---@return mr.Gpus
function gpu.open() end

return gpu
