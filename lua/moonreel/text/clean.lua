--- Makes text from files safe for a terminal.
-- @module moonreel.text.clean
local base = require "moonreel.core.base"

--- Writes control characters and broken UTF-8 as \xHH: C0, DEL, the C1 block, and marks that change
-- the direction of text.
---@param text any
---@return string
return function(text) return base.printable(tostring(text)) end
