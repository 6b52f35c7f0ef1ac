--- Layers of the Hunyuan video autoencoder: causal convolutions that repeat the border, norms over
-- a whole clip, one attention in the middle in which frames see only earlier frames. Channels last,
-- [B, T, H, W, C]. Layers process clips in pieces (nn/spans.lua), with the results of the whole.
-- Ref: Kong et al. 2024, arXiv:2412.03603; opensora-2.0.md 11.2.
-- @module moonreel.models.hunyuan_vae.network
local G = require "moonreel.core.graph"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local shared = require "moonreel.nn.shared"
local spans = require "moonreel.nn.spans"
local volume = require "moonreel.nn.volume"

local network = {}

local EPS = 1e-6
local POINT = { 1, 1, 1 }

-- ---- layers ----

local function conv(scope, name, inputs, outputs, given)
  return volume.Causal(scope, name .. ".conv", inputs, outputs, given)
end

local function norm(scope, name, channels, c, inside)
  return volume.GroupNorm(scope, name, channels, c.norm_num_groups, EPS, inside)
end

-- a convolution of all pieces, after a norm if there is one
local function through_conv(layer, before)
  return function(g, list)
    return spans.all(layer:each(g, list, before and before:by(g, list, true)))
  end
end

-- Two convolutions added to the input; at first they contribute little. The shortcut is computed
-- together with the first one, so that a piece of the input is freed early. Ranks may share the
-- channels between them.
local function residual(parent, name, inputs, outputs, c)
  local s = parent:child(name)
  local norm1 = norm(s, "norm1", inputs, c)
  local conv1 = conv(s, "conv1", inputs, outputs, { split = "outputs" })
  local norm2 = norm(s, "norm2", outputs, c, true)
  local conv2 = conv(s, "conv2", outputs, outputs, { gain = volume.QUIET, split = "inputs" })
  local short = inputs ~= outputs
    and volume.Point(s, "conv_shortcut.conv", inputs, outputs, POINT)
  return function(g, list)
    local shortcuts, inner, out = {}, {}, {}
    for y in conv1:each(g, list, norm1:by(g, list, true)) do
      local i = #inner + 1
      inner[i], shortcuts[i] = y, short and short(g, list[i]) or list[i]
    end
    for y in conv2:each(g, inner, norm2:by(g, inner, true)) do
      out[#out + 1] = shortcuts[#out + 1] + y
    end
    return out
  end
end

-- of [B, T, H, W, C], with one head
local function over_frames(g, q, k, v)
  local part = shared.rows(g)
  if part then
    return part:frames(g, q, k, v)
  end
  local B, T, H, W, C = table.unpack(q.shape)
  local function tokens(x) return x:reshape { B, 1, T * H * W, 1, C } end
  local o, lse = ops.attention(tokens(q), tokens(k), tokens(v), { frame = H * W })
  g:save(o)
  g:save(lse)
  return o:reshape(q.shape)
end

-- every cell attends to cells of its own and of earlier frames
local function attention(parent, name, channels, c)
  local s = parent:child(name)
  local normed, part = norm(s, "group_norm", channels, c), {}
  for i, which in ipairs { "to_q", "to_k", "to_v", "to_out.0" } do
    part[i] = nn.Linear(s, which, channels, channels)
  end
  return function(g, list)
    local x = spans.joined(list)
    local y = normed(g, x)
    local o = over_frames(g, part[1](g, y), part[2](g, y), part[3](g, y))
    return spans.regrouped({ x + part[4](g, o) }, list[1].shape[2])
  end
end

local function middle(parent, channels, c)
  local s = parent:child "mid_block"
  local list = { residual(s, "resnets.0", channels, channels, c) }
  if c.mid_block_add_attention then
    list[2] = attention(s, "attentions.0", channels, c)
  end
  list[#list + 1] = residual(s, "resnets.1", channels, channels, c)
  return list
end

-- repeats every cell in time, height and width by the factors; the first frame of a clip is not
-- repeated in time
local function larger(x, by, begins)
  local T = x.shape[2]
  local function spread(v, times)
    local B, frames, H, W, C = table.unpack(v.shape)
    return v:reshape { B, frames, 1, H, 1, W, 1, C }
      :expand { B, frames, times, H, by[2], W, by[3], C }
      :reshape { B, frames * times, by[2] * H, by[3] * W, C }
  end
  if not begins or by[1] == 1 then
    return spread(x, by[1])
  elseif T == 1 then
    return spread(x, 1)
  end
  return G.concat({ spread(x:slice(1, 0, 1), 1), spread(x:slice(1, 1, T), by[1]) }, 1)
end

-- rows that decide the size of pieces: ranks that share a clip have the same pieces
local function rows_of(g, x)
  local part = shared.rows(g)
  return part and part:most(x) or x.shape[3]
end

-- a convolution of enlarged pictures, in pieces of the right size
local function upsampler(level, width, by)
  local after = conv(level, "upsamplers.0.conv", width, width, { split = "inputs" })
  return function(g, list, most)
    local s, H = list[1].shape, rows_of(g, list[1])
    local n = spans.frames(most, by[1] * by[2] * H, by[3] * s[4], width)
    list = spans.regrouped(list, n)
    return spans.all(after:each(g, list, function(x) return larger(x, by, x == list[1]) end))
  end
end

-- a convolution to fewer cells, whose pieces are joined again
local function downsampler(level, width, by)
  local layer = conv(level, "downsamplers.0.conv", width, width,
    { stride = by, split = "inputs" })
  return function(g, list, most)
    list = spans.all(layer:each(g, list))
    local x = list[1]
    return spans.regrouped(list, spans.frames(most, rows_of(g, x), x.shape[4], width))
  end
end

-- ---- encoder and decoder ----

--- Factors of {time, height, width} after each level of the encoder except the last, the finest
-- first; the decoder has the same in reverse order.
---@param c table     block_out_channels, time_compression_ratio, spatial_compression_ratio
---@return integer[][]
function network.factors(c)
  local levels, list = #c.block_out_channels, {}
  local function doublings(n)
    local count = 0
    while 1 << count < n do
      count = count + 1
    end
    return count
  end
  local space, time = doublings(c.spatial_compression_ratio), doublings(c.time_compression_ratio)
  -- a time factor of 8 is spread over the same levels as space, smaller factors over the last
  -- levels
  local first = time == space and 0 or levels - 1 - time
  for i = 0, levels - 1 do
    local in_time = i >= first and i < first + time
    local in_space = i < space
    list[i + 1] = { in_time and 2 or 1, in_space and 2 or 1, in_space and 2 or 1 }
  end
  return list
end

local function is_one(by) return by[1] * by[2] * by[3] == 1 end

local function encoder_of(parent, c)
  local s, widths, factors = parent:child "encoder", c.block_out_channels, network.factors(c)
  local width = widths[1]
  local list = { through_conv(conv(s, "conv_in", c.in_channels, width)) }
  for i, outputs in ipairs(widths) do
    local level = s:child("down_blocks." .. i - 1)
    for k = 0, c.layers_per_block - 1 do
      list[#list + 1] = residual(level, "resnets." .. k, width, outputs, c)
      width = outputs
    end
    if not is_one(factors[i]) then
      list[#list + 1] = downsampler(level, width, factors[i])
    end
  end
  local mid = middle(s, width, c)
  table.move(mid, 1, #mid, #list + 1, list)
  list[#list + 1] = through_conv(conv(s, "conv_out", width, 2 * c.latent_channels),
    norm(s, "conv_norm_out", width, c))
  return list
end

local function decoder_of(parent, c)
  local s, widths, factors = parent:child "decoder", c.block_out_channels, network.factors(c)
  local width = widths[#widths]
  local list = { through_conv(conv(s, "conv_in", c.latent_channels, width)) }
  local mid = middle(s, width, c)
  table.move(mid, 1, #mid, #list + 1, list)
  for i = 0, #widths - 1 do
    local level, outputs = s:child("up_blocks." .. i), widths[#widths - i]
    for k = 0, c.layers_per_block do
      list[#list + 1] = residual(level, "resnets." .. k, width, outputs, c)
      width = outputs
    end
    local by = factors[i + 1]
    if not is_one(by) then
      list[#list + 1] = upsampler(level, width, by)
    end
  end
  list[#list + 1] = through_conv(conv(s, "conv_out", width, c.out_channels),
    norm(s, "conv_norm_out", width, c))
  return list
end

-- applies layers to a clip in pieces of at most `most` elements, given `width` channels
local function through(layers, g, x, most, width, recompute)
  local list = spans.regrouped({ x }, spans.frames(most, rows_of(g, x), x.shape[4], width))
  for i, layer in ipairs(layers) do
    -- recomputed layers are blocks; the last one is not recomputed
    list = recompute and i < #layers and g:block("layers." .. i, recompute(1, i - 1),
      function() return layer(g, list, most) end) or layer(g, list, most)
  end
  return spans.joined(list)
end

local Network = {}
Network.__index = Network

--- Declares the parameters.
---@param scope mr.Scope
---@param c table   in_channels, out_channels, latent_channels, block_out_channels,
---   layers_per_block, norm_num_groups, mid_block_add_attention, time_compression_ratio,
---   spatial_compression_ratio
---@return table    with encode and decode
function network.new(scope, c)
  local widths = c.block_out_channels
  return setmetatable({ encoder = encoder_of(scope, c), decoder = decoder_of(scope, c),
    first = widths[1], middle = widths[#widths],
    quant = volume.Moments(scope, "quant_conv", c.latent_channels, POINT),
    post_quant = volume.Point(scope, "post_quant_conv", c.latent_channels, c.latent_channels,
      POINT) }, Network)
end

--- Mean and log-variance of the latent, one after the other in channels.
---@param x mr.Value  [B, T, H, W, in_channels], about -1..1
---@param most integer|nil  elements of a piece; nil: the whole clip
---@param recompute function|nil  of a layer (1, number): recomputed in the backward pass
---@return mr.Value   [B, (T - 1) / 4 + 1, (H - 1) / 8 + 1, (W - 1) / 8 + 1, 2 latent_channels]
function Network:encode(g, x, most, recompute)
  return self.quant(g, through(self.encoder, g, x, most, self.first, recompute))
end

--- Decodes latents to clips.
---@param z mr.Value  [B, t, h, w, latent_channels]
---@param most integer|nil  elements of a piece; nil: the whole clip
---@param recompute function|nil  of a layer (1, number): recomputed in the backward pass
---@return mr.Value   [B, 4 (t - 1) + 1, 8 h, 8 w, out_channels]
function Network:decode(g, z, most, recompute)
  return through(self.decoder, g, self.post_quant(g, z), most, self.middle, recompute)
end

return network
