--- The graph of one micro-step per bucket shape: built when it is first needed, compiled once,
-- cached. It goes from u8 pixels, or latents of a separate autoencoder, and text ids to the loss.
-- Gradients are added to the region "grad".
-- @module moonreel.trainer.program
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local conditions = require "moonreel.trainer.conditions"
local ops = require "moonreel.core.op"
local reconstruction = require "moonreel.trainer.reconstruction"

local program = {}

--- The cache key of a bucket shape (reference core, section 5).
---@param shape table  frames, height, width, batch, text, masked
function program.key(shape)
  return ("%dx%dx%d b%d l%d%s"):format(shape.frames, shape.height, shape.width,
    shape.batch, shape.text,
    shape.masked and " mask" or "")
end

--- The part of the settings that `graph` depends on.
---@param settings table  baked
---@param reduce mr.Ranks|nil  the ranks to which the gradients go at the end of every micro-step
---@param sequence mr.Sequence|nil  ranks that share the tokens of a batch
---@param fresh boolean|nil     gradients begin at zero in each micro-step (optim.regions)
---@param watched boolean|nil   latents and noise are outputs, for a `watch` of the run
---@return table config
function program.config(settings, reduce, sequence, fresh, watched)
  return {reduce = reduce, sequence = sequence, fresh = fresh, watched = watched,
    -- as in the fork of the reference that trains this way
    rows = sequence and settings.compat and sequence.size or nil,
    sigma_min = settings.sigma_min, grad_checkpoint = settings.grad_checkpoint,
    grad_ckpt_settings = settings:plain("grad_ckpt_settings"),
    grad_ckpt_keep_attention = settings.grad_ckpt_keep_attention,
    offload = (settings.grad_ckpt_buffer_size or 0) > 0 or nil}
end

--- Raises an error if blocks of a bucket keep more in host memory than the recipe allows.
---@param settings table
---@param bucket string   its name
---@param memory table    from mr.Program memory() of its micro-step
function program.check_buffer(settings, bucket, memory)
  local most = settings.grad_ckpt_buffer_size or 0
  if most > 0 and memory.pinned > most then
    blame.raise(settings, "grad_ckpt_buffer_size", "MR_E_RECIPE", "grad_ckpt_buffer_size = %d: "
      .. "blocks of bucket %s that recompute keep %d bytes of inputs in host memory; try: "
      .. "grad_ckpt_buffer_size = %d, or none, with which they stay on the device", most, bucket,
      memory.pinned, memory.pinned)
  end
end

--- The same config with a choice of recomputation.
---@param config table
---@param choice integer[]|boolean  from moonreel.trainer.recompute
---@return table config
function program.chosen(config, choice)
  local out = {}
  for name, value in pairs(config) do
    out[name] = value
  end
  out.grad_checkpoint, out.grad_ckpt_settings = false, choice or nil
  return out
end

--- The number of blocks of each kind in the graph of a shape.
---@param pipe mr.Pipeline
---@param shape table   as program.graph takes it
---@param config table  as program.graph takes it
---@return integer[]
function program.blocks(pipe, shape, config)
  local counted = program.chosen(config, false)
  counted.counts = {0, 0}
  program.graph(pipe, shape, counted):close()
  return counted.counts
end

--- What a step recomputes under the settings of a recipe, to need less memory.
---@param config table       grad_checkpoint, grad_ckpt_settings (not "auto": `chosen` replaces that
---   by a choice), grad_ckpt_keep_attention; counts: number of blocks of each kind, raised while a
---   graph is built
---@return table options     of the graph; without checkpointing nothing is recomputed
---@return function recompute  whether a block is recomputed as a whole, by its kind, 1 or 2, and
---   its number in that kind from 0
function program.recomputation(config)
  local wanted, all = config.grad_ckpt_settings, config.grad_checkpoint or false
  local options = {no_cheap = not (all or wanted),
    no_save = config.grad_ckpt_keep_attention == false}
  assert(wanted ~= "auto", "grad_ckpt_settings = \"auto\": no choice was made")
  if config.counts then
    return options, function(kind, i)
      config.counts[kind] = math.max(config.counts[kind], i + 1)
      return all
    end
  elseif wanted then
    -- the first blocks of each kind
    return options, function(kind, i) return i < (wanted[kind] or 0) end
  end
  return options, function() return all end
end

local Step = {}
Step.__index = Step

-- the clean latents: from pixels that are encoded in the same graph, or from an input, frames first
local function clean_latents(g, auto, shape)
  if not auto.apart then
    return auto:encode(g, g:input("pixels", "u8", {shape.batch, shape.frames, 3, shape.height,
      shape.width}))
  end
  local size = auto:latent(shape.frames, shape.height, shape.width)
  return g:input("x0", "f32", {shape.batch, size[2], size[1], size[3], size[4]}):permute{0, 2, 1, 3,
    4}
end

