--- A file that gets its name when it is completely written, so that a reader never finds a
-- half-written one.
-- @module moonreel.data.whole
local base = require "moonreel.core.base"

local whole = {}

--- The reason of a failed open or rename, without the path that Lua puts in front.
---@param problem string
---@return string
function whole.reason(problem) return (problem:gsub("^.*: ", "")) end

--- Begins a file, which has to be closed: without finish() it is removed.
---@param path string
---@return table out  out.write(text, ...), out.finish()
function whole.open(path)
  local tmp = base.temporary_path(path)
  local function fail(problem)
    base.raise("MR_E_IO", ("%s: cannot write: %s"):format(path, whole.reason(problem)))
  end
  local file, problem = io.open(tmp, "wb")
  if not file then
    fail(problem)
  end
  base.hold(file)
  local out = {}
  function out.write(...)
    local ok, why = file:write(...)
    if not ok then
      fail(why)
    end
  end
  function out.finish()
    local ok, why = file:close()
    file = nil
    if not ok then
      fail(why)
    end
    base.rename(tmp, path)
  end
  return setmetatable(out, { __close = function()
    if file then
      file:close()
    end
    os.remove(tmp)
  end })
end

return whole
