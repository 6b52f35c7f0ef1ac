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
---@field no_inplace? boolean No op writes over its input; for tests. Default: false.
---@field no_cheap? boolean Cheap values are kept, not computed twice. Default: false.
---@field no_fuse? boolean Every op is a node of its own, also where one row does two. Default: false.
---@field fresh_gradients? boolean Gradients of parameters begin at zero in each run. Default: false.
---@field no_save? boolean What `save` would keep of a block is computed twice too. Default: false.
---@field edges? boolean It runs where conv3d reads the nearest place for one outside: exec:edges(). Default: false.

--- An empty graph.
---@param params? mr.Params
---@param options? moonreel.core.graph.graph.options
---@return mr.Graph
function graph.graph(params, options) end

--- Call an op by its name, as ops.NAME; inputs may have holes.
---@param name string
---@param inputs any[]
---@param attributes? table
---@return any ...
function graph.op(name, inputs, attributes) end

--- Tensors or values side by side along an axis.
---@param parts any[]
---@param axis integer
---@return any
function graph.concat(parts, axis) end

return graph
