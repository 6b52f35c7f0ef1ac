--- A clip as values that follow each other in time, so that a layer works on a part at a time and
-- earlier values are freed after they were read. Results equal those of the whole clip: a
-- convolution over earlier frames keeps the last ones (volume.Causal); norms first compute the
-- moments of all pieces (volume.GroupNorm). One piece is the whole clip. Channels last, [B, T, H,
-- W, C].
-- @module moonreel.nn.spans
local G = require "moonreel.core.graph"

local spans = {}

local TIME <const> = 1

local function frames(x) return x.shape[TIME + 1] end

--- Joins all pieces to one value.
---@param list mr.Value[]
---@return mr.Value
function spans.joined(list) return #list == 1 and list[1] or G.concat(list, TIME) end

--- The same clip in pieces of `frames` frames; the last has the rest.
---@param list mr.Value[]
---@param n integer       frames of a piece, 1 or more
---@return mr.Value[]
function spans.regrouped(list, n)
  local out, open, have = {}, {}, 0
  local function close()
    out[#out + 1] = spans.joined(open)
    open, have = {}, 0
  end
  for _, x in ipairs(list) do
    local at = 0
    while at < frames(x) do
      local some = math.min(n - have, frames(x) - at)
      open[#open + 1] = some == frames(x) and x or x:slice(TIME, at, at + some)
      at, have = at + some, have + some
      if have == n then
        close()
      end
    end
  end
  if have > 0 then
    close()
  end
  return out
end

--- The number of frames in a piece with `elements` elements; at least one.
---@param most integer|nil  elements; nil: no limit
---@return integer
function spans.frames(most, height, width, channels)
  return most and math.max(most // (height * width * channels), 1) or math.maxinteger
end

--- All pieces of an iterator.
---@param each fun(): mr.Value|nil
---@return mr.Value[]
function spans.all(each)
  local list = {}
  for x in each do
    list[#list + 1] = x
  end
  return list
end

return spans
