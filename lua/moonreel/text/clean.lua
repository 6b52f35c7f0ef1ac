--- Makes text from files safe for a terminal.
-- @module moonreel.text.clean
local base = require "moonreel.core.base"

--- Control characters and broken UTF-8 as \xHH: C0, DEL, the C1 block, marks that turn the
-- direction of writing.
---@param text any
---@return string
return function(text) return base.printable(tostring(text)) end
