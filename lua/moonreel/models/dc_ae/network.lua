--- Layers of the deep compression autoencoder for clips: residual levels with norms over channels,
-- then levels whose cells see all others by linear attention, and steps between levels beside which
-- the plain rearrangement of cells goes on. Channels last, [B, T, H, W, C]. Ref: Chen et al. 2024,
-- arXiv:2410.10733; opensora-2.0.md 12.
-- @module moonreel.models.dc_ae.network
local G = require "moonreel.core.graph"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local volume = require "moonreel.nn.volume"

local network = {}

local NORM_EPS, SUM_EPS = 1e-5, 1e-15
local HEAD <const> = 32 -- channels of a head
local EXPAND <const> = 4 -- channels between the products of a local part, over those outside
local MOST <const> = 3e38

local CUBE, POINT, SAME = { 3, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1, 1, 1, 1 }

-- ---- layers ----

local function conv(scope, name, inputs, outputs, given)
  return volume.Conv(scope, name, inputs, outputs, nn.merged({ kernel = CUBE, pad = SAME }, given))
end

local function relu(x) return (ops.clamp(x, { low = 0, high = MOST })) end

-- root mean square norm over channels with a weight and a bias
local function norm(scope, name, channels)
  local s = scope:child(name)
  local weight = s:add("weight", { channels }, { kind = "ones" })
  local bias = s:add("bias", { channels }, { kind = "zeros" })
  return function(g, x)
    return ops.rms_norm(x, g:param(weight), { eps = NORM_EPS }) + g:param(bias)
  end
end

local function residual(parent, channels)
  local s = parent:child "main"
  local conv1 = conv(s, "conv1.conv", channels, channels)
  local conv2 = conv(s, "conv2.conv", channels, channels, { bias = false })
  local normed = norm(s, "conv2.norm", channels)
  return function(g, x) return x + normed(g, conv2(g, (ops.silu(conv1(g, x))))) end
end

-- every cell sees all others of a clip: v relu(k)^T relu(q), over the sum of weights
---@param x mr.Value  [B, T, H, W, 3 C]: of each head q, k, v
local function linear_attention(x)
  local B, T, H, W, channels = table.unpack(x.shape)
  local heads, N = channels // (3 * HEAD), T * H * W
  local part = {}
  for i, value in ipairs { x:reshape { B, N, heads, 3, HEAD }:split(3, 3) } do
    part[i] = value:reshape { B, N, heads, HEAD }:permute { 0, 2, 1, 3 }
  end
  local q, k = relu(part[1]), relu(part[2])
  local sums = ops.sum(k, { axes = { 2 } }):reshape { B, heads, HEAD, 1 }
  local out = ops.matmul(q, (ops.matmul(k, part[3], { ta = true })))
  local all = ops.affine(ops.matmul(q, sums), { scale = 1, shift = SUM_EPS })
  return (out / all:expand { B, heads, N, HEAD }):permute { 0, 2, 1, 3 }
    :reshape { B, T, H, W, heads * HEAD }
end

-- attention over the cells' own heads, and over those of their neighbourhoods
local function context(parent, channels)
  local s = parent:child "context_module.main"
  local groups = 3 * channels // HEAD
  local qkv = volume.Point(s, "qkv.conv", channels, 3 * channels, POINT, false)
  local around = volume.Conv(s, "aggreg.0.0", 1, 3 * channels, { kernel = { 5, 5, 5 },
    pad = { 2, 2, 2, 2, 2, 2 }, bias = false, groups = 3 * channels })
  local mixed = volume.Conv(s, "aggreg.0.1", HEAD, 3 * channels, { kernel = POINT, bias = false,
    groups = groups })
  local proj = volume.Point(s, "proj.conv", 2 * channels, channels, POINT, false)
  local normed = norm(s, "proj.norm", channels)
  return function(g, x)
    local own = qkv(g, x)
    local near = mixed(g, around(g, own))
    return x + normed(g, proj(g, G.concat({ linear_attention(own), linear_attention(near) }, 4)))
  end
end

-- a gated product over each cell and its neighbours
local function gated(parent, channels)
  local s, inner = parent:child "local_module.main", EXPAND * channels
  local inverted = volume.Point(s, "inverted_conv.conv", channels, 2 * inner, POINT)
  local depth = volume.Conv(s, "depth_conv.conv", 1, 2 * inner, { kernel = CUBE, pad = SAME,
    groups = 2 * inner })
  local point = volume.Point(s, "point_conv.conv", inner, channels, POINT, false)
  local normed = norm(s, "point_conv.norm", channels)
  return function(g, x)
    local value, gate = depth(g, (ops.silu(inverted(g, x)))):split(4, 2)
    return x + normed(g, point(g, value * ops.silu(gate)))
  end
end

-- blocks of a level by their type
local blocks = {
  ResBlock = residual,
  EViTS5_GLU = function(parent, channels)
    local first, second = context(parent, channels), gated(parent, channels)
    return function(g, x) return second(g, first(g, x)) end
  end,
}

-- ---- steps between levels ----

