--- Training of a video autoencoder: from a decoded batch to the loss of what comes back. First of
-- pictures, where pixels are compared; then of latents of pictures joined in time, over the half
-- for pictures as it stands. Draws are keyed by sample, as those of moonreel.codec are.
-- Ref: Kingma & Welling 2014, arXiv:1312.6114 (the loss of the latent).
-- @module moonreel.trainer.reconstruction
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"

local reconstruction = {}

local EDGE = 1e-6  -- squared error at which the root of it turns linear

-- ---- batches ----

local Feed = {}
Feed.__index = Feed

--- What stays the same over a run.
---@param settings table  baked recipe
---@return mr.Feed
function reconstruction.feed(settings)
  return setmetatable({ seed = settings.seed }, Feed)
end

--- The graph shape of a bucket.
---@param bucket table  frames, height, width, batch
function Feed.shape(_, bucket)
  return { frames = bucket.frames, height = bucket.height, width = bucket.width,
    batch = bucket.batch, text = 0 }
end

--- What a micro-step needs of a decoded batch. The pixels stay the loader's.
---@param batch table  of the loader
---@return table       as moonreel.trainer.program Step:start takes it
function Feed:prepare(batch)
  return { seed = self.seed, epoch = batch.epoch, keys = batch.keys, weight = batch.weights,
    pixels = batch:tensor() }
end

--- Fill a program's inputs.
---@param prog mr.Program
---@param batch table  of Feed:prepare
function reconstruction.set(prog, batch)
  prog:set("pixels", batch.pixels)
  prog:set("weight", T.from({ #batch.weight }, batch.weight))
  prog:set("keys", T.from({ #batch.keys }, batch.keys, "i64"))
  prog:set("seed", T.from({ 1 }, { batch.seed }, "i64"))
  prog:set("epoch", T.from({ 1 }, { batch.epoch }, "i32"))
end

-- ---- losses, each f32 [B] ----

-- mean over all that belongs to a sample
local function each(x, B)
  return (ops.mean(x:reshape { B, T.count(x.shape) // B }, { axes = { 1 } }))
end

-- distance of a latent's normal from the standard one, per number
local function divergence(normal, B)
  local terms = normal.mean * normal.mean + ops.exp(normal.logvar) - normal.logvar
  return each(ops.affine(terms, { scale = 0.5, shift = -0.5 }), B)
end

-- normals for all samples, one for each of `count` frames
local function draws(io, purpose, count, size)
  return (ops.random_normal(io.seed, io.keys, io.epoch, { purpose = base.name_word(purpose),
    dims = { count, table.unpack(size) } })):reshape { io.B * count, table.unpack(size) }
end

-- latents of all pictures, and their normal
local function pictures_of(g, auto, io, cells)
  local _, frames, _, H, W = table.unpack(io.pixels.shape)
  local noise = draws(io, "latent of pictures", frames, { auto.inner, cells[3], cells[4] })
  return auto:encode_pictures(g, io.pixels:reshape { io.B * frames, 3, H, W }, noise)
end

local losses = {}

-- of pixels: absolute and squared
function losses.pictures(g, auto, io, cells)
  local z, normal = pictures_of(g, auto, io, cells)
  local back = auto:decode_pictures(g, z)
  local pixels = io.pixels:reshape { back.shape[1], 3, table.unpack(io.pixels.shape, 4) }
  -- sizes that are no whole cells come back smaller
  pixels = pixels:slice(2, 0, back.shape[3]):slice(3, 0, back.shape[4])
  local difference = back - ops.normalise_u8(pixels, { dtype = "f32" })
  local squared = difference * difference
  return each(squared + ops.sqrt((ops.affine(squared, { shift = EDGE }))), io.B),
    divergence(normal, io.B)
end

-- squared, where each channel of the batch has a variance of one
local function of_latents(back, x, B)
  local axes = { 0, 2, 3 }
  local mean = ops.mean(x, { axes = axes, keep = true }):expand(x.shape)
  local variance = ops.mean((x - mean) * (x - mean), { axes = axes, keep = true })
  local difference = back - x
  return each(difference * difference
    / ops.affine(variance, { shift = EDGE }):expand(x.shape), B)
end

-- of latents of pictures, piece by piece in time
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
  return error, kl
end

--- Build the graph of a shape.
---@param pipe mr.Pipeline   whose autoencoder trains
---@param shape table        frames, height, width, batch
---@param options table      of the graph
---@param reduce mr.Ranks|nil  to whom the gradients go at its end
---@return mr.Graph          with loss, per_sample, and kl: f32 [B], the latent's part before its
---   weight
function reconstruction.graph(pipe, shape, options, reduce)
  local B, auto = shape.batch, pipe.autoencoder
  local g = G.graph(pipe.params, options)
  local io = { B = B, seed = g:input("seed", "i64", { 1 }), keys = g:input("keys", "i64", { B }),
    epoch = g:input("epoch", "i32", { 1 }), weight = g:input("weight", "f32", { B }),
    pixels = g:input("pixels", "u8", { B, shape.frames, 3, shape.height, shape.width }) }
  local cells = auto:latent(shape.frames, shape.height, shape.width)
  local error, kl = losses[auto.trains](g, auto, io, cells)
  local per_sample = error + kl * pipe.kl_weight
  local loss = (ops.sum(per_sample * io.weight))
  g:output("loss", loss)
  g:output("per_sample", per_sample)
  g:output("kl", kl)
  g:backward(loss, {})
  if reduce then
    reduce:reduce(g)
  end
  g:finish()
  return g
end

return reconstruction
