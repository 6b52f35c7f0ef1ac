--- A separate autoencoder: how its latents are used by the model of a run.
-- @module moonreel.models.latents
local base = require "moonreel.core.base"
local channels = require "moonreel.nn.channels"
local families = require "moonreel.recipe.families"
local ops = require "moonreel.core.op"
local shared = require "moonreel.nn.shared"
local volume = require "moonreel.nn.volume"

local latents = {}

-- reach: most rows of cells that its convolutions read of a neighbour
local Latents = { reach = 1 }

--- The sizes in place of a transformer's, if only an autoencoder trains: ranks share no tokens.
latents.ALONE = { depth = 0, hidden_size = 0 }

--- A class of autoencoders; a family adds methods to it.
---@param cuts table|nil  what ranks can share of its clips: rows, channels: true if they can. A
---   family's module has it as `cuts`, too
---@return table class     of objects with scale and shift, if scaled and unscaled are used
function latents.class(cuts)
  local class = setmetatable({ cuts = cuts or {} }, { __index = Latents })
  class.__index = class
  return class
end

-- types of autoencoders whose clips ranks can share in this way
local function that_share(what)
  local list = {}
  for _, family in ipairs(families.all()) do
    local cuts = family:stands "vae" and family:has "init" and family:open "init".cuts
    for type in pairs(cuts and cuts[what] and family.fields.types or {}) do
      list[#list + 1] = type
    end
  end
  table.sort(list)
  return table.concat(list, ", ")
end

--- Shares the clips of an autoencoder: all ranks have their pixels and get all of their latents.
---@param auto mr.Autoencoder
---@param share mr.Shared
function latents.share(auto, share)
  if not (auto.cuts and auto.cuts[share.by]) then
    base.raise("MR_E_RECIPE", ("%s = %d: ranks cannot share the %s of this autoencoder's clips, "
      .. "only with types %s; try: %s = 1"):format(share.field, share.ranks, share.by,
      that_share(share.by), share.field))
  end
  auto:share_over(share)
end

--- Shares each clip among ranks.
---@param share mr.Shared|nil  nil: this rank has all
function Latents:share_over(share)
  if share and share.by == "channels" then
    channels.check(share, self:channel_counts())
  elseif share then
    share.pixels, share.reach = self.side, self.reach
  end
  self.share = share
end

--- Applies layers from pixels to latents, to the rows of this rank.
---@param x mr.Value  [B, T, H, W, C]
---@param layers fun(x: mr.Value): mr.Value
---@return mr.Value   of all ranks
function Latents:down(g, x, layers)
  return shared.through(g, self.share, x, self.side, layers, next(self.tiles.encode) ~= nil)
end

--- The same from latents to pixels.
---@param x mr.Value
---@param layers fun(x: mr.Value): mr.Value
---@return mr.Value
function Latents:up(g, x, layers)
  return shared.through(g, self.share, x, 1, layers, next(self.tiles.decode) ~= nil)
end

--- Refuses heights that are not whole cells, if ranks share rows of pictures: otherwise the rest
-- would be lost level by level instead of at the end.
---@param height integer  pixels
function Latents:check_rows(g, height)
  local share, side = self.share, self.side
  if shared.rows(g) and height % side ~= 0 then
    base.raise("MR_E_SHAPE", ("%s = %d: pictures are %d pixels high, but ranks share rows of cells "
      .. "of %d; try: a height of %d or %d"):format(share.field, share.ranks, height, side,
      math.max(height // side, 1) * side, (height // side + 1) * side))
  end
end

--- What counts as tokens when work is counted: latent cells.
function Latents.grid(_, frames, rows, cols) return frames, rows, cols end

-- u8 [B, T, 3, H, W] to [B, T, H, W, 3] of -1..1
local function pixels_as(pixels, dtype)
  local B, frames, C, H, W = table.unpack(pixels.shape)
  return volume.pixels(pixels:reshape { B * frames, C, H, W }, frames, dtype)
end

--- A batch of clips in the form for the layers.
---@param pixels mr.Value  u8 [B, T, 3, H, W]
---@return mr.Value        [B, T, H, W, 3] of -1..1, in its dtype
function Latents:layers_of(pixels) return pixels_as(pixels, self.dtype) end

--- The best possible reconstruction of a batch of clips.
---@param pixels mr.Value  u8 [B, T, 3, H, W]
---@return mr.Value        f32 [B, T, H, W, 3] of -1..1
function Latents.target_of(_, pixels) return pixels_as(pixels, "f32") end

--- The sizes of clips in training: whole cells, so that results have the size of inputs.
---@param pixels mr.Value  u8 [B, T, 3, H, W]
---@return integer frames, integer height, integer width
function Latents:clip_of(pixels)
  local _, frames, _, H, W = table.unpack(pixels.shape)
  local side = self.side
  if H % side ~= 0 or W % side ~= 0 then
    base.raise("MR_E_SHAPE", ("clips of %d x %d: this autoencoder trains only on multiples of "
      .. "%d; try: a resolution of %d x %d"):format(H, W, side, math.max(H // side, 1) * side,
      math.max(W // side, 1) * side))
  end
  return frames, H, W
end

--- Latents for a model from draws: scale (z - shift).
---@param z mr.Value  f32
---@return mr.Value   like z
function Latents:scaled(z)
  return (ops.affine(z, { scale = self.scale, shift = -self.scale * self.shift }))
end

--- Draws from latents.
---@param z mr.Value  f32
---@return mr.Value   like z
function Latents:unscaled(z)
  return (ops.affine(z, { scale = 1 / self.scale, shift = self.shift }))
end

return latents
