--- Parts of a pipeline whose results come from outside the step: latents of clips, features of
-- captions. A plan puts them in place of an encoder that this program does not build yet; the
-- transformer's graph is the real one, the encoder's weights and operations are told by formula.
-- @module moonreel.plan.given
local closed = require "moonreel.plan.closed"

local given = {}

local Latents = {}
Latents.__index = Latents

--- Latents as an input of the graph.
function Latents:encode(g, pixels)
  local s = pixels.shape
  local size = self:latent(s[2], s[4], s[5])
  return g:input("latents", "f32", { s[1], size[1], size[2], size[3], size[4] })
end

local Features = {}
Features.__index = Features

function Features:inputs(g, B)
  return { y = g:input("text", self.dtype, { B, self.max_length, self.width }),
    len = g:input("text_len", "i32", { B }) }
end

function Features.forward(_, _, inputs)
  return inputs.y
end

-- by type: what is known of an encoder without its graph
local known = {}

function known.OpenSoraVAE_V1_2(fields)
  local group = fields.micro_frame_size
  return setmetatable({
    channels = 4, parameters = closed.opensora_vae.parameters,
    latent = function(_, frames, height, width)
      local t = group and 5 * (frames // group) + (frames % group + 3) // 4 or (frames + 3) // 4
      return { 4, t, height // 8, width // 8 }
    end,
    flop = function(_, frames, height, width)
      return closed.opensora_vae_encode(frames, height, width)
    end,
    rate = "convolution",
  }, Latents)
end

function known.t5(fields, dtype)
  return setmetatable({
    width = 4096, max_length = fields.model_max_length, dtype = dtype,
    parameters = closed.t5.parameters,
    flop = function() return 2 * closed.t5.parameters * fields.model_max_length end,
    rate = "text",
  }, Features)
end

--- A part in place of an encoder.
---@param fields table  of its record, with `type`
---@param dtype string
---@return table|nil part  of a pipeline; also parameters, flop(frames, height, width) of one
---   sample, rate: the class of its work. nil: nothing is known of this type
function given.part(fields, dtype)
  local make = fields.type and known[fields.type]
  return make and make(fields, dtype) or nil
end

return given
