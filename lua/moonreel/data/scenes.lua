--- Finds the scenes of a clip: a new scene begins at a frame that differs from the previous one
-- much more than its neighbours do. Blends and fades are not found. Ref: dataplane 7.
-- @module moonreel.data.scenes
local scenes = {}

-- A cut stands out from the frames around it; a fast movement changes all of them.
local AROUND, TIMES = 2, 3

--- Limits for cuts: difference of lightness to the previous frame, in levels of 255, and the least
-- seconds of a scene.
scenes.defaults = { threshold = 12, least_s = 1 }

-- the change of the frames around frame i, without the first frame, which has no change
local function around(changes, i)
  local sum, n = 0, 0
  for j = math.max(i - AROUND, 2), math.min(i + AROUND, #changes) do
    if j ~= i then
      sum, n = sum + changes[j], n + 1
    end
  end
  return n > 0 and sum / n or 0
end

local function is_peak(changes, i, threshold)
  return changes[i] >= threshold and changes[i] >= TIMES * around(changes, i)
end

-- A flash changes the picture and soon afterwards back again.
local function is_flash(changes, i, threshold)
  for j = math.max(i - AROUND, 1), math.min(i + AROUND, #changes) do
    if j ~= i and changes[j] >= threshold then
      return true
    end
  end
  return false
end

--- The scenes of a clip.
---@param changes number[]  change of each frame from the one before, 0 to 255
---@param fps number
---@param given? table      threshold, least_s, as scenes.defaults
---@return table[] ranges   {first frame from 0, frames}; a single range that covers the clip: no
---   cut
---@return integer short    number of scenes that are left out because they are shorter than least_s
function scenes.find(changes, fps, given)
  local o = setmetatable(given or {}, { __index = scenes.defaults })
  local firsts = { 0 }
  for i = 2, #changes do
    if is_peak(changes, i, o.threshold) and not is_flash(changes, i, o.threshold) then
      firsts[#firsts + 1] = i - 1
    end
  end
  local least, ranges = #firsts > 1 and o.least_s * fps - 1e-6 or 0, {}
  for n, first in ipairs(firsts) do
    local frames = (firsts[n + 1] or #changes) - first
    if frames >= least then
      ranges[#ranges + 1] = { first, frames }
    end
  end
  return ranges, #firsts - #ranges
end

return scenes
