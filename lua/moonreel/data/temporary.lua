--- A temporary folder that is removed, with its contents, when it is closed.
-- @module moonreel.data.temporary
local base = require "moonreel.core.base"

local temporary = {}

--- Makes the folder; it has to be closed.
---@param path string|nil  a new path for it; absent: a path in the system's temporary folder
---@return table folder    path
function temporary.folder(path)
  if not path then
    path = os.tmpname()
    os.remove(path)
  end
  base.make_dir(path)
  return setmetatable({ path = path }, { __close = function() base.remove_dir(path) end })
end

return temporary
