--- The losses for training an autoencoder, per sample. Ref: opensora-2.0.md 13.
-- @module moonreel.losses
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local perceptual = require "moonreel.losses.perceptual"
local adversarial = require "moonreel.losses.adversarial"

local losses = {}

-- the sum over all values of a sample: [B, ...] -> [B]
local function each(x, B)
  return (ops.sum(x:reshape { B, T.count(x.shape) // B }, { axes = { 1 } }))
end

-- |x| with gradient 0 at 0
local function absolute(x)
  local function positive(v) return (ops.clamp(v, { low = 0, high = 3e38 })) end
  return positive(x) + positive(x * -1)
end

--- The sum of absolute differences over a clip, divided by its number of frames.
---@param y mr.Value  f32 [B, T, H, W, C]
---@param x mr.Value  likewise
---@return mr.Value   f32 [B]
function losses.absolute(y, x)
  local B, frames = x.shape[1], x.shape[2]
  return each(absolute(x - y), B) * (1 / frames)
end

--- The KL divergence from the latent's normal distribution to the standard normal, summed over the
-- latent.
---@param normal table  mean, logvar: f32 [B, ...]
---@return mr.Value     f32 [B]
function losses.divergence(normal)
  local terms = normal.mean * normal.mean + ops.exp(normal.logvar) - normal.logvar
  return each(ops.affine(terms, { scale = 0.5, shift = -0.5 }), normal.mean.shape[1])
end

--- Prepares the inputs of Losses:of for clips.
---@param x mr.Value         f32 [B, T, H, W, C]
---@param y mr.Value         likewise: the reconstructions
---@param last string        the parameter of the layer that produces y
---@param normal table|nil   distribution of the latent: mean, logvar
---@param share mr.Shared|nil the ranks that share the clips
---@return table
function losses.of_clips(x, y, last, normal, share)
  local _, _, H, W, C = table.unpack(x.shape)
  return { kl = normal and losses.divergence(normal), x = x, y = y, last = last,
    share = share, per_frame = H * W * C }
end

---@class mr.Losses
---@field names string[]            names of the terms in the journal
---@field kl_weight number
---@field perceptual_weight number
---@field network mr.Perceptual?
---@field adversary mr.Adversary?
local Losses = {}
Losses.__index = Losses

--- Creates the losses that are added to the error of an autoencoder. Declares the networks that
-- they need, after the autoencoder's own parameters.
---@param params mr.Params
---@param config table   of a recipe's vae_loss_config: kl_loss_weight, perceptual_loss_weight,
---   perceptual_network, perceptual_linear; adversary: as adversarial.new takes it, or nil
---@param defaults table kl, perceptual: default weights; kl nil: the latent is not random;
---   adversary: whether an adversary is allowed
---@return mr.Losses     MR_E_RECIPE: a weight of a loss that is not available
function losses.new(params, config, defaults)
  local self = setmetatable({ kl_weight = config.kl_loss_weight or defaults.kl or 0,
    names = { "reconstruction" },
    perceptual_weight = config.perceptual_loss_weight or defaults.perceptual or 0 }, Losses)
  if config.adversary and not defaults.adversary then
    base.raise("MR_E_RECIPE", "discriminator.type: a discriminator works only with model.type = "
      .. "hunyuan_vae or dc_ae; try: discriminator.type = recipe.none")
  elseif config.adversary then
    self.adversary = adversarial.new(params, config.adversary)
  end
  if self.perceptual_weight > 0 then
    self.names[#self.names + 1] = "perceptual"
    self.network = perceptual.new(params, { network = config.perceptual_network,
      linear = config.perceptual_linear })
  end
  if defaults.kl then
    self.names[#self.names + 1] = "kl"
  elseif self.kl_weight > 0 then
    base.raise("MR_E_RECIPE", ("kl_loss_weight = %g: the latents of this autoencoder are not "
      .. "random, so it has no KL loss; try: 0")
      :format(self.kl_weight))
  end
  if self.adversary then
    table.move(adversarial.names, 1, #adversarial.names, #self.names + 1, self.names)
  end
  return self
end

--- Refuses missing files.
function Losses:check()
  if self.network then
    self.network:check()
  end
end

--- Loads the networks from their files.
---@param exec mr.Exec
---@param params mr.Params
---@param fresh boolean|nil  nothing else fills the trained parameters
function Losses:load(exec, params, fresh)
  if self.network then
    self.network:load(exec, params)
  end
  if self.adversary and fresh then
    self.adversary.network:load(exec, params)
  end
end

--- The number of moments that `of` returns.
---@return integer
function Losses:moments() return self.adversary and 9 * self.adversary.network:channels() or 0 end

-- the perceptual distance of a batch's frames, in the unit of its error: f32 [B]
local function perceived(self, g, clip)
  local B, frames, H, W, C = table.unpack(clip.x.shape)
  if C ~= 3 then
    base.raise("MR_E_SHAPE", ("the perceptual loss needs pictures of 3 channels, but these have %d")
      :format(C))
  end
  local function pictures(v) return v:reshape { B * frames, 1, H, W, C } end
  local distance = self.network:distance(g, pictures(clip.x), pictures(clip.still))
  return each(distance, B) * (clip.per_frame / frames)
end

-- the weighted loss of a batch
local function weighed(value, io) return (ops.sum(value * io.weight)) end

--- The losses of a batch.
---@param g mr.Graph
---@param clip table   error: f32 [B], error of the reconstruction; nil: absolute differences; kl:
---   f32 [B] or nil, of the latent; x, y: f32 [B, T, H, W, C], the clips and their reconstructions;
---   per_frame: number of values of a frame that the error sums, 1 if it is a mean; last: as for
---   of_clips
---@param io table     weight: f32 [B]; with an adversary also seed, keys, epoch of its draws
---@return table       train: f32 scalar, whose gradients train; per_sample: f32 [B]; terms before
---   their weights by name, f32 [B] each; moments: f32 [n, 3] of an adversary
function Losses:of(g, clip, io)
  -- with an adversary the gradients of the losses are added at the reconstruction
  clip.still = self.adversary and g:detach(clip.y) or clip.y
  local terms = { kl = clip.kl }
  terms.reconstruction = clip.error or losses.absolute(clip.still, clip.x)
  local all = terms.reconstruction
  if self.network then
    terms.perceptual = perceived(self, g, clip)
    all = all + terms.perceptual * self.perceptual_weight
  end
  local latent = clip.kl and clip.kl * self.kl_weight
  if not self.adversary then
    all = latent and all + latent or all
    return { train = weighed(all, io), per_sample = all, terms = terms }
  end
  local train, more = self.adversary:of(g, clip, all, io)
  for _, name in ipairs(adversarial.names) do
    terms[name] = more[name]
  end
  all = all + more.generator
  return { train = latent and train + weighed(latent, io) or train,
    per_sample = latent and all + latent or all, terms = terms, moments = more.moments }
end

return losses
