--- Layers of pictures and clips, channels last: [B, T, H, W, C]; a picture is a clip of one frame.
-- Weights have the shapes of released files, [outputs, inputs, ...]. A kernel of one position is a
-- product of nn.Linear.
-- @module moonreel.nn.volume
local G = require "moonreel.core.graph"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"
local shared = require "moonreel.nn.shared"
local tensor = require "moonreel.core.tensor"

local volume = {}

--- Gain of the last convolution of a residual block.
volume.QUIET = 0.1

local LOGVAR = -5 -- initial log-variance of latents
local QUIET, LOUD = -30, 20 -- smallest and largest log-variance of a draw

local Conv = {}
Conv.__index = Conv
Conv.__call = function(self, ...) return self:forward(...) end

local read_conv = options.declare("volume.Conv", {
  { "kernel", "table", "lengths in {time, height, width}, for pictures {height, width}; "
    .. "required" },
  { "stride", "table", "steps over {time, height, width}", default = { 1, 1, 1 } },
  { "pad", "table", "zeros {before, behind} time, height and width: six numbers",
    default = { 0, 0, 0, 0, 0, 0 } },
  { "edge", "boolean", "repeat the nearest place instead of padding with zeros", default = false },
  { "bias", "boolean", "false: no bias", default = true },
  { "groups", "integer", "groups of channels; an output reads only inputs of its group",
    default = 1 },
  { "gain", "number", "factor of the first weights", default = 1 },
  { "split", "text", "ranks that share channels have some of the outputs; or some of the inputs, "
    .. "and their results are added up" },
  { "parts", "integer", "parts of the outputs, each of which is split", default = 1 },
})

-- With the first weights, outputs vary as much as inputs. The reference's weights are uniform
-- within the same bound and have a third of the variance: an autoencoder that trains from them
-- stays blurred (demo.md).
local function first_weights(fan_in, gain)
  return {kind = "normal", scale = gain * fan_in ^ -0.5}
end

