--- Finds the known name that a mistyped name most likely means.
-- @module moonreel.text.nearest

--- Nearest of `names` to `name`, or nil when none is near: letters added, dropped, changed or
-- swapped count one each, up to a quarter of the name.
---@param name string
---@param names string[]
---@return string|nil
return function(name, names) return require("moonreel.core.base").nearest(name, names) end
