--- If a clip does not fit into memory, suggests sizes that fit, by planning shorter and smaller
-- clips.
-- @module moonreel.codec.fits
local base = require "moonreel.core.base"
local lengths = require "moonreel.codec.lengths"
local listing = require "moonreel.text.listing"

local fits = {}

-- the last element of a list for which f is true; f must be true for all elements before it
local function last_of(list, f)
  local low, high = 0, #list + 1
  while high - low > 1 do
    local middle = (low + high) // 2
    if f(list[middle]) then
      low = middle
    else
      high = middle
    end
  end
  return list[low]
end

-- the smaller numbers of frames that an autoencoder accepts
local function shorter(auto, frames)
  local list = {}
  for n = 1, frames - 1 do
    list[#list + 1] = lengths.fits(auto.lengths or "any", n) and n or nil
  end
  return list
end

-- smaller sizes with the same aspect ratio in whole cells, from small to large: {height, width}
local function smaller(auto, height, width)
  local list, parts = {}, 16
  for i = 1, parts - 1 do
    local function side(n) return n * i // parts // auto.side * auto.side end
    list[#list + 1] = math.min(side(height), side(width)) > 0 and { side(height), side(width) }
      or nil
  end
  return list
end

--- Clips of fewer frames, and of smaller pictures, that fit.
---@param auto mr.Autoencoder
---@param frames integer   of the clip that does not fit
---@param height integer
---@param width integer
---@param takes fun(frames: integer, height: integer, width: integer): number  bytes
---@param free number      bytes
---@return integer|nil frames    nil: not even one frame fits
---@return integer[]|nil sides  {height, width}, with all frames; nil: no smaller picture fits
function fits.smaller(auto, frames, height, width, takes, free)
  return last_of(shorter(auto, frames), function(n)
    return takes(n, height, width) <= free
  end), last_of(smaller(auto, height, width), function(one)
    return takes(frames, one[1], one[2]) <= free
  end)
end

-- the smallest of these numbers of ranks for which the rows of each rank fit
local function ranks_for(codec, free, ...)
  for _, n in ipairs { 2, 4, 8 } do
    local bytes = codec:bytes_by(n, ...)
    if bytes and bytes <= free then
      return n
    end
  end
end

--- If a job failed because of memory, raises an error that says what fits.
---@param codec mr.Codec
---@param job string      "encode" or "decode"
---@param s table         frames, height, width; without height and width they follow from size {C,
---   t, h, w}
---@param problem any     error of the job; errors that are not about memory are left alone
function fits.explain(codec, job, s, problem)
  if type(problem) ~= "table" or problem.code ~= "MR_E_MEMORY" or not codec.device then
    return
  end
  local auto, free = codec.auto, (codec.device:memory())
  local height, width = s.height or s.size[3] * auto.side, s.width or s.size[4] * auto.side
  local function takes(...) return codec:bytes(job, ...) end
  local all = takes(s.frames, height, width)
  if all <= free then
    return
  end
  local frames, sides = fits.smaller(auto, s.frames, height, width, takes, free)
  local tries = {}
  tries[1] = frames and ("%d frames"):format(frames)
  tries[#tries + 1] = sides and ("%d x %d pixels"):format(sides[1], sides[2])
  local ranks = ranks_for(codec, free, job, s.frames, height, width)
  tries[#tries + 1] = ranks and ("%d ranks with plugin_config_ae.sp_size = %d"):format(ranks, ranks)
  tries[1] = tries[1] or "more memory"
  base.raise("MR_E_MEMORY", ("%s: %d frames of %d x %d need about %s in addition to the weights, "
    .. "but only %s are free; try: %s"):format(job, s.frames, height, width, listing.size(all),
    listing.size(free), table.concat(tries, ", or ")))
end

return fits