-- means over groups of neighbouring channels
local function channel_means(x, outputs)
  local B, T, H, W, C = table.unpack(x.shape)
  return (ops.mean(x:reshape { B, T, H, W, outputs, C // outputs }, { axes = { 5 } }))
end

-- each channel as many times in a row as make `outputs`
local function channel_copies(x, outputs)
  local B, T, H, W, C = table.unpack(x.shape)
  return x:reshape { B, T, H, W, C, 1 }:expand { B, T, H, W, C, outputs // C }
    :reshape { B, T, H, W, outputs }
end

-- cells of blocks of t x 2 x 2 to channels: each channel's cells side by side
local function to_channels(x, t)
  local B, T, H, W, C = table.unpack(x.shape)
  return x:reshape { B * T // t, t, H // 2, 2, W // 2, 2, C }:permute { 0, 2, 4, 6, 1, 3, 5 }
    :reshape { B, T // t, H // 2, W // 2, C * t * 4 }
end

-- and back
local function to_cells(x, t)
  local B, T, H, W, C = table.unpack(x.shape)
  local channels = C // (4 * t)
  return x:reshape { B * T, H, W, channels, t, 2, 2 }:permute { 0, 4, 1, 5, 2, 6, 3 }
    :reshape { B, T * t, 2 * H, 2 * W, channels }
end

-- frames of a block in time: one frame stays one
local function in_time(x, temporal) return temporal and x.shape[2] ~= 1 and 2 or 1 end

local function smaller(parent, inputs, outputs, temporal)
  local main = conv(parent:child "main", "conv", inputs, outputs,
    { stride = { temporal and 2 or 1, 2, 2 } })
  return function(g, x)
    return main(g, x) + channel_means(to_channels(x, in_time(x, temporal)), outputs)
  end
end

local function larger(parent, inputs, outputs, temporal)
  local main = conv(parent:child "main", "conv.conv", inputs, outputs)
  return function(g, x)
    local B, T, H, W, C = table.unpack(x.shape)
    local t = in_time(x, temporal)
    local near = x:reshape { B * T, 1, H, 1, W, 1, C }:expand { B * T, t, H, 2, W, 2, C }
      :reshape { B, T * t, 2 * H, 2 * W, C }
    return main(g, near) + to_cells(channel_copies(x, outputs * 4 * t), t)
  end
end

-- ---- both halves ----

local function encoder_of(parent, c)
  local s, widths = parent:child "encoder", c.widths
  local list = { conv(s, "project_in.conv", c.in_channels, widths[1]) }
  for i, width in ipairs(widths) do
    local stage = s:child("stages." .. i - 1)
    for k = 0, c.encoder_blocks[i] - 1 do
      list[#list + 1] = blocks[c.types[i]](stage:child("op_list." .. k), width)
    end
    if widths[i + 1] then
      list[#list + 1] = smaller(stage:child("op_list." .. c.encoder_blocks[i]), width,
        widths[i + 1], c.temporal[i])
    end
  end
  local last = conv(s, "project_out.main.op_list.0.conv", widths[#widths], c.latent_channels)
  list[#list + 1] = function(g, x) return last(g, x) + channel_means(x, c.latent_channels) end
  return list
end

local function decoder_of(parent, c)
  local s, widths = parent:child "decoder", c.widths
  local width = widths[#widths]
  local first = conv(s, "project_in.main.conv", c.latent_channels, width)
  local list = { function(g, z) return first(g, z) + channel_copies(z, width) end }
  for i = #widths, 1, -1 do
    local stage, at = s:child("stages." .. i - 1), 0
    if widths[i + 1] then
      list[#list + 1] = larger(stage:child "op_list.0", widths[i + 1], widths[i], c.temporal[i])
      at = 1
    end
    for k = 0, c.decoder_blocks[i] - 1 do
      list[#list + 1] = blocks[c.types[i]](stage:child("op_list." .. at + k), widths[i])
    end
  end
  local out = s:child "project_out"
  local normed = norm(out, "op_list.0", widths[1])
  local last = conv(out, "op_list.2.conv", widths[1], c.out_channels)
  list[#list + 1] = function(g, x) return last(g, relu(normed(g, x))) end
  return list
end

local function through(list, g, x)
  for _, layer in ipairs(list) do
    x = layer(g, x)
  end
  return x
end

local Network = {}
Network.__index = Network

--- Declare the parameters.
---@param scope mr.Scope
---@param c table   in_channels, out_channels, latent_channels; by level, the finest first: widths,
---   encoder_blocks, decoder_blocks, types, temporal (the step to the next one joins frames)
---@return table    with encode and decode
function network.new(scope, c)
  return setmetatable({ encoder = encoder_of(scope, c), decoder = decoder_of(scope, c) }, Network)
end

--- Latents of clips.
---@param x mr.Value  [B, T, H, W, in_channels], T 1 or a multiple of 4, H and W multiples of 32
---@return mr.Value   [B, T / 4, H / 32, W / 32, latent_channels]
function Network:encode(g, x) return through(self.encoder, g, x) end

--- Clips of latents; one latent frame is one frame.
---@param z mr.Value  [B, t, h, w, latent_channels]
---@return mr.Value   [B, 4 t, 32 h, 32 w, out_channels]
function Network:decode(g, z) return through(self.decoder, g, z) end

return network
