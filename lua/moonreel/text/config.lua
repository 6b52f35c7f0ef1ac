--- Reads a file that contains one JSON object, such as config.json next to weights.
-- @module moonreel.text.config
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

--- Its fields; raises where it is no JSON, or another value.
---@param path string
---@return table
return function(path)
  local value = json.decode(base.read_file(path), path)
  if type(value) ~= "table" or json.is_array(value) then
    base.raise("MR_E_CKPT", ("%s: expected an object"):format(path))
  end
  return value
end
