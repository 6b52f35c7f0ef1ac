---@meta moonreel.core.gpu
-- Made from the rows of the bindings: moonreel help stubs DIR

--- What GPUs say of themselves.
---@class moonreel.core.gpu
local gpu = {}

--- GPUs as NVIDIA's driver tells of them; raises MR_E_UNSUPPORTED where there is none. MOONREEL_NVML names another library.
---@return mr.Gpus
function gpu.open() end

return gpu
