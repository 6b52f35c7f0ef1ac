--- Finds the known name that a mistyped name most likely means.
-- @module moonreel.text.nearest

--- Returns the name of `names` that is nearest to `name`; nil: none is near. Each added, dropped,
-- changed or swapped letter counts one; the limit is a quarter of the name.
---@param name string
---@param names string[]
---@return string|nil
return function(name, names) return require("moonreel.core.base").nearest(name, names) end
