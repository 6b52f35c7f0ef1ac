---@meta moonreel.core.look
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Statistics of tensors.
---@class moonreel.core.look
local look = {}

--- {n, zeros, nonfinite, min, max, mean, rms}; the last four over the finite values.
---@param t mr.Tensor
---@return table
function look.summary(t) end

--- Counts of the finite values in equal bins.
---@param t mr.Tensor
---@param lo number
---@param hi number
---@param bins? integer
---@return integer[]
function look.histogram(t, lo, hi, bins) end

return look