--- Convolution.
---@param scope mr.Scope
---@param name string
---@param inputs integer  channels that an output reads
---@param outputs integer
---@param given table     kernel, stride, pad, edge, bias, groups, gain, split, parts
function volume.Conv(scope, name, inputs, outputs, given)
  local o, s = read_conv(given), scope:child(name)
  local shape, fan_in = {outputs, inputs}, inputs
  for _, length in ipairs(o.kernel) do
    shape[#shape + 1], fan_in = length, fan_in * length
  end
  local self = setmetatable({stride = o.stride, pad = o.pad, edge = o.edge, groups = o.groups,
    split = o.split, parts = o.parts,
    weight = s:add("weight", shape, first_weights(fan_in, o.gain))}, Conv)
  self.bias = o.bias and s:add("bias", {outputs}, {kind = "zeros"})
  return self
end

-- x with its first and last rows of an axis repeated
local function repeated(x, axis, before, behind)
  local parts, n = {}, x.shape[axis + 1]
  local function add(at, times)
    for _ = 1, times do
      parts[#parts + 1] = x:slice(axis, at, at + 1)
    end
  end
  add(0, before)
  parts[#parts + 1] = x
  add(n - 1, behind)
  return #parts > 1 and G.concat(parts, axis) or x
end

-- Adds copies of the border around x, for kernels that cannot read the nearest place themselves.
-- The producer of x writes between them, so that only the borders are copied.
local function framed(x, pad)
  for axis = 1, 3 do
    x = repeated(x, axis, pad[2 * axis - 1], pad[2 * axis])
  end
  return x
end

-- The inputs and outputs of a rank in a layer whose channels ranks share: x, of which it may have
-- all, weight, bias and groups; and, if ranks add up their results, the sum.
local function split(self, g, x, w, bias, groups)
  local part, parts = self.split and shared.channels(g), self.parts
  if not part then
    return x, w, bias, groups
  elseif self.split == "outputs" then
    return x, part:own(w, 0, parts), bias and part:own(bias, 0, parts),
      math.max(part:count(groups), 1)
  end
  x = x.shape[#x.shape] == w.shape[2] and part:own(x, #x.shape - 1, parts) or x
  return x, part:own(w, 1, parts), false, groups, function(y) return part:total(g, y, bias) end
end

---@param before integer|nil  additional frames of padding before the first one, or fewer if
---   negative
---@param behind integer|nil  the same after the last one
function Conv:forward(g, x, before, behind)
  local pad, edge = self.pad, self.edge
  local v, w, bias, groups, sum = split(self, g, x, g:param(self.weight),
    self.bias and g:param(self.bias), self.groups)
  local shape = w.shape
  if #shape == 4 then
    w = w:reshape{shape[1], shape[2], 1, shape[3], shape[4]}
  end
  if before then
    pad = table.move(pad, 3, 6, 3, {pad[1] + before, pad[2] + (behind or 0)})
  end
  local part = shared.rows(g)
  if part then
    v, pad = part:window(g, v, w.shape[4], self.stride[#self.stride - 1], pad)
  end
  if edge and not g:edges() then
    v, pad, edge = framed(v, pad), {0, 0, 0, 0, 0, 0}, false
  end
  local y = ops.conv3d(v, w, bias, {stride = self.stride, pad = pad, groups = groups,
    edge = edge})
  return sum and sum(y) or y
end

local Causal = {}
Causal.__index = Causal
Causal.__call = function(self, ...) return self:forward(...) end

local read_causal = options.declare("volume.Causal", {
  { "stride", "table", "steps over {time, height, width}", default = { 1, 1, 1 } },
  { "gain", "number", "factor of the first weights", default = 1 },
  { "split", "text", "as in Conv" },
})

--- Convolution of 3 x 3 x 3 over this frame and the two before it; rows at the border and the first
-- frame are repeated outside.
---@param given table|nil  stride, gain, split
function volume.Causal(scope, name, inputs, outputs, given)
  local o = read_causal(given)
  return setmetatable({conv = volume.Conv(scope, name, inputs, outputs, {kernel = {3, 3, 3},
    stride = o.stride, gain = o.gain, split = o.split, pad = {0, 0, 1, 1, 1, 1}, edge = true})},
    Causal)
end

function Causal:forward(g, x) return (self:each(g, {x})()) end

--- The same over a clip in pieces, one after another: each keeps the frames that the next one
-- reads.
---@param list mr.Value[]    from nn/spans.lua
---@param with nil|fun(x: mr.Value): mr.Value  applied first, to each piece
---@return fun(): mr.Value|nil  the next piece of the result
function Causal:each(g, list, with)
  -- frames before a piece that it reads, and how often the first one is repeated
  local i, step, before, front = 0, self.conv.stride[1], nil, 2
  return function()
    while list[i + 1] do
      i = i + 1
      local x = with and with(list[i]) or list[i]
      x = before and G.concat({before, x}, 1) or x
      local frames, lead = x.shape[2], front
      local n = (frames + lead - 3) // step + 1
      local first = n * step - lead
      before = first < frames and x:slice(1, math.max(first, 0), frames) or nil
      front = math.max(-first, 0)
      if n > 0 then
        return self.conv(g, x:slice(1, 0, (n - 1) * step + 3 - lead), lead)
      end
    end
  end
end

local Split = {}
Split.__index = Split

-- a product whose channels ranks may share
function Split:__call(g, x)
  local linear = self.linear
  if not shared.channels(g) then
    return linear(g, x)
  end
  local own, w, bias, _, sum = split(self, g, x, g:param(linear.weight):reshape{linear.outputs,
    linear.inputs}, linear.bias and g:param(linear.bias), 1)
  local y = ops.linear(own, w, bias or false)
  return sum and sum(y) or y
end

--- A convolution of one position.
---@param kernel table    {1, 1, 1}, or {1, 1} for pictures: shape of the stored weight
---@param bias boolean|table|nil  false: no bias; or its first values
---@param how table|nil     split, parts: as in Conv
function volume.Point(scope, name, inputs, outputs, kernel, bias, how)
  local shape = table.move(kernel, 1, #kernel, 3, {outputs, inputs})
  local bias_init = type(bias) == "table"
    and {kind = "values", values = tensor.from({outputs}, bias)} or {kind = "zeros"}
  local linear = nn.Linear(scope, name, inputs, outputs, {shape = shape, bias = bias ~= false,
    init = first_weights(inputs, 1), bias_init = bias_init})
  return how and setmetatable({linear = linear, split = how.split, parts = how.parts}, Split)
    or linear
end

--- The last convolution of an encoder: mean and log-variance of a latent, one after the other in
-- channels. Draws are narrow at first, so that there is something to decode.
---@param latent integer  channels
---@param kernel table    as in Point
function volume.Moments(scope, name, latent, kernel)
  local bias = {}
  for i = 1, 2 * latent do
    bias[i] = i <= latent and 0 or LOGVAR
  end
  return volume.Point(scope, name, 2 * latent, 2 * latent, kernel, bias)
end

local GroupNorm = {}
GroupNorm.__index = GroupNorm
GroupNorm.__call = function(self, ...) return self:forward(...) end

--- Group norm over all positions of a sample, with weight and bias.
---@param groups integer  number of groups, a divisor of the channels
---@param eps number
---@param inside boolean|nil  in a block whose channels ranks may share: each has whole groups
function volume.GroupNorm(scope, name, channels, groups, eps, inside)
  local s = scope:child(name)
  return setmetatable({groups = groups, eps = eps, inside = inside,
    weight = s:add("weight", {channels}, {kind = "ones"}),
    bias = s:add("bias", {channels}, {kind = "zeros"})}, GroupNorm)
end

-- weight, bias and options for the channels of this rank
local function parts_of(self, g, silu)
  local part = self.inside and shared.channels(g)
  local weight, bias, groups = g:param(self.weight), g:param(self.bias), self.groups
  if part then
    weight, bias, groups = part:own(weight, 0), part:own(bias, 0), part:count(groups)
  end
  return weight, bias, {groups = groups, eps = self.eps, silu = silu or false}
end

---@param silu boolean|nil  followed by SiLU
function GroupNorm:forward(g, x, silu) return self:by(g, {x}, silu)(x) end

--- The same over a clip in pieces: first the moments of all pieces, and of other ranks.
---@param list mr.Value[]    from nn/spans.lua
---@param silu boolean|nil
---@return fun(x: mr.Value): mr.Value  for one piece
function GroupNorm:by(g, list, silu)
  local part = shared.rows(g)
  local weight, bias, how = parts_of(self, g, silu)
  if #list == 1 and not part then
    return function(x) return (ops.group_norm(x, weight, bias, how)) end
  elseif part and part.share.trains then
    return function(x) return part:group_norm(g, x, weight, bias, how) end
  end
  local moments = false
  for _, x in ipairs(list) do
    moments = ops.group_moments(x, moments, {groups = how.groups})
  end
  moments = part and part:moments(g, moments) or moments
  return function(x) return (ops.group_norm_by(x, weight, bias, moments, how)) end
end

--- Draws from normals whose mean and log-variance are in the channels, one after the other.
---@param moments mr.Value  [B, T, H, W, 2 C]
---@param noise mr.Value    f32 [B, T, H, W, C]
---@return mr.Value         f32 in the shape of noise
---@return table            mean, logvar: f32 in the same shape
function volume.draw(moments, noise)
  local mean, logvar = moments:split(4, 2)
  mean = nn.cast(mean, "f32")
  logvar = nn.cast(ops.clamp(logvar, {low = QUIET, high = LOUD}), "f32")
  return mean + ops.exp((ops.affine(logvar, {scale = 0.5}))) * noise,
    {mean = mean, logvar = logvar}
end

--- Moves channels from first to last.
---@param x mr.Value      [N, C, H, W] of pictures or frames
---@param frames integer  frames of a clip
---@return mr.Value       [N / frames, frames, H, W, C]
function volume.channels_last(x, frames)
  local N, C, H, W = table.unpack(x.shape)
  return x:permute{0, 2, 3, 1}:reshape{N // frames, frames, H, W, C}
end

--- Pictures or frames in the form for layers.
---@param pixels mr.Value  u8, or floats of -1..1: [N, C, H, W]
---@param frames integer   frames of a clip
---@param dtype string     dtype in which the layers compute
---@return mr.Value        -1..1, [N / frames, frames, H, W, C]
function volume.pixels(pixels, frames, dtype)
  local x = volume.channels_last(pixels, frames)
  return x.dtype == "u8" and ops.normalise_u8(x, {dtype = dtype}) or nn.cast(x, dtype)
end

--- Moves channels from last to first.
---@param x mr.Value  [B, T, H, W, C]
---@return mr.Value   [B T, C, H, W]
function volume.channels_first(x)
  local B, frames, H, W, C = table.unpack(x.shape)
  return x:reshape{B * frames, H, W, C}:permute{0, 3, 1, 2}
end

--- Repeats every cell twice in height and in width.
---@param x mr.Value  [B, T, H, W, C]
---@return mr.Value   [B, T, 2 H, 2 W, C]
function volume.upsample(x)
  local B, T, H, W, C = table.unpack(x.shape)
  return x:reshape{B * T * H, 1, W, 1, C}:expand{B * T * H, 2, W, 2, C}
    :reshape{B, T, 2 * H, 2 * W, C}
end

--- Moves channels to time: channel 2 c + k of frame t is channel c of frame 2 t + k.
---@param x mr.Value  [B, T, H, W, 2 C]
---@return mr.Value   [B, 2 T, H, W, C]
function volume.time_shuffle(x)
  local B, T, H, W, C = table.unpack(x.shape)
  return x:reshape{B, T, H, W, C // 2, 2}:permute{0, 1, 5, 2, 3, 4}
    :reshape{B, 2 * T, H, W, C // 2}
end

return volume
