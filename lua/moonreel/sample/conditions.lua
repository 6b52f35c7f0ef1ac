--- What a rendering is given beside its words: latents of reference files, and the end of the piece
-- before. Ref: opensora-1.2.md 3.2.
-- @module moonreel.sample.conditions
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local media = require "moonreel.core.media"
local strategy = require "moonreel.diffusion.strategy"

local conditions = {}

local Conditions = {}
Conditions.__index = Conditions

-- latents of a clip, with draws of the rendering's own
local function latents(codec, pixels, seed, key, epoch)
  local s = pixels.shape
  return codec:encode(pixels, codec:noise(s[1], s[3], s[4], seed, key, epoch)):clone()
end

local AT_ONCE = 16  -- frames of a reference that are held as they are shown

-- frames of a reference at the size of the rendering, as the reference scales them: pictures in
-- bytes, frames of videos in f32
local function covered(path, r)
  local facts, parts = data.scan(path), {}
  for start = 0, facts.frames - 1, AT_ONCE do
    local n = math.min(AT_ONCE, facts.frames - start)
    local pixels, shown = data.decode(path, {start = start, frames = n})
    parts[#parts + 1] = media.cover(T.from({n, 3, shown.height, shown.width}, pixels, "u8"),
      {height = r.height, width = r.width, picture = facts.image})
  end
  return #parts == 1 and parts[1] or G.concat(parts, 0)
end

local function scaled(path, r)
  local pixels = data.decode(path, {height = r.height, width = r.width})
  return T.from({#pixels // (3 * r.height * r.width), 3, r.height, r.width}, pixels, "u8")
end

-- what another pipeline has rendered; frames between bytes are for an autoencoder that takes them
local function rendered(clip, r, exact)
  local pixels = T.from({clip.frames, 3, clip.height, clip.width}, clip.pixels, "u8")
  if clip.height == r.height and clip.width == r.width then
    return pixels
  end
  return media.cover(pixels, {height = r.height, width = r.width,
    picture = clip.frames == 1 or not exact})
end

--- The conditions of one rendering.
---@param codec mr.Codec
---@param item table     words, seed, paths (of files, or clips), strategy of
---   moonreel.sample.request
---@param r table        of request.read: height, width, condition_length, condition_edit, align
---@param compat boolean|nil  references are scaled as the reference scales them
---@return table
function conditions.new(codec, item, r, compat)
  local self = setmetatable({codec = codec, item = item, request = r, references = {},
    groups = strategy.parse(item.strategy)}, Conditions)
  for i, path in ipairs(item.paths) do
    -- only an autoencoder of the reference takes pixels between bytes
    local read = compat and codec.auto.apart and covered or scaled
    if type(path) == "table" then
      read = function() return rendered(path, r, codec.auto.apart) end
    end
    local good, pixels = pcall(read, path, r)
    if not good and type(pixels) == "table" then
      base.raise(pixels.code, ("reference_path: reference %d cannot be read: %s"):format(i - 1,
        pixels.message))
    end
    assert(good, pixels)
    self.references[i] = latents(codec, pixels, item.seed, i, 0)
  end
  return self
end

--- Frames at the end of a piece that the next one needs; 0: none follows.
---@param loop integer  of the piece, from 0
function Conditions:kept(loop)
  local r = self.request
  return loop + 1 < r.loop and self.codec.auto:tail(r.frames, r.condition_length) or 0
end

--- Write what is given into the noise of a piece.
---@param z mr.Tensor          f32 [C, t, h, w]; changed in place
---@param loop integer         from 0
---@param before mr.Tensor|nil u8 [n, 3, H, W]: the kept end of the piece before
---@return table|nil           a number per latent frame: 1 is rendered, 0 kept; nil: nothing is
---   given
function Conditions:apply(z, loop, before)
  local r, references = self.request, table.move(self.references, 1, #self.references, 1, {})
  local groups = {}
  for _, group in ipairs(self.groups) do
    groups[#groups + 1] = group.loop == loop and group or nil
  end
  if before then
    references[#references + 1] = latents(self.codec, before, self.item.seed, 0, loop)
    groups[#groups + 1] = strategy.continue(loop, #references - 1, r.condition_length,
      r.condition_edit)
  end
  if #groups == 0 then
    return nil
  end
  return strategy.apply(z, groups, {references = references, loop = loop,
    align = r.align}):totable()
end

return conditions
