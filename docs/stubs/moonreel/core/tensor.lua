---@meta moonreel.core.tensor
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Tensors in host memory.
---@class moonreel.core.tensor
---@field methods table Methods of all tensors; Lua modules add theirs.
local tensor = {}

--- A tensor of zeros.
---@param dtype mr.Dtype
---@param dims integer[]
---@return mr.Tensor
function tensor.new(dtype, dims) end

--- A tensor of a flat list of numbers, or of raw bytes; f32 where dtype is absent.
---@param dims integer[]
---@param values number[]|string
---@param dtype? mr.Dtype
---@return mr.Tensor
function tensor.from(dims, values, dtype) end

--- A tensor over memory of somebody else; owner is kept alive with it.
---@param pointer lightuserdata
---@param bytes integer
---@param dtype mr.Dtype
---@param dims integer[]
---@param owner? any
---@return mr.Tensor
function tensor.wrap(pointer, bytes, dtype, dims, owner) end

--- How many values of somebody else's memory are infinite or no numbers.
---@param pointer lightuserdata
---@param bytes integer
---@param dtype mr.Dtype
---@return integer
function tensor.nonfinite(pointer, bytes, dtype) end

--- Bytes of all tensors that are there. Those that nothing names any more go in rounds.
---@return integer
function tensor.held() end

--- Elements of a shape.
---@param dims integer[]
---@return integer
function tensor.count(dims) end

return tensor
