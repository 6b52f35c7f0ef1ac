---@meta moonreel.core.tensor
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Tensors in host memory.
---@class moonreel.core.tensor
---@field methods table Methods of all tensors; Lua modules can add some.
local tensor = {}

--- A tensor of zeros.
---@param dtype mr.Dtype
---@param dims integer[]
---@return mr.Tensor
function tensor.new(dtype, dims) end

--- A tensor from a flat list of numbers, or from raw bytes; default dtype f32.
---@param dims integer[]
---@param values number[]|string
---@param dtype? mr.Dtype
---@return mr.Tensor
function tensor.from(dims, values, dtype) end

--- A tensor over foreign memory; it keeps owner alive.
---@param pointer lightuserdata
---@param bytes integer
---@param dtype mr.Dtype
---@param dims integer[]
---@param owner? any
---@return mr.Tensor
function tensor.wrap(pointer, bytes, dtype, dims, owner) end

--- The number of values in foreign memory that are infinite or NaN.
---@param pointer lightuserdata
---@param bytes integer
---@param dtype mr.Dtype
---@return integer
function tensor.nonfinite(pointer, bytes, dtype) end

--- Bytes of all existing tensors, including unused ones that are not collected yet.
---@return integer
function tensor.held() end

--- Elements of a shape.
---@param dims integer[]
---@return integer
function tensor.count(dims) end

return tensor
