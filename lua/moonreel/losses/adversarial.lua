--- Trains an autoencoder against a discriminator. One forward pass serves both: the discriminator
-- judges the reconstruction once. The gradient of this judgement goes to the autoencoder in one
-- loss, and to the discriminator in the other. Ref: Goodfellow et al. 2014, arXiv:1406.2661; Esser
-- et al. 2021, arXiv:2012.09841 (the adaptive weight); opensora-2.0.md 13.
-- @module moonreel.losses.adversarial
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local discriminator = require "moonreel.losses.discriminator"

local adversarial = {}

local LEAST <const> = 1e-4   -- added to the length of the generator's gradient
local MOST <const> = 1e4     -- largest adaptive weight
local WEIGHT <const> = 0.05  -- default weight of the adversarial loss
local GEN_START <const> = 2001
local INFINITE <const> = 3e38
local TINY <const> = 1e-30   -- used in place of 0 as the weight of a batch

--- Names of the terms in the journal.
adversarial.names = { "generator", "generator_weight", "discriminator" }

local function relu(x) return (ops.clamp(x, { low = 0, high = INFINITE })) end

-- log(1 + exp(x)) = relu(x) + log(1 + exp(-|x|)). The logarithm uses the series of artanh, as u is
-- in (0, 1]: log(1 + u) = 2 artanh(z), z = u / (2 + u) in (0, 1/3].
local function softplus(x)
  local u = ops.exp((ops.affine(relu(x) + relu(x * -1), { scale = -1 })))
  local z = u / ops.affine(u, { scale = 1, shift = 2 })
  local square, sum = z * z, nil
  for k = 15, 1, -2 do
    sum = sum and ops.affine(sum * square, { scale = 1, shift = 1 / k }) or nil
    sum = sum or ops.affine(square, { scale = 0, shift = 1 / k })
  end
  return relu(x) + z * ops.affine(sum, { scale = 2 })
end

local function mean(x) return (ops.mean(x, { axes = { 1 } })) end

-- losses by kind: from real and fake [B, patches] to [B]
local kinds = {}

function kinds.hinge(real, fake)
  return mean(relu((ops.affine(real, { scale = -1, shift = 1 }))))
    + mean(relu((ops.affine(fake, { scale = 1, shift = 1 }))))
end

function kinds.vanilla(real, fake) return mean(softplus(real * -1)) + mean(softplus(fake)) end

kinds["wgan-gp"] = function(real, fake) return mean(fake) - mean(real) end

--- The loss of a discriminator, per sample.
---@param kind string     "hinge", "vanilla", "wgan-gp" (without a penalty of gradients)
---@param real mr.Value   f32 [B, patches]
---@param fake mr.Value   likewise
---@return mr.Value       f32 [B]
function adversarial.loss(kind, real, fake)
  return (ops.affine(kinds[kind](real, fake), { scale = 0.5 }))
end

local function length(x) return ops.sqrt((ops.sum(x * x))) end

--- The weight of the generator's loss, which gives its gradient at the last layer the length of the
-- gradient of the other loss.
---@param of_error mr.Value      gradient of the other loss at the last layer's weight
---@param of_generator mr.Value  gradient of the generator's loss there
---@param scale number
---@return mr.Value              f32 [1]
function adversarial.weight(of_error, of_generator, scale)
  local ratio = length(of_error):reshape { 1 }
    / ops.affine(length(of_generator):reshape { 1 }, { scale = 1, shift = LEAST })
  return (ops.affine(ops.clamp(ratio, { low = 0, high = MOST }), { scale = scale }))
end

---@class mr.Adversary
---@field network mr.Discriminator
local Adversary = {}
Adversary.__index = Adversary

--- Declares the discriminator.
---@param params mr.Params
---@param config table  discriminator, gen (gen_start, disc_weight), disc (disc_start,
---   disc_loss_type): records of a recipe
---@return mr.Adversary
function adversarial.new(params, config)
  local gen, disc = config.gen or {}, config.disc or {}
  return setmetatable({ network = discriminator.new(params, config.discriminator),
    scale = gen.disc_weight or WEIGHT, kind = disc.disc_loss_type or "hinge",
    starts = { generator = gen.gen_start or GEN_START, discriminator = disc.disc_start or 0 } },
    Adversary)
end

--- Sets which losses count in an update.
---@param prog mr.Program
---@param update integer  number of the update, from 1
function Adversary:set(prog, update)
  for name, start in pairs(self.starts) do
    prog:set(name .. " counts", T.from({ 1 }, { update >= start and 1 or 0 }))
  end
end

-- the weighted mean over samples
local function average(value, io)
  local all = ops.affine(ops.sum(io.weight), { scale = 1, shift = TINY })
  return ops.sum(value * io.weight) / all
end

-- The gradient of a loss at the last weight, computed from its gradient at the clips. Each rank
-- that shares the clips computes a part.
local function at_last(g, clip, gradient)
  local moved = ops.sum(clip.y * g:detach(gradient))
  local found = g:gradients(moved, { g:param(clip.last) })[1]
  return clip.share and (ops.sum(clip.share:each(g, found), { axes = { 0 } })) or found
end

--- Both losses of a batch.
---@param g mr.Graph
---@param clip table       x: clips, y: reconstructions, f32 [B, T, H, W, C]; last: name of the
---   parameter that produces y; still: y as a constant; share: the ranks that share the clips
---@param error mr.Value   f32 [B]: the other loss, computed from `still`
---@param io table         weight; seed, keys, epoch of the draws
---@return mr.Value        f32 scalar: the sum of all losses, whose gradients train
---@return table           generator, generator_weight, discriminator: f32 [B]; moments: f32 [n, 3]
function Adversary:of(g, clip, error, io)
  if clip.x.shape[5] ~= self.network.inputs then
    base.raise("MR_E_RECIPE", ("discriminator.input_nc is %d, but clips have %d channels; try: %d")
      :format(self.network.inputs, clip.x.shape[5], clip.x.shape[5]))
  end
  local dtype, B = g:param(clip.last).dtype, clip.x.shape[1]
  local function opinion(v, what) return self.network:forward(g, nn.cast(v, dtype), io, what) end
  local fake, of_fake = opinion(clip.still, "fake")
  local real, of_real = opinion(clip.x, "real")
  local generator = mean(fake) * -1
  local of_error = g:gradients(average(error, io), { clip.still })[1]
  local of_generator = g:gradients(average(generator, io), { clip.still })[1]
  local weight = adversarial.weight(at_last(g, clip, of_error), at_last(g, clip, of_generator),
    self.scale)
  local counts = g:input("generator counts", "f32", { 1 })
  local own = g:detach(weight * counts)
  -- here gradients are sums over samples
  local all = ops.sum(io.weight):reshape { 1 }
  local toward = g:detach((of_error + of_generator * own:reshape { 1, 1, 1, 1, 1 })
    * all:reshape { 1, 1, 1, 1, 1 })
  local judged = adversarial.loss(self.kind, real, fake)
    * g:input("discriminator counts", "f32", { 1 })
  -- every rank that shares the clips computes the discriminator's gradient, and these are summed
  local found = 1 / (clip.share and clip.share.ranks or 1)
  local train = ops.sum(clip.y * toward) + ops.sum(judged * io.weight) * found
  return train, { generator = generator * own, discriminator = judged,
    generator_weight = weight:expand { B } * 1, moments = { of_fake, of_real, of_fake } }
end

return adversarial
