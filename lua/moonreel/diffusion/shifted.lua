--- The flow of Open-Sora 2.0: the model predicts noise - x0, and the more cells a clip has, the
-- more its times move towards noise. t runs from 0 (clean) to 1000 (noise); with u = t / 1000,
-- x_t = (1 - u) x0 + (u + sigma_min (1 - u)) noise, whose derivative by u is
-- (1 - sigma_min) noise - x0. Ref: opensora-2.0.md 2.2, 2.3; Lipman et al. 2023, arXiv:2210.02747.
-- @module moonreel.diffusion.shifted
local base = require "moonreel.core.base"
local flow = require "moonreel.diffusion.flow"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local shift = require "moonreel.diffusion.shift"

local shifted = {}

-- the reference trains as if a token had a patch of 2 x 2 cells, whatever its patch
local CELLS_THEN <const> = 4

--- Draw the training time of one sample. A run in bf16 holds it so.
---@param settings table  compat
---@param pipe mr.Pipeline
---@param size table       latent: {C, T, H, W}
---@param seed integer
---@param key integer      sample key
---@param epoch integer
---@return number t        0..1000
function shifted.draw(settings, pipe, size, seed, key, epoch)
  local cells = settings.compat and CELLS_THEN or pipe.model.config.patch_size ^ 2
  local alpha = shift.alpha({table.unpack(size.latent, 2)}, cells)
  local t = shift.logit_normal(base.random_normal(seed, "t", key, epoch), alpha)
  return flow.T * (pipe.dtype == "bf16" and nn.round_bf16(t) or t)
end

--- Add the loss of a batch: the mean square of what the model is off.
---@param io table   x0, noise: f32 [B, C, T, H, W]; t, weight: f32 [B]; mask: bool [B, T] or nil,
---   true where a frame counts; sigma_min: noise that a clean clip keeps; predict(x_t): the model
---@return mr.Value loss         f32 [], sum of weight x per-sample loss
---@return mr.Value per_sample   f32 [B]
---@return table                 x_t, pred
function shifted.loss(io)
  local noise, kept = io.noise, ops.affine(io.noise, {scale = io.sigma_min})
  local x_t = (ops.flow_mix(io.x0 + kept, noise, io.t, false))
  local pred = io.predict(x_t)
  local loss, per_sample = ops.flow_loss(pred, noise - kept, io.x0, io.weight, io.mask or false)
  return loss, per_sample, {x_t = x_t, pred = pred}
end

return shifted
