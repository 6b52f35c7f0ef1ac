--- Values with a meaning of their own in recipes: none, remove, previous, replace{...} and the
-- table that `recipe {...}` returns.
-- @module moonreel.recipe.marker
local marker = {}

local function named(name)
  return setmetatable({}, { __name = name, __metatable = false, __newindex = function()
    error(name .. " is fixed", 2)
  end })
end

marker.none = named "recipe.none"          -- no value
marker.remove = named "recipe.remove"      -- back to the default
marker.previous = named "recipe.previous"  -- the last checkpoint of the stage before

--- A copy of a value as plain data: `none` replaces the marker none; recipe.previous becomes its
-- name.
---@param value any
---@param none any  if absent: nil
function marker.plain(value, none)
  if value == nil or value == marker.none then
    return none
  elseif value == marker.previous then
    return "recipe.previous"
  elseif type(value) ~= "table" then
    return value
  end
  local out = {}
  for key, item in pairs(value) do
    out[key] = marker.plain(item, none)
  end
  return out
end

-- an entry that an open map does not have; recipes never see it
marker.absent = named "absent"

local replaced = setmetatable({}, { __mode = "k" })
local declared = setmetatable({}, { __mode = "k" })

--- `recipe.replace{...}`: these contents replace the inherited ones instead of a merge.
---@param t table
---@return table
function marker.replace(t)
  if type(t) ~= "table" then
    error("recipe.replace: expected a table, got " .. type(t), 2)
  end
  local box = named "recipe.replace"
  replaced[box] = t
  return box
end

--- The contents of a recipe.replace{...}, or nil for any other value.
function marker.replacement(value)
  return type(value) == "table" and replaced[value] or nil
end

--- What a recipe file returns.
---@param parents string[]
---@param body table
---@return table
function marker.declare(parents, body)
  local box = named "recipe"
  declared[box] = { parents = parents, body = body }
  return box
end

---@return table|nil {parents, body}
function marker.declaration(value)
  return type(value) == "table" and declared[value] or nil
end

return marker
