--- What the model gets in addition to the prompt: latents of reference files, and the end of the
-- previous piece. Ref: opensora-1.2.md 3.2.
-- @module moonreel.sample.conditions
local references = require "moonreel.sample.references"
local strategy = require "moonreel.diffusion.strategy"

local conditions = {}

local Conditions = {}
Conditions.__index = Conditions

--- The conditions of one rendering.
---@param codec mr.Codec
---@param item table     words, seed, paths (of files, or clips), strategy: from
---   moonreel.sample.request
---@param r table        from request.read: height, width, condition_length, condition_edit, align
---@param compat boolean|nil  references are scaled as the reference scales them
---@return table
function conditions.new(codec, item, r, compat)
  local self = setmetatable({codec = codec, item = item, request = r, references = {},
    groups = strategy.parse(item.strategy)}, Conditions)
  for i in ipairs(item.paths) do
    -- only an autoencoder of the reference takes pixels with fractions of a byte
    local pixels = references.pixels(item.paths, i, r, {exact = codec.auto.apart, compat = compat})
    self.references[i] = references.latents(codec, pixels, item.seed, i, 0)
  end
  return self
end

--- Number of frames at the end of a piece that the next piece needs; 0 if no piece follows.
---@param loop integer  of the piece, from 0
function Conditions:kept(loop)
  local r = self.request
  return loop + 1 < r.loop and self.codec.auto:tail(r.frames, r.condition_length) or 0
end

--- Writes the given frames into the noise of a piece.
---@param z mr.Tensor          f32 [C, t, h, w]; changed in place
---@param loop integer         from 0
---@param before mr.Tensor|nil u8 [n, 3, H, W]: the kept end of the previous piece
---@return table|nil           a number per latent frame: 1 is rendered, 0 kept; nil: no frame is
---   given
function Conditions:apply(z, loop, before)
  local r, latents = self.request, table.move(self.references, 1, #self.references, 1, {})
  local groups = {}
  for _, group in ipairs(self.groups) do
    groups[#groups + 1] = group.loop == loop and group or nil
  end
  if before then
    latents[#latents + 1] = references.latents(self.codec, before, self.item.seed, 0, loop)
    groups[#groups + 1] = strategy.continue(loop, #latents - 1, r.condition_length,
      r.condition_edit)
  end
  if #groups == 0 then
    return nil
  end
  return strategy.apply(z, groups, {references = latents, loop = loop,
    align = r.align}):totable()
end

return conditions
