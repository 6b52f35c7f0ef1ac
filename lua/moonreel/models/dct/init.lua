--- Autoencoder "dct": block DCT of each frame in YCbCr, with the lowest coefficients as latent
-- channels. 8 x 8 blocks; 16 luma (4 x 4) and 4 + 4 chroma (2 x 2) of 192 numbers. Nothing is
-- learned except the mean and deviation of each channel, which are measured once over the training
-- set and stored in frozen buffers. Sizes and normalisation: reference demo. Ref: ITU-R BT.601
-- (colour), Ahmed et al. 1974 (DCT).
-- @module moonreel.models.dct
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local dct = {}

-- side of a block, sides of the kept squares of Y, Cb and Cr, and the share of the overall
-- deviation that is added to the deviation of each channel
local BLOCK, KEPT, FLOOR = 8, {4, 2, 2}, 0.02
local CHANNELS = 4 * 4 + 2 * 2 + 2 * 2

local TO_YCC = {{0.299, 0.587, 0.114}, {-0.168736, -0.331264, 0.5}, {0.5, -0.418688, -0.081312}}
local TO_RGB = {{1, 0, 1.402}, {1, -0.344136, -0.714136}, {1, 1.772, 0}}

-- row u of the orthonormal DCT-II of length n
local function basis(n, u, x)
  return (u == 0 and (1 / n) ^ 0.5 or (2 / n) ^ 0.5) * math.cos((2 * x + 1) * u * math.pi / (2 * n))
end

-- calls f(plane, u, v) for each latent channel in order; `kept` are the sides of the squares of Y,
-- Cb and Cr
local function channels(kept, f)
  for plane, side in ipairs(kept) do
    for u = 0, side - 1 do
      for v = 0, side - 1 do
        f(plane, u, v)
      end
    end
  end
end

