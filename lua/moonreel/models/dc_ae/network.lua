--- Layers of the deep compression autoencoder for clips: residual levels with norms over channels,
-- then levels whose cells attend to all others by linear attention. Each step between levels has a
-- parallel path that only rearranges cells. Every layer works on a clip or on its pieces
-- (nn/pieces.lua). Channels last, [B, T, H, W, C]. Ref: Chen et al. 2024, arXiv:2410.10733; Cai et
-- al. 2023, arXiv:2205.14756; opensora-2.0.md 12.
-- @module moonreel.models.dc_ae.network
local G = require "moonreel.core.graph"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local pieces = require "moonreel.nn.pieces"
local volume = require "moonreel.nn.volume"

local network = {}

local EPS <const> = 1e-5
local HEAD <const> = 32
local LEAST <const> = 1e-15 -- added to the weights of a position
local WIDER <const> = 4 -- channels of the local branch, relative to the input
local POINT, CUBE, SAME = { 1, 1, 1 }, { 3, 3, 3 }, { 1, 1, 1, 1, 1, 1 }
local MOST <const> = 3e38 -- no limit

--- Channels of an attention head.
network.HEAD = HEAD

-- ---- layers ----

-- the same number of zeros on both sides, so that sizes stay
local function conv(scope, name, inputs, outputs, given)
  return volume.Conv(scope, name .. ".conv", inputs, outputs,
    nn.merged({ kernel = CUBE, pad = SAME }, given))
end

