--- Temporal half of the video autoencoder of Open-Sora 1.2: causal convolutions over latents of
-- pictures, four frames to one. Channels last, [B, T, H, W, C]. Every call processes an independent
-- piece; no state is carried over. Names and shapes are those of the released file. Ref:
-- opensora-1.2.md 5.3.
-- @module moonreel.models.opensora_vae.temporal
local nn = require "moonreel.nn"
local volume = require "moonreel.nn.volume"

local temporal = {}

local EPS = 1e-5

--- Sizes of the released model.
temporal.defaults = {filters = 128, num_res_blocks = 4, channel_multipliers = {1, 2, 2, 4},
  temporal_downsample = {false, true, true}, num_groups = 32, in_out_channels = 4,
  latent_channels = 4}

-- zeros only before the first frame, so that no frame depends on a later one; `step` frames to one
local function causal(scope, name, inputs, outputs, given)
  local step = given.step or 1
  return volume.Conv(scope:child(name), "conv", inputs, outputs, {kernel = {3, 3, 3},
    stride = {step, 1, 1}, pad = {3 - step, 0, 1, 1, 1, 1}, bias = given.bias ~= false,
    gain = given.gain})
end

local function point(scope, name, inputs, outputs, bias)
  return volume.Point(scope:child(name), "conv", inputs, outputs, {1, 1, 1}, bias)
end

local function norm(scope, name, channels, c)
  return volume.GroupNorm(scope, name, channels, c.num_groups, EPS)
end

-- norm and SiLU as one layer of a list
local function last_norm(scope, channels, c)
  local layer = norm(scope, "norm1", channels, c)
  return function(g, x) return layer(g, x, true) end
end

-- two convolutions added to the input; at first they contribute little
local function residual(scope, inputs, outputs, c)
  local norm1, norm2 = norm(scope, "norm1", inputs, c), norm(scope, "norm2", outputs, c)
  local conv1 = causal(scope, "conv1", inputs, outputs, {bias = false})
  local conv2 = causal(scope, "conv2", outputs, outputs, {bias = false, gain = volume.QUIET})
  local short = inputs ~= outputs and point(scope, "conv3", inputs, outputs, false)
  return function(g, x)
    local y = conv2(g, norm2(g, conv1(g, norm1(g, x, true)), true))
    return (short and short(g, x) or x) + y
  end
end

-- appends blocks NAME.0, NAME.1, ... of one width; returns the width
local function residuals(list, scope, name, inputs, outputs, c)
  for k = 0, c.num_res_blocks - 1 do
    list[#list + 1] = residual(scope:child(name .. "." .. k), inputs, outputs, c)
    inputs = outputs
  end
  return outputs
end

local function encoder_of(scope, c, factor)
  local s, width = scope:child("encoder"), c.filters
  local conv_in = causal(s, "conv_in", c.in_out_channels, width, {bias = false})
  -- zeros before the first frame fill up to whole latent frames
  local list = {function(g, x) return conv_in(g, x, -x.shape[2] % factor) end}
  for i, multiple in ipairs(c.channel_multipliers) do
    width = residuals(list, s, "block_res_blocks." .. i - 1, width, multiple * c.filters, c)
    if c.temporal_downsample[i] then
      list[#list + 1] = causal(s, "conv_blocks." .. i - 1, width, width, {step = 2})
    end
  end
  residuals(list, s, "res_blocks", width, width, c)
  list[#list + 1] = last_norm(s, width, c)
  list[#list + 1] = point(s, "conv2", width, 2 * c.latent_channels)
  return list
end

local function decoder_of(scope, c)
  local s, multiples = scope:child("decoder"), c.channel_multipliers
  local width = multiples[#multiples] * c.filters
  local list = {causal(s, "conv1", c.latent_channels, width, {})}
  residuals(list, s, "res_blocks", width, width, c)
  for i = #multiples, 1, -1 do
    width = residuals(list, s, "block_res_blocks." .. i - 1, width, multiples[i] * c.filters, c)
    if c.temporal_downsample[i - 1] then
      local doubled = causal(s, "conv_blocks." .. i - 2, width, 2 * width, {})
      list[#list + 1] = function(g, x) return volume.time_shuffle(doubled(g, x)) end
    end
  end
  list[#list + 1] = last_norm(s, width, c)
  list[#list + 1] = causal(s, "conv_out", width, c.in_out_channels, {})
  return list
end

local Autoencoder = {}
Autoencoder.__index = Autoencoder

--- Frames of a latent frame.
---@param config table  fields of temporal.defaults
function temporal.factor(config)
  local factor = 1
  for _, halved in ipairs(config.temporal_downsample) do
    factor = halved and 2 * factor or factor
  end
  return factor
end

--- Declares the parameters.
---@param scope mr.Scope   from nn.scope
---@param config table     fields of temporal.defaults; missing ones take the default
---@return table           with encode and decode; `factor`: frames of a latent frame
function temporal.new(scope, config)
  local c = nn.merged(temporal.defaults, config)
  local factor, latent = temporal.factor(c), c.latent_channels
  return setmetatable({config = c, factor = factor, encoder = encoder_of(scope, c, factor),
    quant = volume.Moments(scope:child("quant_conv"), "conv", latent, {1, 1, 1}),
    post_quant = point(scope, "post_quant_conv", latent, latent),
    decoder = decoder_of(scope, c)}, Autoencoder)
end

--- Mean and log-variance of the latent, one after the other in channels.
---@param x mr.Value  [B, T, H, W, in_out_channels]
---@return mr.Value   [B, ceil(T / factor), H, W, 2 latent_channels]
function Autoencoder:encode(g, x)
  return self.quant(g, nn.chain(self.encoder, g, x))
end

--- Decodes the last `frames` frames of a latent.
---@param z mr.Value      [B, t, H, W, latent_channels]
---@param frames integer  at most factor t, more than factor (t - 1)
---@return mr.Value       [B, frames, H, W, in_out_channels]
function Autoencoder:decode(g, z, frames)
  local x = nn.chain(self.decoder, g, self.post_quant(g, z))
  local all = x.shape[2]
  return x:slice(1, all - frames, all)
end

return temporal
