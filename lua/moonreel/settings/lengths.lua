--- Refuses, while baking, clip lengths for which all times of training or rendering are 0.
-- @module moonreel.settings.lengths
local lost = require("moonreel.diffusion.lengths").lost
local marker = require "moonreel.recipe.marker"

-- the largest share of a bucket's samples that any draw admits; 0: none
local function share(value)
  local p = type(value) == "table" and value[1] or 0
  return type(p) == "table" and math.min(p[1] or 0, p[2] or 0) or p
end

--- Checks the lengths in bucket_config and sampling.
---@param leaves table[]  {path, keys, value} of settings
---@return table|nil leaf   the first with an error
---@return string|nil text  the error
return function(leaves)
  local given = {}
  for _, leaf in ipairs(leaves) do
    local name = leaf.keys[1] == "scheduler" and leaf.keys[2] or leaf.path
    given[name] = leaf.value ~= marker.none and leaf.value or nil
  end
  -- a factor of 0 makes all times 0 for every length
  local factor = given.shift and "shift" or given.use_timestep_transform and "transform_scale"
  local at = "scheduler." .. tostring(factor)
  for _, leaf in ipairs(leaves) do
    local frames
    if leaf.path == at and leaf.value == 0 then
      return leaf, ("%s = 0: all times of training and rendering would be 0, and renderings "
        .. "black; expected more than 0; try: 1")
        :format(leaf.path)
    elseif leaf.path == "sampling.frames" then
      frames = leaf.value
    elseif leaf.keys[1] == "bucket_config" and given.job ~= "extract" and share(leaf.value) > 0 then
      frames = math.tointeger(tonumber(leaf.keys[3]))
    end
    local why = math.type(frames) == "integer" and lost(given, frames)
    if why then
      return leaf, ("%s: %s"):format(leaf.path, why)
    end
  end
end
