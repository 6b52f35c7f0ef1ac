--- Autoencoder "dct": 8 x 8 block DCT of each frame in YCbCr, the lowest coefficients as latent channels.
-- 16 luma (4 x 4) and 4 + 4 chroma (2 x 2) of 192 numbers per block; nothing is learned but the mean and
-- deviation of each channel, measured once over the training set and kept in frozen buffers.
-- Sizes and normalisation: reference demo. Ref: ITU-R BT.601 (colour), Ahmed et al. 1974 (DCT).
-- @module moonreel.models.dct
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local dct = {}

local N = 8
local TO_YCC = {{0.299, 0.587, 0.114}, {-0.168736, -0.331264, 0.5}, {0.5, -0.418688, -0.081312}}
local TO_RGB = {{1, 0, 1.402}, {1, -0.344136, -0.714136}, {1, 1.772, 0}}
local KEPT = {4, 2, 2}   -- side of the kept square: Y, Cb, Cr

-- row u of the orthonormal DCT-II
local function basis(u, x)
  return (u == 0 and (1 / N) ^ 0.5 or (2 / N) ^ 0.5) * math.cos((2 * x + 1) * u * math.pi / (2 * N))
end

-- call f(k, plane, u, v) for each latent channel k from 0
local function channels(f)
  local k = 0
  for plane, side in ipairs(KEPT) do
    for u = 0, side - 1 do
      for v = 0, side - 1 do
        f(k, plane, u, v)
        k = k + 1
      end
    end
  end
  return k
end

dct.channels = channels(function() end)

-- [24, 3 * 64]: from a block's RGB, colour slowest, to coefficients
local function forward_matrix()
  local m = {}
  channels(function(_, plane, u, v)
    for c = 1, 3 do
      for y = 0, N - 1 do
        for x = 0, N - 1 do m[#m + 1] = TO_YCC[plane][c] * basis(u, y) * basis(v, x) end
      end
    end
  end)
  return T.from({dct.channels, 3 * N * N}, m)
end

-- [64 * 3, 24]: from coefficients to a block's RGB, colour fastest
local function inverse_matrix()
  local m = {}
  for y = 0, N - 1 do
    for x = 0, N - 1 do
      for c = 1, 3 do
        channels(function(_, plane, u, v) m[#m + 1] = TO_RGB[c][plane] * basis(u, y) * basis(v, x) end)
      end
    end
  end
  return T.from({N * N * 3, dct.channels}, m)
end

local Autoencoder = {}
Autoencoder.__index = Autoencoder

--- Declare the autoencoder's buffers: mean and deviation per channel.
---@param params mr.Params
---@return mr.Autoencoder  in_channels-sized latents, one latent frame per frame
function dct.new(params)
  local scope = nn.scope(params, "autoencoder")
  local frozen = {frozen = true, buffer = true}
  return setmetatable({
    channels = dct.channels, multiple = N,
    mean = scope:add("mean", {dct.channels}, {kind = "zeros"}, frozen),
    deviation = scope:add("deviation", {dct.channels}, {kind = "ones"}, frozen),
  }, Autoencoder)
end

--- Latent size {C, T, H, W} of a clip.
function Autoencoder:latent(frames, height, width)
  return {dct.channels, frames, -(-height // N), -(-width // N)}
end

--- Coefficients before normalisation.
---@param pixels mr.Value  u8 [B, T, 3, H, W]
---@return mr.Value        f32 [B, T, blocks, 24]
function Autoencoder:coefficients(g, pixels)
  local x = nn.cast(pixels:permute{0, 2, 1, 3, 4}, "f32")
  x = ops.affine(x, {scale = 2 / 255, shift = -1})
  return (ops.linear(ops.patchify(x, {pt = 1, ph = N, pw = N}), g:const(forward_matrix())))
end

--- Clean latents of a batch.
---@param pixels mr.Value  u8 [B, T, 3, H, W]
---@return mr.Value        f32 [B, 24, T, H/8, W/8]
function Autoencoder:encode(g, pixels)
  local c = self:coefficients(g, pixels)
  c = (c - nn.cast(g:param(self.mean), "f32")) / nn.cast(g:param(self.deviation), "f32")
  local shape = pixels.shape
  local size = self:latent(shape[2], shape[4], shape[5])
  return c:reshape{shape[1], size[2], size[3], size[4], dct.channels}:permute{0, 4, 1, 2, 3}
end

--- Pictures of latents.
---@param z mr.Value       f32 [B, 24, T, h, w]
---@param height integer   pixels; at most 8 h
---@param width integer
---@return mr.Value        f32 [B, 3, T, H, W], about -1..1, not clamped
function Autoencoder:decode(g, z, height, width)
  local B, frames, rows, cols = z.shape[1], z.shape[3], z.shape[4], z.shape[5]
  local c = z:permute{0, 2, 3, 4, 1}:reshape{B, frames, rows * cols, dct.channels}
  c = c * nn.cast(g:param(self.deviation), "f32") + nn.cast(g:param(self.mean), "f32")
  local blocks = ops.linear(c, g:const(inverse_matrix()))
  return (ops.unpatchify(blocks, {pt = 1, ph = N, pw = N, dims = {3, frames, height, width}}))
end

--- Collect mean and deviation over batches of clips.
---@return table  add(sums, squares, count): lists per channel; finish() -> mean, deviation lists
function dct.statistics()
  local sums, squares, n = {}, {}, 0
  for k = 1, dct.channels do sums[k], squares[k] = 0, 0 end
  local self = {}
  function self.add(s, q, count)
    for k = 1, dct.channels do sums[k], squares[k] = sums[k] + s[k], squares[k] + q[k] end
    n = n + count
  end
  function self.finish()
    local mean, deviation, overall = {}, {}, 0
    for k = 1, dct.channels do
      mean[k] = sums[k] / n
      deviation[k] = math.max(squares[k] / n - mean[k] ^ 2, 0) ^ 0.5
      overall = overall + deviation[k] ^ 2 / dct.channels
    end
    for k = 1, dct.channels do deviation[k] = deviation[k] + 0.02 * overall ^ 0.5 end
    return mean, deviation
  end
  return self
end

return dct
