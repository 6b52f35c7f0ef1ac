--- The hash of settings: over every leaf with affects = "run" in canonical form. It is equal for
-- all processes, orders of keys, ways to split a recipe into parents, spellings, 4 and 4.0. Ref:
-- recipes.md 5. A leaf without a value is left out, so that a version with a new optional field
-- gives old recipes their old hashes.
-- @module moonreel.settings.hash
local base = require "moonreel.core.base"
local marker = require "moonreel.recipe.marker"
local sorted_keys = require("moonreel.recipe.environment").sorted_keys

local hash = {}

-- One text for each value: its type, then its content in a fixed form or after its length.
local function canonical(value)
  if value == marker.none then
    return "none"
  end
  if type(value) == "boolean" then
    return tostring(value)
  end
  if type(value) == "number" then
    -- 4 and 4.0 are the same value
    local whole = math.tointeger(value)
    return whole and whole .. "" or ("%.17g"):format(value)
  end
  if type(value) == "string" then
    return ("%d:%s"):format(#value, value)
  end
  if value == marker.previous then
    return "previous"
  end
  local parts, count = {}, 0
  for _ in next, value do
    count = count + 1
  end
  if count == #value then
    for i = 1, count do
      parts[i] = i .. "=" .. canonical(value[i])
    end
  else
    for i, key in ipairs(sorted_keys(value)) do
      parts[i] = canonical(key) .. "=" .. canonical(value[key])
    end
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- texts of lists and maps, which never change: all bakes share the tables of defaults
local texts = setmetatable({}, { __mode = "k" })

local function text_of(value)
  if type(value) ~= "table" or value == marker.previous then
    return canonical(value)
  end
  texts[value] = texts[value] or canonical(value)
  return texts[value]
end

--- The hash of leaves.
---@param leaves table[]  {path, value, schema}
---@return string hex of 32 digits
function hash.of(leaves)
  local lines = {}
  for _, leaf in ipairs(leaves) do
    if leaf.affects == "run" and leaf.value ~= marker.none then
      lines[#lines + 1] = leaf.path .. "\t" .. text_of(leaf.value)
    end
  end
  table.sort(lines)
  return base.hash128(table.concat(lines, "\n"))
end

return hash
