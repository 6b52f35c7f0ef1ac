--- Convolutional autoencoder of pictures with a normal latent: residual levels, and one attention
-- in the middle. Channels last, [N, 1, H, W, C]. Names and shapes are those of diffusers'
-- AutoencoderKL, or those of Flux, which has the same layers. Ref: Rombach et al. 2022,
-- arXiv:2112.10752; opensora-1.2.md 5.2.
-- @module moonreel.models.autoencoder_2d.kl
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local shared = require "moonreel.nn.shared"
local volume = require "moonreel.nn.volume"

local kl = {}

local EPS = 1e-6
local KERNEL, POINT, SAME = {3, 3}, {1, 1}, {0, 0, 1, 1, 1, 1}

--- Sizes of the autoencoder of SDXL. Extensions: layers_per_block may be a list, with the blocks of
-- each level in both halves, the finest first (with a number the decoder has one block more);
-- norm_group_channels is the number of channels in each group for all widths, instead of
-- norm_num_groups.
kl.defaults = {block_out_channels = {128, 256, 512, 512}, layers_per_block = 2,
  latent_channels = 4, norm_num_groups = 32, norm_group_channels = 0, in_channels = 3,
  out_channels = 3, use_quant_conv = true, use_post_quant_conv = true,
  mid_block_add_attention = true}

-- Names of parameters. The decoder's levels are counted from the coarsest or from the finest one;
-- the attention's products are stored as matrices, or as kernels of one position.
local diffusers = {down = "down_blocks.%d", up = "up_blocks.%d", block = "resnets.%d",
  smaller = "downsamplers.0.conv", larger = "upsamplers.0.conv", first = "mid_block.resnets.0",
  attention = "mid_block.attentions.0", second = "mid_block.resnets.1",
  shortcut = "conv_shortcut", last = "conv_norm_out", norm = "group_norm",
  products = {"to_q", "to_k", "to_v", "to_out.0"}, coarse_first = true}
kl.names = {diffusers = diffusers, flux = {down = "down.%d", up = "up.%d", block = "block.%d",
  smaller = "downsample.conv", larger = "upsample.conv", first = "mid.block_1",
  attention = "mid.attn_1", second = "mid.block_2", shortcut = "nin_shortcut", last = "norm_out",
  norm = "norm", products = {"q", "k", "v", "proj_out"}, kernels = true}}

local function conv(scope, name, inputs, outputs, gain)
  return volume.Conv(scope, name, inputs, outputs, {kernel = KERNEL, pad = SAME, gain = gain})
end

local function norm(scope, name, channels, c)
  local groups = c.norm_group_channels > 0 and channels // c.norm_group_channels
    or c.norm_num_groups
  return volume.GroupNorm(scope, name, channels, groups, EPS)
end

-- ---- blocks ----

-- two convolutions added to the input; at first they contribute little
local function residual(parent, name, inputs, outputs, c)
  local s = parent:child(name)
  local norm1, conv1 = norm(s, "norm1", inputs, c), conv(s, "conv1", inputs, outputs)
  local norm2 = norm(s, "norm2", outputs, c)
  local conv2 = conv(s, "conv2", outputs, outputs, volume.QUIET)
  local short = inputs ~= outputs and volume.Point(s, c.names.shortcut, inputs, outputs, POINT)
  return function(g, x)
    local y = conv2(g, norm2(g, conv1(g, norm1(g, x, true)), true))
    return (short and short(g, x) or x) + y
  end
end

-- every cell of a picture attends to every other, with one head
local function attention(parent, name, channels, c)
  local s = parent:child(name)
  local normed = norm(s, c.names.norm, channels, c)
  local part, shape = {}, c.names.kernels and {channels, channels, 1, 1} or nil
  for i, which in ipairs(c.names.products) do
    part[i] = nn.Linear(s, which, channels, channels, {shape = shape})
  end
  return function(g, x)
    local N, H, W = x.shape[1], x.shape[3], x.shape[4]
    local y, qkv, rows = normed(g, x), {}, shared.rows(g)
    for i = 1, 3 do
      qkv[i] = part[i](g, y)
    end
    if rows then
      return x + part[4](g, rows:frames(g, table.unpack(qkv)))
    end
    for i = 1, 3 do
      qkv[i] = qkv[i]:reshape{N, 1, H * W, 1, channels}
    end
    local o, lse = ops.attention(table.unpack(qkv))
    g:save(o)
    g:save(lse)
    return x + part[4](g, o:reshape{N, 1, H, W, channels})
  end
end

