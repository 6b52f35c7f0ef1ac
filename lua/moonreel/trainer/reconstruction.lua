--- Training of a video autoencoder: from a decoded batch to the loss of the reconstruction, which
-- the family defines. Draws depend on the sample, as in moonreel.codec.
-- @module moonreel.trainer.reconstruction
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local lengths = require "moonreel.codec.lengths"
local ops = require "moonreel.core.op"
local share = require "moonreel.trainer.share"

local reconstruction = {}

-- ---- batches ----

local Feed = {}
Feed.__index = Feed

--- Makes the feed of a run.
---@param settings table  baked recipe
---@param pipe mr.Pipeline
---@param mesh mr.Mesh|nil  ranks that share batches, one of which decodes them
---@return mr.Feed
function reconstruction.feed(settings, pipe, mesh)
  return setmetatable({ group = mesh and mesh.group or nil,
    seed = settings.seed, strategy = settings.mixed_strategy,
    ratio = settings.mixed_image_ratio or 0, auto = pipe.autoencoder }, Feed)
end

--- The number of frames of a batch's clips that train, from the first frame on: all, or by
-- mixed_strategy fewer. It is drawn for the batch, by its first sample. The reference draws on all
-- ranks but the first, and there more often; here it is drawn for every batch, with the same share.
---@param batch table  from the loader: frames, keys, epoch
---@return integer
function Feed:frames(batch)
  if not self.strategy then
    return batch.frames
  end
  local draw = base.random_uniform(self.seed, "mixed frames", batch.keys[1], batch.epoch)
  if self.strategy == "mixed_video_image" then
    return draw < self.ratio and 1 or batch.frames
  end
  local list = {}
  for frames = 1, batch.frames do
    list[#list + 1] = lengths.fits(self.auto.lengths, frames) and frames or nil
  end
  return list[math.ceil(draw * #list)]
end

--- The graph shape of a bucket.
---@param bucket table  frames, height, width, batch
function Feed.shape(_, bucket)
  return { frames = bucket.frames, height = bucket.height, width = bucket.width,
    batch = bucket.batch, text = 0 }
end

--- The inputs of a micro-step for a decoded batch. The pixels stay in the loader's memory.
---@param batch table  from the loader
---@param shape table  the shape in which the batch is trained: all frames of its clips, or fewer
---@return table       for Step:start of moonreel.trainer.program
function Feed:prepare(batch, shape)
  local pixels, weights = share.decoded(self.group, batch, { batch = shape.batch,
    frames = batch.frames, height = shape.height, width = shape.width })
  if shape.frames < batch.frames then
    pixels = pixels:slice(1, 0, shape.frames):clone()
  end
  return { seed = self.seed, epoch = batch.epoch, keys = batch.keys, weight = weights,
    pixels = pixels }
end

--- Sets a program's inputs.
---@param prog mr.Program
---@param batch table  from Feed:prepare
function reconstruction.set(prog, batch)
  prog:set("pixels", batch.pixels)
  prog:set("weight", T.from({ #batch.weight }, batch.weight))
  prog:set("keys", T.from({ #batch.keys }, batch.keys, "i64"))
  prog:set("seed", T.from({ 1 }, { batch.seed }, "i64"))
  prog:set("epoch", T.from({ 1 }, { batch.epoch }, "i32"))
end

--- Builds the graph of a shape.
---@param pipe mr.Pipeline   whose autoencoder trains
---@param shape table        frames, height, width, batch
---@param options table      of the graph
---@param config table       reduce, watched: as in program.config
---@param recompute function of a layer: whether it is recomputed in the backward pass, as in
---   program.recomputation
---@return mr.Graph          with loss; per_sample and its terms before their weights, by name
---   (mr.Losses): f32 [B]; terms: f32 [1 + n], sums of these by the samples' weights; moments: f32
---   [n, 3], of the discriminator's batches
function reconstruction.graph(pipe, shape, options, config, recompute)
  local B, auto = shape.batch, pipe.autoencoder
  local g = G.graph(pipe.params, options)
  local io = { B = B, seed = g:input("seed", "i64", { 1 }), keys = g:input("keys", "i64", { B }),
    epoch = g:input("epoch", "i32", { 1 }), weight = g:input("weight", "f32", { B }),
    pixels = g:input("pixels", "u8", { B, shape.frames, 3, shape.height, shape.width }),
    recompute = recompute,
    tap = config.watched and function(name, value) g:output(name, value) end or nil }
  local all = pipe.losses:of(g, auto:losses(g, io), io)
  local function sum(value) return (ops.sum(value * io.weight)) end
  local loss = all.moments and sum(all.per_sample) or all.train
  local sums = { loss:reshape { 1 } }
  g:output("loss", loss)
  g:output("per_sample", all.per_sample)
  for i, name in ipairs(pipe.losses.names) do
    g:output(name, all.terms[name])
    sums[i + 1] = sum(all.terms[name]):reshape { 1 }
  end
  g:output("terms", (G.concat(sums, 0)))
  if all.moments then
    g:output("moments", (G.concat(all.moments, 0)))
  end
  g:backward(all.train, {})
  if config.reduce then
    config.reduce:reduce(g)
  end
  g:finish()
  return g
end

return reconstruction
