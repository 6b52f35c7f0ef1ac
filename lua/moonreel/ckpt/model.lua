--- Finds the model of a weight file by the names of its tensors, under any prefix. Families of
-- models declare how to recognize them (models/FAMILY/weights.lua, `kinds`).
-- @module moonreel.ckpt.model
local base = require "moonreel.core.base"
local families = require "moonreel.recipe.families"
local start = require "moonreel.ckpt.start"

local model = {}

-- calls f(kind, family) for all kinds of all families, in order, until it returns something
local function each_kind(f)
  for _, family in ipairs(families.all()) do
    local map = family:open "weights"
    for _, kind in ipairs(map and map.kinds or {}) do
      local found = f(kind, family)
      if found then
        return found
      end
    end
  end
end

-- the largest number that a pattern finds in names, plus one, since counting begins at 0
local function count(has, pattern)
  local most = 0
  for name in pairs(has) do
    local n = math.tointeger(tonumber(name:match(pattern)))
    most = math.max(most, n and n + 1 or 0)
  end
  return most
end

-- what a kind says about a file
local function described(kind, source, has)
  local facts = {}
  for _, row in ipairs(kind.facts) do
    local name, tensor, axis = table.unpack(row, 1, 3)
    local shape = axis and has[tensor] and source:info(has[tensor]).shape or {}
    local value = axis and shape[axis] or not axis and count(has, tensor) or nil
    facts[#facts + 1] = value and { name = name, value = value } or nil
  end
  return { name = kind.name, facts = facts }
end

--- The model that the names of a file belong to.
---@param source mr.Checkpoint
---@return table|nil  name; facts: {name, value}; nil: no family recognizes them
function model.of(source)
  local has = start.bare(source)
  return each_kind(function(kind)
    return kind.is(has) and described(kind, source, has) or nil
  end)
end

--- The family of a file, for one of these records.
---@param source mr.Checkpoint
---@param ... string      "vae", "text_encoder", "clip"
---@return mr.Family      the only one that recognizes its tensors
function model.family(source, ...)
  local has, records, known = start.bare(source), { ... }, {}
  local function stands(family)
    for _, record in ipairs(records) do
      if family:stands(record) then
        return true
      end
    end
    return false
  end
  each_kind(function(kind, family)
    if known[#known] ~= family and stands(family) and family:has "init" and kind.is(has) then
      known[#known + 1] = family
    end
  end)
  if known[2] then
    base.raise("MR_E_CKPT", ("%s: families %s and %s both match these tensors; try: change `kinds` "
      .. "in their weights.lua so that one matches"):format(source.path, known[1], known[2]))
  end
  return known[1] or base.raise("MR_E_CKPT", ("%s: no family of %s matches these tensors"):format(
    source.path, table.concat(records, " or ")))
end

--- The same as one line.
---@param found table  from model.of
---@return string
function model.text(found)
  local words = {}
  for i, fact in ipairs(found.facts) do
    words[i] = ("%s %d"):format(fact.name, fact.value)
  end
  return ("%s: %s"):format(found.name, table.concat(words, ", "))
end

return model
