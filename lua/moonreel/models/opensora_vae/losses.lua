--- Losses of an autoencoder that trains, for moonreel.losses. First pictures are trained, by
-- comparing pixels; then latents of pictures joined in time, while the half for pictures is fixed.
-- Errors are means over a sample. Ref: Kingma & Welling 2014, arXiv:1312.6114 (the loss of the
-- latent).
-- @module moonreel.models.opensora_vae.losses
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local volume = require "moonreel.nn.volume"

local EDGE = 1e-6  -- below this squared error its root becomes linear

-- mean over all values of a sample
local function each(x, B)
  return (ops.mean(x:reshape { B, T.count(x.shape) // B }, { axes = { 1 } }))
end

-- divergence of a latent's normal from the standard normal, per number
local function divergence(normal, B)
  local terms = normal.mean * normal.mean + ops.exp(normal.logvar) - normal.logvar
  return each(ops.affine(terms, { scale = 0.5, shift = -0.5 }), B)
end

-- normal draws for all samples, one for each of `count` frames
local function draws(io, purpose, count, size)
  local drawn = ops.random_normal(io.seed, io.keys, io.epoch, { purpose = base.name_word(purpose),
    dims = { count, table.unpack(size) } })
  if io.tap then
    io.tap(purpose, drawn)
  end
  return drawn:reshape { io.B * count, table.unpack(size) }
end

-- latents of all pictures, and their normal
local function pictures_of(g, auto, io, cells)
  local _, frames, _, H, W = table.unpack(io.pixels.shape)
  local noise = draws(io, "latent of pictures", frames, { auto.inner, cells[3], cells[4] })
  return auto:encode_pictures(g, io.pixels:reshape { io.B * frames, 3, H, W }, noise)
end

local losses = {}

-- losses of pixels: absolute and squared
function losses.pictures(g, auto, io, cells)
  local z, normal = pictures_of(g, auto, io, cells)
  local back = auto:decode_pictures(g, z)
  local pixels = io.pixels:reshape { back.shape[1], 3, table.unpack(io.pixels.shape, 4) }
  -- sizes that are not whole cells come back smaller
  pixels = pixels:slice(2, 0, back.shape[3]):slice(3, 0, back.shape[4])
  local target = ops.normalise_u8(pixels, { dtype = "f32" })
  local difference = back - target
  local squared = difference * difference
  local function clip(v) return volume.channels_last(v, io.pixels.shape[2]) end
  return { error = each(squared + ops.sqrt((ops.affine(squared, { shift = EDGE }))), io.B),
    kl = divergence(normal, io.B), x = clip(target), y = clip(back), per_frame = 1 }
end

-- squared, after scaling each channel of the batch to a variance of 1
local function of_latents(back, x, B)
  local axes = { 0, 2, 3 }
  local mean = ops.mean(x, { axes = axes, keep = true }):expand(x.shape)
  local variance = ops.mean((x - mean) * (x - mean), { axes = axes, keep = true })
  local difference = back - x
  return each(difference * difference
    / ops.affine(variance, { shift = EDGE }):expand(x.shape), B)
end

-- losses of latents of pictures, piece by piece in time
function losses.frames(g, auto, io, cells)
  local frames, size = io.pixels.shape[2], { cells[1], cells[3], cells[4] }
  local inner = { auto.inner, cells[3], cells[4] }
  local x = pictures_of(g, auto, io, cells):reshape { io.B, frames, table.unpack(inner) }
  local noise = draws(io, "latent of frames", cells[2], size):reshape { io.B, cells[2],
    table.unpack(size) }
  local error, kl, first, at = nil, nil, 0, 0
  for _, n in ipairs(auto:pieces(frames)) do
    local t = auto:latent_frames(n)
    local piece = x:slice(1, first, first + n):reshape { io.B * n, table.unpack(inner) }
    local z, normal = auto:join(g, piece,
      noise:slice(1, at, at + t):reshape { io.B * t, table.unpack(size) }, n)
    local e = of_latents(auto:part(g, z, n), piece, io.B) * (n / frames)
    local d = divergence(normal, io.B) * (t / cells[2])
    error, kl = error and error + e or e, kl and kl + d or d
    first, at = first + n, at + t
  end
  return { error = error, kl = kl }
end

return losses
