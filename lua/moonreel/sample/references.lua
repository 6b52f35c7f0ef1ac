--- Reads the files and clips that are given to a rendering, at its size, and encodes them.
-- @module moonreel.sample.references
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local media = require "moonreel.core.media"

local references = {}

local AT_ONCE = 16  -- frames of a reference in memory at their own size

-- frames of a reference at the size of the rendering, scaled as in the reference implementation:
-- pictures in bytes, frames of videos in f32
local function covered(path, r, start, count)
  local parts, picture = {}, data.scan(path).image
  for from = start, start + count - 1, AT_ONCE do
    local n = math.min(AT_ONCE, start + count - from)
    local pixels, shown = data.decode(path, {start = from, frames = n})
    parts[#parts + 1] = media.cover(T.from({n, 3, shown.height, shown.width}, pixels, "u8"),
      {height = r.height, width = r.width, picture = picture})
  end
  return #parts == 1 and parts[1] or G.concat(parts, 0)
end

local function scaled(path, r, start, count)
  local pixels = data.decode(path, {height = r.height, width = r.width, start = start,
    frames = count})
  return T.from({count, 3, r.height, r.width}, pixels, "u8")
end

-- frames that another pipeline has rendered, with fractions of a byte if the autoencoder takes them
local function rendered(clip, r, start, count, exact)
  local pixels = T.from({clip.frames, 3, clip.height, clip.width}, clip.pixels, "u8")
    :slice(0, start, start + count)
  if clip.height == r.height and clip.width == r.width then
    return pixels
  end
  return media.cover(pixels:clone(), {height = r.height, width = r.width,
    picture = clip.frames == 1 or not exact})
end

-- runs f; an error names the reference
local function about(i, f, ...)
  local good, result = pcall(f, ...)
  if not good and type(result) == "table" then
    base.raise(result.code, ("reference_path: reference %d cannot be read: %s"):format(i - 1,
      result.message))
  end
  return assert(good and result, result)
end

--- The number of frames of a reference.
---@param paths table  files, or clips as moonreel.sample renders them
---@param i integer    number of the reference, from 1
---@return integer
function references.frames(paths, i)
  local one = paths[i]
  return type(one) == "table" and one.frames or about(i, data.scan, one).frames
end

--- Pixels of a reference.
---@param paths table    as in references.frames
---@param i integer
---@param r table        height, width
---@param how table      exact: scaled as in the reference implementation, for an autoencoder that
---   takes fractions of a byte; compat; start, frames: nil for all
---@return mr.Tensor     u8 or f32 [n, 3, H, W]
function references.pixels(paths, i, r, how)
  local one, start = paths[i], how.start or 0
  local count = how.frames or references.frames(paths, i) - start
  if type(one) == "table" then
    return rendered(one, r, start, count, how.exact)
  end
  return about(i, how.compat and how.exact and covered or scaled, one, r, start, count)
end

--- Latents of a clip, with draws of the rendering's own.
---@param codec mr.Codec
---@param pixels mr.Tensor
---@param seed integer
---@param key integer
---@param epoch integer
---@return mr.Tensor        f32 [C, n, h, w]
function references.latents(codec, pixels, seed, key, epoch)
  local s = pixels.shape
  return codec:encode(pixels, codec:noise(s[1], s[3], s[4], seed, key, epoch)):clone()
end

return references
