--- Reads a file that contains one JSON object, such as config.json next to weights.
-- @module moonreel.text.config
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

--- Returns its fields; raises an error if the file is not a JSON object.
---@param path string
---@return table
return function(path)
  local value = json.decode(base.read_file(path), path)
  if type(value) ~= "table" or json.is_array(value) then
    base.raise("MR_E_CKPT", ("%s: expected an object"):format(path))
  end
  return value
end
