--- An autoencoder that lies apart: what its latents are to the model of a run.
-- @module moonreel.models.latents
local ops = require "moonreel.core.op"

local latents = {}

local Latents = {}

--- A class of autoencoders; a family adds methods to it.
---@return table class  of objects with scale and shift, where scaled and unscaled are used
function latents.class()
  local class = setmetatable({}, { __index = Latents })
  class.__index = class
  return class
end

--- What stands for tokens where work is counted: latent cells.
function Latents.grid(_, frames, rows, cols) return frames, rows, cols end

--- Latents as a model takes them, of draws: scale (z - shift).
---@param z mr.Value  f32
---@return mr.Value   like z
function Latents:scaled(z)
  return (ops.affine(z, { scale = self.scale, shift = -self.scale * self.shift }))
end

--- Draws, of latents.
---@param z mr.Value  f32
---@return mr.Value   like z
function Latents:unscaled(z)
  return (ops.affine(z, { scale = 1 / self.scale, shift = self.shift }))
end

return latents