-- a convolution in time over a kept part; layer: from volume.Conv, or a function like it
local function over(e, x, size, layer, k)
  return e:window(x, { kernel = k or 3, stride = 1, before = (k or 3) // 2 }, size,
    function(v, more) return layer(e.g, v, more, more) end)
end

-- adds a part and the result for the rows of a kept part; up: rows that short gives for one
local function add_shortcut(e, kept, y, short, up)
  local before = e:rows(kept, y, y.size, short, up)
  return e:map(y, y.size, function(v) return before.v + v end)
end

local function same(v) return v end

-- over channels, with a bias
local function norm(scope, name, channels)
  local normed = nn.RMSNorm(scope, name, channels, EPS)
  local bias = scope:child(name):add("bias", { channels }, { kind = "zeros" })
  return function(g, x) return normed(g, x) + g:param(bias):reshape { 1, 1, 1, 1, channels } end
end

local function relu(x) return (ops.clamp(x, { low = 0, high = MOST })) end

-- a size with other channels
local function with(size, channels) return size and { size[1], size[2], channels } end

-- ---- blocks: parts {v, rows, late, size} before and after each ----

-- convolutions added to the input; ranks may share the channels between them
local function residual(parent, name, C)
  local s = parent:child(name .. ".main")
  local conv1 = conv(s, "conv1", C, C, { split = "outputs" })
  local conv2 = conv(s, "conv2", C, C, { bias = false, split = "inputs" })
  local normed = norm(s, "conv2.norm", C)
  return function(e, x)
    local kept = e:keep(x)
    local y = over(e, kept, x.size,
      function(g, v, more) return (ops.silu(conv1(g, v, more, more))) end)
    y = over(e, e:keep(y), x.size,
      function(g, v, more) return normed(g, conv2(g, v, more, more)) end)
    return add_shortcut(e, kept, y, same)
  end
end

-- queries, keys and values of 2 C / 32 heads: those of a product, and those of their neighbourhood;
-- ranks may share the heads of each kind
local function heads_of(scope, C)
  local own = { split = "outputs" }
  local qkv = volume.Point(scope, "qkv.conv", C, 3 * C, POINT, false, own)
  local s = scope:child "aggreg.0"
  local near = volume.Conv(s, "0", 1, 3 * C, { kernel = { 5, 5, 5 }, groups = 3 * C,
    pad = { 2, 2, 2, 2, 2, 2 }, bias = false, split = "outputs" })
  local mixed = volume.Conv(s, "1", HEAD, 3 * C, { kernel = POINT, groups = 3 * C // HEAD,
    bias = false, split = "outputs" })
  return function(e, x)
    local size = with(x.size, 3 * C)
    local first = e:keep(e:map(x, size, function(v) return qkv(e.g, v) end))
    local others = over(e, first, size,
      function(g, v, more) return mixed(g, near(g, v, more, more)) end, 5)
    local before = e:rows(first, others, size, same)
    return e:map(others, with(x.size, 6 * C),
      function(v) return G.concat({ before.v, v }, 4) end)
  end
end

-- one of {q, k, v} as [B, heads, positions, 32]
local function one_of(v, which)
  local B, T, H, W, C = table.unpack(v.shape)
  local heads = C // (3 * HEAD)
  return v:reshape { B, T * H * W, heads, 3 * HEAD }:slice(3, (which - 1) * HEAD, which * HEAD)
    :permute { 0, 2, 1, 3 }
end

-- sums over positions, per head: values times keys, then keys, [B, heads, 33, 32]
local function sums_of(v)
  local k = relu(one_of(v, 2))
  return G.concat({ (ops.matmul(one_of(v, 3), k, { ta = true })),
    (ops.sum(k, { axes = { 2 }, keep = true })) }, 2)
end

-- The values that a position's query selects from the sums, in f32. The result does not depend on
-- the length of a query, so near zero the rounding of bf16 would make its gradient large.
local function found_in(v, sums)
  local B, T, H, W, C = table.unpack(v.shape)
  local heads = C // (3 * HEAD)
  local found = ops.matmul(nn.cast(relu(one_of(v, 1)), "f32"), nn.cast(sums, "f32"),
    { tb = true })
  local whole = ops.affine(found:slice(3, HEAD, HEAD + 1), { scale = 1, shift = LEAST })
  return nn.cast(found:slice(3, 0, HEAD) / whole:expand { B, heads, T * H * W, HEAD }, v.dtype)
    :permute { 0, 2, 1, 3 }:reshape { B, T, H, W, heads * HEAD }
end

local Attention = {}
Attention.__index = Attention

-- linear attention over all positions of a clip, added to the input
local function attention(parent, name, C)
  local s = parent:child(name .. ".context_module.main")
  return setmetatable({ name = s.prefix, width = C, heads = heads_of(s, C),
    last = volume.Point(s, "proj.conv", 2 * C, C, POINT, false, { split = "inputs", parts = 2 }),
    normed = norm(s, "proj.norm", C) }, Attention)
end

-- heads of a part, and the sums over the clip, nil while they are being computed
local function attended(self, e, x)
  local heads = self.heads(e, x)
  local shape = { 2 * self.width // HEAD, HEAD + 1, HEAD }
  return heads, e:total(heads, self.name, shape, sums_of)
end

--- Computes only the sums.
function Attention:add(e, x) attended(self, e, x) end

function Attention:__call(e, x)
  local kept = e:keep(x)
  local heads, sums = attended(self, e, x)
  local before = e:rows(kept, heads, x.size, same)
  return e:map(heads, x.size, function(v)
    sums = #sums.shape == 4 and sums or nn.cast(sums, v.dtype):reshape { 1,
      table.unpack(sums.shape) }
    return before.v + self.normed(e.g, self.last(e.g, found_in(v, sums)))
  end)
end

-- a gated product of neighbours, added to the input
local function neighbours(parent, name, C)
  local s, inner = parent:child(name .. ".local_module.main"), WIDER * C
  local halves = { split = "outputs", parts = 2 }
  local wide = volume.Point(s, "inverted_conv.conv", C, 2 * inner, POINT, nil, halves)
  local near = conv(s, "depth_conv", 1, 2 * inner, nn.merged({ groups = 2 * inner }, halves))
  local last = volume.Point(s, "point_conv.conv", inner, C, POINT, false, { split = "inputs" })
  local normed = norm(s, "point_conv.norm", C)
  return function(e, x)
    local kept = e:keep(x)
    local y = e:keep(e:map(x, with(x.size, 2 * inner),
      function(v) return (ops.silu(wide(e.g, v))) end))
    y = over(e, y, x.size, function(g, v, more)
      local value, gate = near(g, v, more, more):split(4, 2)
      return normed(g, last(g, value * ops.silu(gate)))
    end)
    return add_shortcut(e, kept, y, same)
  end
end

-- ---- between levels ----

-- means of neighbouring channels
local function fewer(v, C)
  local B, T, H, W, all = table.unpack(v.shape)
  if all == C then
    return v
  end
  return (ops.mean(v:reshape { B, T, H, W, C, all // C }, { axes = { 5 } }))
end

-- repeats every channel
local function copied(v, C)
  local B, T, H, W, some = table.unpack(v.shape)
  return v:reshape { B, T, H, W, some, 1 }:expand { B, T, H, W, some, C // some }
    :reshape { B, T, H, W, C }
end

-- moves cells of t x 2 x 2 to channels: channels slowest, then time, height, width
local function to_channels(v, t)
  local B, T, H, W, C = table.unpack(v.shape)
  return v:reshape { B * T // t, t, H // 2, 2, W // 2, 2, C }:permute { 0, 2, 4, 6, 1, 3, 5 }
    :reshape { B, T // t, H // 2, W // 2, C * t * 4 }
end

local function from_channels(v, t)
  local B, T, H, W, C = table.unpack(v.shape)
  return v:reshape { B * T, H, W, C // (4 * t), t, 2, 2 }:permute { 0, 4, 1, 5, 2, 6, 3 }
    :reshape { B, T * t, 2 * H, 2 * W, C // (4 * t) }
end

-- repeats every cell t x 2 x 2 times
local function spread(v, t)
  local B, T, H, W, C = table.unpack(v.shape)
  return v:reshape { B * T, 1, H, 1, W, C }:expand { B * T, t, H, 2, W, C }
    :reshape { B * T * t * H * 2, W, 1, C }:expand { B * T * t * H * 2, W, 2, C }
    :reshape { B, T * t, 2 * H, 2 * W, C }
end

-- a step to a coarser level; a single frame stays one, although the convolution would halve it
local function down(parent, name, inputs, outputs, temporal)
  local step = temporal and 2 or 1
  local made = conv(parent, name .. ".main", inputs, outputs,
    { stride = { step, 2, 2 }, split = "inputs" })
  return function(e, x)
    local t = not e.still and step or 1
    local size = x.size and { x.size[1] // 2, x.size[2] // 2, outputs }
    local kept = e:keep(x)
    local y = e:window(kept, { kernel = 3, stride = step, before = 1 }, size,
      function(v, more) return made(e.g, v, more, more) end)
    local function short(v) return fewer(to_channels(v, t), outputs) end
    if t == 1 then
      return add_shortcut(e, kept, y, short)
    end
    local before = e:window(kept, { kernel = t, stride = t, before = 0 }, size, short)
    return e:map(y, size, function(v) return before.v + v end)
  end
end

-- a step to a finer level
local function up(parent, name, inputs, outputs, temporal)
  local made = conv(parent, name .. ".main.conv", inputs, outputs, { split = "inputs" })
  return function(e, x)
    local t = temporal and not e.still and 2 or 1
    local size = x.size and { x.size[1] * 2, x.size[2] * 2, outputs }
    local kept = e:keep(x)
    local y = e:window(kept, { kernel = 3, stride = 1, before = 1, up = t }, size,
      function(v, more) return made(e.g, spread(v, t), more, more) end)
    return add_shortcut(e, kept, y,
      function(v) return from_channels(copied(v, outputs * 4 * t), t) end, t)
  end
end

-- ---- encoder and decoder, each a list of layers ----

local function append_blocks(list, s, first, count, type, width)
  for j = first, first + count - 1 do
    local name = "op_list." .. j
    if type == "ResBlock" then
      list[#list + 1] = residual(s, name, width)
    else
      list[#list + 1] = attention(s, name, width)
      list[#list + 1] = neighbours(s, name, width)
    end
  end
end

local function encoder_of(parent, c)
  local s, widths = parent:child "encoder", c.widths
  local first = conv(s, "project_in", c.in_channels, widths[1])
  local list = { function(e, x) return over(e, e:keep(x), with(x.size, widths[1]), first) end }
  for i, width in ipairs(widths) do
    local stage, blocks = s:child("stages." .. i - 1), c.encoder_blocks[i]
    append_blocks(list, stage, 0, blocks, c.types[i], width)
    if i < #widths then
      list[#list + 1] = down(stage, "op_list." .. blocks, width, widths[i + 1],
        c.temporal[i])
    end
  end
  local last = conv(s, "project_out.main.op_list.0", widths[#widths], c.latent_channels)
  list[#list + 1] = function(e, x)
    local kept = e:keep(x)
    local y = over(e, kept, with(x.size, c.latent_channels), last)
    return add_shortcut(e, kept, y, function(v) return fewer(v, c.latent_channels) end)
  end
  return list
end

local function decoder_of(parent, c)
  local s, widths = parent:child "decoder", c.widths
  local top = widths[#widths]
  local first = conv(s, "project_in.main", c.latent_channels, top)
  local list = { function(e, x)
    local kept = e:keep(x)
    local y = over(e, kept, with(x.size, top), first)
    return add_shortcut(e, kept, y, function(v) return copied(v, top) end)
  end }
  for i = #widths, 1, -1 do
    local stage, at = s:child("stages." .. i - 1), 0
    if i < #widths then
      list[#list + 1] = up(stage, "op_list.0", widths[i + 1], widths[i], c.temporal[i])
      at = 1
    end
    append_blocks(list, stage, at, c.decoder_blocks[i], c.types[i], widths[i])
  end
  local normed = norm(s, "project_out.op_list.0", widths[1])
  local last = conv(s, "project_out.op_list.2", widths[1], c.out_channels)
  list[#list + 1] = function(e, x)
    local y = e:keep(e:map(x, x.size, function(v) return relu(normed(e.g, v)) end))
    return over(e, y, with(x.size, c.out_channels), last)
  end
  return list
end

local Network = {}
Network.__index = Network

--- Declares the parameters.
---@param scope mr.Scope
---@param c table   in_channels, out_channels, latent_channels; by level, the finest first: widths,
---   encoder_blocks, decoder_blocks, types, temporal (the step to the next one joins frames)
---@return table    encoder and decoder, lists of layers over parts; encode and decode
function network.new(scope, c)
  return setmetatable({ encoder = encoder_of(scope, c), decoder = decoder_of(scope, c) }, Network)
end

--- The indexes of layers that need sums over the whole clip.
---@param list table   encoder or decoder
---@return integer[]
function network.attentions(list)
  local places = {}
  for i, layer in ipairs(list) do
    if getmetatable(layer) == Attention then
      places[#places + 1] = i
    end
  end
  return places
end

-- applies all layers to a clip; recomputed layers are blocks, the last one is not recomputed
local function whole(list, g, v, still, recompute)
  local e = pieces.whole(g)
  e.still = still
  local x = e:source(v)
  for i = 1, recompute and #list - 1 or 0 do
    x = g:block("layers." .. i, recompute(1, i - 1), function() return list[i](e, x) end)
  end
  return nn.chain(list, e, x, recompute and #list).v
end

--- Encodes clips to latents.
---@param x mr.Value  [B, T, H, W, in_channels], T 1 or a multiple of 4, H and W multiples of 32
---@param recompute function|nil  of a layer (1, number): recomputed in the backward pass
---@return mr.Value   [B, T / 4, H / 32, W / 32, latent_channels]
function Network:encode(g, x, recompute)
  return whole(self.encoder, g, x, x.shape[2] == 1, recompute)
end

--- Decodes latents to clips.
---@param z mr.Value          [B, t, h, w, latent_channels]
---@param still boolean|nil   one latent frame decodes to one frame; false: to four
---@param recompute function|nil  as in encode
---@return mr.Value           [B, 4 t, 32 h, 32 w, out_channels]
function Network:decode(g, z, still, recompute)
  return whole(self.decoder, g, z, z.shape[2] == 1 and still ~= false, recompute)
end

return network
