---@meta moonreel.core.graph
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Graphs: values, their gradients, tables of parameters.
---@class moonreel.core.graph
local graph = {}

--- An empty table of parameters; dtype is that of compute.
---@param dtype mr.Dtype
---@return mr.Params
function graph.params(dtype) end

---@class moonreel.core.graph.graph.options
---@field no_inplace? boolean No op overwrites its input; for tests. Default: false.
---@field no_cheap? boolean Keep cheap values instead of computing them again. Default: false.
---@field no_fuse? boolean Do not fuse ops: every op is a node. Default: false.
---@field fresh_gradients? boolean Gradients of parameters start at zero in each run. Default: false.
---@field no_save? boolean Ignore `save`: all values of a block are computed again. Default: false.
---@field edges? boolean The device supports `edge` of conv3d: exec:edges(). Default: false.

--- An empty graph.
---@param params? mr.Params
---@param options? moonreel.core.graph.graph.options
---@return mr.Graph
function graph.graph(params, options) end

--- Call an op by its name, as ops.NAME; inputs can have holes.
---@param name string
---@param inputs any[]
---@param attributes? table
---@return any ...
function graph.op(name, inputs, attributes) end

--- Join tensors or values along an axis.
---@param parts any[]
---@param axis integer
---@return any
function graph.concat(parts, axis) end

return graph
