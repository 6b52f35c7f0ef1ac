--- Takes the reader of a field away for a while: every field has one, and what nothing reads is
-- refused.
local registry = require "moonreel.recipe.registry"

--- Call f while nothing reads the field of a path.
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