-- [C, 3 n n]: from a block's RGB, colour slowest, to coefficients
local function forward_matrix(n, kept, C)
  local m = {}
  channels(kept, function(plane, u, v)
    for c = 1, 3 do
      for y = 0, n - 1 do
        for x = 0, n - 1 do
          m[#m + 1] = TO_YCC[plane][c] * basis(n, u, y) * basis(n, v, x)
        end
      end
    end
  end)
  return T.from({C, 3 * n * n}, m)
end

-- [n n 3, C]: from coefficients to a block's RGB, colour fastest
local function inverse_matrix(n, kept, C)
  local m = {}
  for y = 0, n - 1 do
    for x = 0, n - 1 do
      for c = 1, 3 do
        channels(kept, function(plane, u, v)
          m[#m + 1] = TO_RGB[c][plane] * basis(n, u, y) * basis(n, v, x)
        end)
      end
    end
  end
  return T.from({n * n * 3, C}, m)
end

local Autoencoder = {}
Autoencoder.__index = Autoencoder

--- Declares the autoencoder's buffers: mean and deviation per channel.
---@param params mr.Params
---@return mr.Autoencoder  `channels` per latent cell, one latent frame per frame
function dct.new(params)
  local scope = nn.scope(params, "autoencoder")
  local frozen = {frozen = true, buffer = true}
  return setmetatable({channels = CHANNELS, side = BLOCK, step = 1,
    mean = scope:add("mean", {CHANNELS}, {kind = "zeros"}, frozen),
    deviation = scope:add("deviation", {CHANNELS}, {kind = "ones"}, frozen)}, Autoencoder)
end

--- Latent size {C, T, H, W} of a clip.
function Autoencoder.latent(_, frames, height, width)
  return {CHANNELS, frames, -(-height // BLOCK), -(-width // BLOCK)}
end

--- Largest number of frames that `latent` latent frames encode.
function Autoencoder.most_frames(_, latent) return latent end

--- Number of frames at the beginning of a clip that `latent` latent frames encode.
function Autoencoder.head(_, latent) return latent end

--- Number of frames at the end of a clip whose latents are the last ones.
function Autoencoder.tail(_, frames, latent) return math.min(frames, latent) end

-- coefficients before normalisation: u8 [B, T, 3, H, W] -> f32 [B, T, blocks, 24]
local function coefficients(g, pixels)
  local x = ops.normalise_u8(pixels:permute{0, 2, 1, 3, 4}, {dtype = "f32"})
  return (ops.linear(ops.patchify(x, {pt = 1, ph = BLOCK, pw = BLOCK}),
    g:const(forward_matrix(BLOCK, KEPT, CHANNELS))))
end

--- The clean latents of a batch.
---@param pixels mr.Value  u8 [B, T, 3, H, W]
---@return mr.Value        f32 [B, 24, T, H/8, W/8]
function Autoencoder:encode(g, pixels)
  local c = coefficients(g, pixels)
  c = (c - nn.cast(g:param(self.mean), "f32")) / nn.cast(g:param(self.deviation), "f32")
  local shape = pixels.shape
  local size = self:latent(shape[2], shape[4], shape[5])
  return c:reshape{shape[1], size[2], size[3], size[4], CHANNELS}:permute{0, 4, 1, 2, 3}
end

--- Decodes latents to pictures.
---@param z mr.Value       f32 [B, 24, T, h, w]
---@param height integer   pixels; at most 8 h
---@param width integer
---@return mr.Value        f32 [B, 3, T, H, W], about -1..1, not clamped
function Autoencoder:decode(g, z, height, width)
  local B, frames, rows, cols = z.shape[1], z.shape[3], z.shape[4], z.shape[5]
  local c = z:permute{0, 2, 3, 4, 1}:reshape{B, frames, rows * cols, CHANNELS}
  c = c * nn.cast(g:param(self.deviation), "f32") + nn.cast(g:param(self.mean), "f32")
  local blocks = ops.linear(c, g:const(inverse_matrix(BLOCK, KEPT, CHANNELS)))
  return (ops.unpatchify(blocks, {pt = 1, ph = BLOCK, pw = BLOCK,
    dims = {3, frames, height, width}}))
end

--- Sums over the values of each channel of a batch, for the mean and deviation.
---@param pixels mr.Value  u8 [B, T, 3, H, W]
---@return mr.Value sum, mr.Value squares   f32 [C]
function Autoencoder.moments(_, g, pixels)
  local c = coefficients(g, pixels)
  return (ops.sum(c, {axes = {0, 1, 2}})), (ops.sum(c * c, {axes = {0, 1, 2}}))
end

--- Mean and deviation per channel from sums over n values. A share of the overall deviation is
-- added, so that channels with a small deviation are not amplified.
---@return table mean, table deviation
function Autoencoder.normalisation(_, sums, squares, n)
  local C, mean, deviation, overall = CHANNELS, {}, {}, 0
  for k = 1, C do
    mean[k] = sums[k] / n
    deviation[k] = math.max(squares[k] / n - mean[k] ^ 2, 0) ^ 0.5
    overall = overall + deviation[k] ^ 2 / C
  end
  -- a data set of one colour has no deviation at all
  local floor = math.max(FLOOR * overall ^ 0.5, 1e-6)
  for k = 1, C do
    deviation[k] = deviation[k] + floor
  end
  return mean, deviation
end

--- Its only part, whose buffers belong to the run.
function Autoencoder.parts() return {{name = "autoencoder"}} end

local calls = {}

-- pixels of a clip to latents, frames first
function calls.encode(self, s)
  local frames, height, width = s.frames, s.height, s.width
  local size = self:latent(frames, height, width)
  return {{part = "autoencoder", key = ("encode %dx%dx%d"):format(frames, height, width),
    takes = {pixels = {"pixels", 0, dtype = "u8", shape = {frames, 3, height, width}}},
    gives = {out = {"z", 0, frames}}, nodes = function(g, auto, io)
      return (ops.copy(auto:encode(g, io.pixels:reshape{1, frames, 3, height, width}):reshape(size)
        :permute{1, 0, 2, 3}))
    end}}
end

function calls.decode(_, s)
  local frames, height, width, size = s.frames, s.height, s.width, s.size
  return {{part = "autoencoder", key = ("decode %dx%dx%d"):format(frames, height, width),
    takes = {z = {"z", 0, dtype = "f32", shape = {size[2], size[1], size[3], size[4]}}},
    gives = {out = {"pixels", 0, frames}}, nodes = function(g, auto, io)
      local z = io.z:permute{1, 0, 2, 3}:reshape{1, table.unpack(size)}
      return (ops.copy(auto:decode(g, z, height, width):reshape{3, frames, height, width}
        :permute{1, 0, 2, 3}))
    end}}
end

--- The calls for a clip, for moonreel.encoder.
---@param job string   "encode" or "decode"
---@param s table      frames, height, width; for decode: size of the latents
function Autoencoder:calls(job, s) return calls[job](self, s) end

return dct
