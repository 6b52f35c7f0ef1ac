--- The demo's own step, from pixels to updated weights, at the demo's sizes.
-- @module moonreel.bench.demo
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local ranks = require "moonreel.optim.ranks"
local regions = require "moonreel.optim.regions"
local program = require "moonreel.trainer.program"
local step = require "moonreel.bench.step"
local work = require "moonreel.plan.work"

local demo = {}

local CAPTIONS = {
  "a red circle moving left on a black background",
    "a blue square moving right on a white background",
  "a green triangle moving up on a grey background",
    "a yellow circle moving down on a black background",
}

--- The bucket with the most work per step: {frames, batch, height, width}.
function demo.bucket(settings)
  local best
  for name, frames in pairs(settings:plain("bucket_config")) do
    for F, row in pairs(frames) do
      F = math.tointeger(tonumber(F))
      local size = settings:plain("resolutions")[name].aspects[1]
      if not best or F * row[2] * size[2] * size[3] > best.work then
        best = {frames = F, batch = row[2], height = size[2], width = size[3],
          work = F * row[2] * size[2] * size[3]}
      end
    end
  end
  return best
end

local function repeated(n, f)
  local out = {}
  for i = 1, n do
    out[i] = f(i)
  end
  return out
end

--- Prepares the whole step of a bucket.
---@param device mr.Device
---@param s table       baked settings
---@param size table    frames, height, width, batch
---@param dtype string
---@param world mr.Comm|nil  ranks that share the step; nil: a single rank
---@param stage integer|nil  ZeRO stage; nil: as the settings say
---@param micros integer|nil  micro-batches of a step; nil: one
---@return table one    pipe, exec, micro, update, owners; run(n) -> loss: runs a step of n
---   micro-batches (default: one)
function demo.open(device, s, size, dtype, world, stage, micros)
  local pipe = pipeline.of(s, dtype, world and ranks.cut(s, world:size()))
  local owners = world and ranks.new(pipe.params, world, {stage = stage or ranks.stage(s)})
  local fresh, rule = regions.fresh(owners, micros or 1), optim.rule(s)
  local exec = E.new(device, pipe.params, {regions = regions.of(s, owners, dtype, fresh,
    pipe.params)})
  exec:init(1)
  local update = optim.new(exec, pipe.params, owners, true, {rule = rule})
  local B = size.batch
  local micro = program.new(exec, pipe, {frames = size.frames, height = size.height,
    width = size.width, batch = B, text = pipe.text.max_length}, {reduce = owners, fresh = fresh})
  local pixels = repeated(B * size.frames * 3 * size.height * size.width, function(i)
    return (i * 7919) % 256
  end)
  local batch = {seed = 1, epoch = 0, keys = repeated(B, function(i)
    return i
  end), weight = repeated(B, function() return 1 / B end),
    fps = repeated(B, function() return 8 end),
    t = repeated(B, function(i) return 1000 * i / (B + 1) end),
    drop = repeated(B, function() return false end),
    tokens = pipe.text:tokens(repeated(B, function(i) return CAPTIONS[i % #CAPTIONS + 1] end)),
    pixels = T.from({B, size.frames, 3, size.height, size.width}, pixels, "u8")}
  local k = 0
  local function one(n)
    local loss
    k = k + 1
    for _ = 1, n or 1 do
      loss = micro:run(batch)
    end
    update:step{lr = 1e-4, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.01, max_norm = 1,
      ema_decay = 0.99, step = k, grad_scale = 1, muon = rule and rule.of(1e-4)}
    return loss
  end
  return {pipe = pipe, exec = exec, micro = micro, update = update, owners = owners, run = one}
end

--- Measures.
---@param options table    threads, dtype, seconds, recipe
---@param ask function|nil  ask(result): runs the same step in another program, as for step.in_turn
---@param say function|nil  say(result): receives the measurement before the other program runs
---@return table  isa, dtype, threads, tokens_per_s, tokens, seconds, tflops, ops; shape: data that
---   the peer needs for the same step; and what step.in_turn adds
function demo.measure(options, ask, say)
  -- PyTorch's step in this comparison uses AdamW
  local s = require("moonreel.settings").bake(options.recipe, {"optim.type=adamw"})
  local device <close> = E.device("cpu", options.threads or 0)
  local dtype = options.dtype or pipeline.dtype(s, device)
  local size = demo.bucket(s)
  local opened = demo.open(device, s, size, dtype)
  local _ <close> = opened.exec
  local pipe, B, text, one = opened.pipe, size.batch, opened.pipe.text.max_length, opened.run
  local seconds, rows = step.best(one, options.seconds, opened.micro.prog)
  local latent = pipe.autoencoder:latent(size.frames, size.height, size.width)
  local model = s:plain("model")
  local frames, rows_n, cols = pipe.model:grid(latent[2], latent[3], latent[4])
  local tokens, encoder = B * frames * rows_n * cols, pipe.text.config
  local r = {isa = device:facts().isa, dtype = dtype, threads = device:facts().threads,
    tokens = tokens, tokens_per_s = tokens / seconds,
    seconds = seconds, tflops = work.useful(rows) / seconds * 1e-12,
      ops = step.by_op(rows), loss = one(),
    shape = {batch = B, frames = frames, rows = rows_n, cols = cols, channels = latent[1],
      width = model.hidden_size,
      heads = model.num_heads,
      depth = model.depth, sigma = model.pred_sigma ~= false, text = text,
        text_width = pipe.text.width, text_heads = encoder.num_heads,
      text_rows = encoder.rows, ngram = encoder.ngrams, block = size.height // latent[3],
      height = size.height, pixel_width = size.width}}
  if say then
    say(r)
  end
  if ask then
    step.in_turn(r, one, opened.micro.prog, ask(r), options.seconds)
  end
  return r
end

return demo