--- Builds the graph of a shape.
---@param pipe mr.Pipeline
---@param shape table    frames, height, width, batch, text, masked
---@param config table   grad_checkpoint, grad_ckpt_settings; forward: losses without gradients;
---   offload: inputs of blocks that recompute are kept in host memory; reduce, sequence, fresh,
---   rows, watched: as in program.config
---@return mr.Graph
function program.graph(pipe, shape, config)
  local B = shape.batch
  local options, recompute = program.recomputation(config)
  options.fresh_gradients = config.fresh
  if pipe.reconstructs then
    return reconstruction.graph(pipe, shape, options, config, recompute)
  end
  local g = G.graph(pipe.params, options)
  local t, fps, weight = g:input("t", "f32", {B}), g:input("fps", "f32", {B}),
    g:input("weight", "f32", {B})
  local x0 = clean_latents(g, pipe.autoencoder, shape)
  local size = x0.shape
  local mask = shape.masked and g:input("mask", "bool", {B, size[3]}) or nil
  local noise = ops.random_normal(g:input("seed", "i64", {1}), g:input("keys", "i64", {B}),
    g:input("epoch", "i32", {1}),
    {purpose = base.name_word("noise"), dims = {size[2], size[3], size[4], size[5]}})
  local text, drop = pipe:inputs(g, B), g:input("drop", "bool", {B})
  local cond = pipe:takes "cond" and conditions.nodes(g, pipe.autoencoder, x0) or nil
  local guidance = pipe:takes "guidance" and g:input("guidance", "f32", {B}) or nil
  local loss, per_sample = pipe.flow.loss{x0 = x0, noise = noise, t = t, weight = weight,
    mask = mask, sigma_min = config.sigma_min, predict = function(x_t)
      return pipe:predict(g, {x = x_t, t = t, fps = fps, x_mask = mask, text = text, drop = drop,
        height = shape.height, width = shape.width, recompute = recompute,
        offload = config.offload and not config.forward, sequence = config.sequence,
        rows = config.rows, cond = cond,
        guidance = guidance})
    end}
  g:output("loss", loss)
  g:output("per_sample", per_sample)
  if config.watched then
    g:output("latents", x0)
    g:output("noise", noise)
  end
  if not config.forward then
    g:backward(loss, {})
  end
  if config.reduce then
    config.reduce:reduce(g)
  end
  g:finish()
  return g
end

--- A compiled micro-step.
---@param run mr.Exec
---@param pipe mr.Pipeline
---@param shape table      as program.graph takes it
---@param config table     as program.graph takes it
---@param g mr.Graph|nil   their graph, which is closed with the micro-step; nil: made here
---@return mr.MicroStep  with prog, graph, shape, key, pipe, exec
function program.new(run, pipe, shape, config, g)
  g = g or program.graph(pipe, shape, config)
  return setmetatable({graph = g, prog = run:compile(g), shape = shape, key = program.key(shape),
    pipe = pipe, exec = run}, Step)
end

--- Frees its memory; it cannot run again.
function Step:close()
  self.prog:close()
  self.graph:close()
end

-- sets the inputs of a diffusion step
local function set_inputs(prog, batch, self)
  local B = self.shape.batch
  if batch.encode then
    batch.encode(prog, "x0")
  elseif batch.x0 then
    prog:set("x0", batch.x0:permute{0, 2, 1, 3, 4})
  else
    prog:set("pixels", batch.pixels)
  end
  prog:set("t", T.from({B}, batch.t))
  prog:set("fps", T.from({B}, batch.fps))
  prog:set("weight", T.from({B}, batch.weight))
  prog:set("drop", T.from({B}, batch.drop, "bool"))
  prog:set("keys", T.from({B}, batch.keys, "i64"))
  prog:set("seed", T.from({1}, {batch.seed}, "i64"))
  prog:set("epoch", T.from({1}, {batch.epoch}, "i32"))
  if batch.mask then
    prog:set("mask", T.from({B, #batch.mask // B}, batch.mask, "bool"))
  end
  if batch.given then
    conditions.set(prog, batch.given)
  end
  if batch.guidance then
    prog:set("guidance", T.new("f32", {B}) + batch.guidance)
  end
  self.pipe:set(prog, batch.tokens)
end

--- Sets the inputs of one batch, whose memory may then be reused. Does not wait for a run that has
-- begun.
---@param batch table  for Step:start
function Step:stage(batch)
  local set = self.pipe.reconstructs and reconstruction.set or set_inputs
  set(self.prog, batch, self)
  self.staged = batch
end

--- Starts to run on one batch, given before or now. The memory of the batch may then be reused.
---@param batch table  pixels: tensor u8; with a separate autoencoder x0: latents, or encode: a
---   function that writes them into an input; keys, t, fps, weight, drop: lists, one value per
---   sample; mask: flat list of all frames, or nil; tokens: of the text encoder; seed; epoch;
---   given: of moonreel.trainer.conditions, and guidance, if the model has these inputs
---@return mr.Fetched loss  arrives later: sum over samples of weight x loss; of an autoencoder that
---   trains also the sums of its terms (mr.Losses)
function Step:start(batch)
  if self.staged ~= batch then
    self:stage(batch)
  end
  self.staged = nil
  local adversary = self.pipe.losses and self.pipe.losses.adversary
  if adversary then
    adversary:set(self.prog, batch.update or 1)
  end
  self.prog:run()
  return self.prog:fetch(self.pipe.reconstructs and "terms" or "loss")
end

--- The moments of the discriminator's batches in the run before; waits for that run.
---@return number[]|nil  nil: there is no discriminator
function Step:moments()
  local own = self.pipe.losses
  return own and own.adversary and self.prog:get("moments"):reshape{-1}:totable() or nil
end

--- Runs on one batch, and waits.
---@param batch table   for Step:start
---@return number loss  sum over samples of weight x loss
function Step:run(batch)
  return self:start(batch):get():reshape{-1}:totable()[1]
end

return program