local function middle(s, channels, c)
  local list = {residual(s, c.names.first, channels, channels, c)}
  if c.mid_block_add_attention then
    list[2] = attention(s, c.names.attention, channels, c)
  end
  list[#list + 1] = residual(s, c.names.second, channels, channels, c)
  return list
end

-- residual blocks of a level, 1 being the finest
local function blocks_of(c, level, extra)
  local blocks = c.layers_per_block
  return type(blocks) == "table" and blocks[level] or blocks + extra
end

-- ---- encoder and decoder, each a list of layers ----

local function append(list, more) table.move(more, 1, #more, #list + 1, list) end

local function encoder_of(parent, c)
  local s, widths = parent:child("encoder"), c.block_out_channels
  local list, width = {conv(s, "conv_in", c.in_channels, widths[1])}, widths[1]
  for i, outputs in ipairs(widths) do
    local level = s:child(c.names.down:format(i - 1))
    for k = 0, blocks_of(c, i, 0) - 1 do
      list[#list + 1] = residual(level, c.names.block:format(k), width, outputs, c)
      width = outputs
    end
    if i < #widths then
      list[#list + 1] = volume.Conv(level, c.names.smaller, width, width,
        {kernel = KERNEL, stride = {1, 2, 2}, pad = {0, 0, 0, 1, 0, 1}})
    end
  end
  append(list, middle(s, width, c))
  local last = norm(s, c.names.last, width, c)
  list[#list + 1] = function(g, x) return last(g, x, true) end
  list[#list + 1] = conv(s, "conv_out", width, 2 * c.latent_channels)
  return list
end

local function decoder_of(parent, c)
  local s, widths = parent:child("decoder"), c.block_out_channels
  local width = widths[#widths]
  local list = {conv(s, "conv_in", c.latent_channels, width)}
  append(list, middle(s, width, c))
  for i = 1, #widths do
    local fine = #widths + 1 - i
    local level = s:child(c.names.up:format(c.names.coarse_first and i - 1 or fine - 1))
    local outputs = widths[fine]
    for k = 0, blocks_of(c, fine, 1) - 1 do
      list[#list + 1] = residual(level, c.names.block:format(k), width, outputs, c)
      width = outputs
    end
    if i < #widths then
      -- a level without blocks has the width of the step before it
      local next_width = blocks_of(c, fine - 1, 1) > 0 and width or widths[fine - 1]
      local after = conv(level, c.names.larger, width, next_width)
      width = next_width
      list[#list + 1] = function(g, x) return after(g, volume.upsample(x)) end
    end
  end
  local last = norm(s, c.names.last, width, c)
  list[#list + 1] = function(g, x) return last(g, x, true) end
  list[#list + 1] = conv(s, "conv_out", width, c.out_channels)
  return list
end

local Autoencoder = {}
Autoencoder.__index = Autoencoder

--- Pixels of a latent cell's side.
---@param config table  fields of kl.defaults
function kl.factor(config) return 1 << #config.block_out_channels - 1 end

--- Declares the parameters.
---@param scope mr.Scope   from nn.scope
---@param config table     fields of kl.defaults; missing ones take the default
---@param names string|nil  "diffusers" or "flux": names of parameters
---@return table           with encode and decode; `factor`: pixels of a latent cell's side
function kl.new(scope, config, names)
  local c = nn.merged(kl.defaults, config)
  c.names = kl.names[names or "diffusers"]
  local latent = c.latent_channels
  local self = setmetatable({config = c, factor = kl.factor(c)}, Autoencoder)
  self.encoder = encoder_of(scope, c)
  self.decoder = decoder_of(scope, c)
  self.quant = c.use_quant_conv
    and volume.Moments(scope, "quant_conv", latent, POINT)
  self.post_quant = c.use_post_quant_conv
    and volume.Point(scope, "post_quant_conv", latent, latent, POINT)
  return self
end

--- Mean and log-variance of the latent, one after the other in channels.
---@param x mr.Value  [N, 1, H, W, in_channels], about -1..1; odd sizes lose a row or column
---   at each level
---@return mr.Value   [N, 1, H / factor, W / factor, 2 latent_channels]
function Autoencoder:encode(g, x)
  x = nn.chain(self.encoder, g, x)
  return self.quant and self.quant(g, x) or x
end

--- Decodes latents to pictures.
---@param z mr.Value  [N, 1, h, w, latent_channels]
---@return mr.Value   [N, 1, h factor, w factor, out_channels]
function Autoencoder:decode(g, z)
  return nn.chain(self.decoder, g, self.post_quant and self.post_quant(g, z) or z)
end

return kl
