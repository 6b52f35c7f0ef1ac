--- Removes the reader of a field for a while: each field has one, and fields without a reader are
-- refused.
local registry = require "moonreel.recipe.registry"

--- Calls f while nothing reads the field of a path.
---@param path string
---@param f function
return function(path, f)
  local before = {}
  for _, row in ipairs(registry.get().rows) do
    if row.path == path then
      before[row], row.reader = row.reader, false
    end
  end
  assert(next(before), "no field " .. path)
  local good, problem = pcall(f)
  for row, reader in pairs(before) do
    row.reader = reader
  end
  if not good then
    error(problem, 0)
  end
end
