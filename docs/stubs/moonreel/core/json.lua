---@meta moonreel.core.json
-- Made from the rows of the bindings: moonreel help stubs DIR

--- JSON text to Lua values and back.
---@class moonreel.core.json
---@field null lightuserdata The value for null.
local json = {}

--- Objects become tables, arrays marked lists, null json.null; errors name `name`, line and column.
---@param text string
---@param name? string
---@return any
function json.decode(text, name) end

---@class moonreel.core.json.encode.options
---@field indent? integer Spaces per level, at most 16; 0: all on one line. Default: 0.

--- Keys are sorted, so equal values give equal text.
---@param value any
---@param options? moonreel.core.json.encode.options
---@return string
function json.encode(value, options) end

--- Mark a list, also an empty one, as an array; returns it.
---@param list? table
---@return table
function json.array(list) end

--- Whether it is marked as an array, or a list 1..n.
---@param value any
---@return boolean
function json.is_array(value) end

return json
