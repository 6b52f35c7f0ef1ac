---@meta moonreel.core.api
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Descriptions of ops and bindings.
---@class moonreel.core.api
local api = {}

--- Rows {name, doc, ref, inputs, outputs, attrs} of all ops, by name.
---@return table[]
function api.ops() end

--- Descriptions of every module and type opened so far: name -> {name, doc, rows}; rows {name, type, doc, call, options}.
---@return table
function api.faces() end

return api
