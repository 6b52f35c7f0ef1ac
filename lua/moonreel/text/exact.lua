--- Prints numbers with the fewest digits that still identify each number exactly.
-- @module moonreel.text.exact
local json = require "moonreel.core.json"

---@param x number  finite
---@return string
return function(x)
  local text = json.encode(x)
  -- moonreel's JSON distinguishes 8.0 from 8
  return text:sub(-2) == ".0" and text:sub(1, -3) or text
end
