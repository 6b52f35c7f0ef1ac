--- A discriminator that learns to distinguish the demo's clips from the same clips blurred (means
-- of 3 x 3 pixels): how many held-out clips it judges as more real than their blurred copies. A
-- measurement; no spec runs it. Usage: moonreel spec/support/adversary_full.lua [STEPS [DROPOUT
-- [SEED|train]]]; SEED: of first weights, order and dropout; with `train` the blurred clips are
-- the output of an autoencoder that trains against it.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local adversarial = require "moonreel.losses.adversarial"
local ckpt = require "moonreel.ckpt"
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local discriminator = require "moonreel.losses.discriminator"
local fill = require "moonreel.ckpt.fill"
local folder = require "spec.support.folder"
local ops = require "moonreel.core.op"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local regions = require "moonreel.optim.regions"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"
local vgg = require "spec.support.vgg"
local volume = require "moonreel.nn.volume"
local words = require "spec.support.adversarial"

local DROPOUT <const> = tonumber(arg[2] or 0.1)
local STEPS <const>, BATCH <const>, FRAMES <const>, SIDE <const> = tonumber(arg[1] or 300), 8, 4, 32
local SEED <const> = math.tointeger(tonumber(arg[3])) or 1
local SETTLE <const> = 60 -- batches after the last update
local SHAPE <const> = { BATCH, FRAMES, 3, SIDE, SIDE }
local SIZES <const> = { ["32px"] = { pixels = SIDE * SIDE, aspects = { { 1.0, SIDE, SIDE } } } }

-- the demo's clips of a seed, as an index
local function clips_of(out, seed)
  local dir = ("%s/seed%d"):format(out.path, seed)
  demo_data.moonreel("datasets/demo/build.lua", dir, tostring(seed))
  demo_data.moonreel("data", "ingest", dir .. "/demo.csv", "-o", dir .. ".mrx")
  return dir .. ".mrx"
end

-- calls f with each whole batch of clips
local function each_batch(path, epochs, f)
  local index <close> = data.open(path)
  local loader <close> = data.loader { index = index, epochs = epochs, seed = SEED,
    bucket_config = { ["32px"] = { [FRAMES] = { 1.0, BATCH } } }, resolutions = SIZES }
  for batch in function() return loader:next() end do
    if batch.n == BATCH and f(batch) == false then
      return
    end
    loader:release(batch)
  end
end

-- clips of -1..1 without their border, and means of 3 x 3 pixels in the same places
local function sharp_and_blurred(g)
  local x = volume.pixels(g:input("pixels", "u8", SHAPE):reshape { BATCH * FRAMES, 3, SIDE, SIDE },
    FRAMES, "f32")
  local function part(i, k) return x:slice(2, i, SIDE - 2 + i):slice(3, k, SIDE - 2 + k) end
  local sum
  for i = 0, 2 do
    for k = 0, 2 do
      sum = sum and sum + part(i, k) or part(i, k)
    end
  end
  return part(1, 1), sum * (1 / 9), x
end

local function mean(v) return (ops.mean(v, { axes = { 1 } })) end

-- Held-out clips, and the share of them that it judges as more real than others: lines of {the
-- others, by its running statistics, by those of each batch, as in training}.
local function score(params, run, net, auto, held)
  local g = G.graph(params)
  local sharp, blurred, x = sharp_and_blurred(g)
  local rows = { { "blurred", sharp, blurred }, auto and { "what came back", x,
    auto:reconstruct(g, x) } or nil }
  net.kept = 1
  for i, row in ipairs(rows) do
    g:output("running" .. i, mean(net:judge(g, row[2])) - mean(net:judge(g, row[3])))
    g:output("batch" .. i, mean((net:forward(g, row[2], {}, "a")))
      - mean((net:forward(g, row[3], {}, "b"))))
  end
  local prog, n, right = run:compile(g:finish()), 0, {}
  each_batch(held, 1, function(batch)
    prog:set("pixels", batch:tensor())
    prog:run()
    n = n + BATCH
    for _, name in ipairs(g:outputs()) do
      for _, sure in ipairs(prog:get(name):totable()) do
        right[name] = (right[name] or 0) + (sure > 0 and 1 or 0)
      end
    end
  end)
  for i, row in ipairs(rows) do
    rows[i] = ("%.1f %% more real than %s by running numbers, %.1f %% by those of a batch"):format(
      100 * right["running" .. i] / n, row[1], 100 * right["batch" .. i] / n)
  end
  return n, rows
end

-- the discriminator by itself
local function alone(path, held)
  local params = G.params "f32"
  local net = discriminator.new(params, { ndf = 32, n_layers = 3, dropout = DROPOUT })
  local run = E.new(E.device("cpu"), params:seal(), { regions = regions.adamw() })
  run:init(SEED)
  local g = G.graph(params)
  local io = { seed = g:input("seed", "i64", { 1 }), keys = g:input("keys", "i64", { BATCH }),
    epoch = g:input("epoch", "i32", { 1 }) }
  local sharp, blurred = sharp_and_blurred(g)
  local real, of_real = net:forward(g, sharp, io, "real")
  local fake, of_fake = net:forward(g, blurred, io, "fake")
  local loss = ops.sum(adversarial.loss("hinge", real, fake))
  g:output("loss", loss)
  g:output("moments", (G.concat({ of_real, of_fake }, 0)))
  g:backward(loss, {})
  local prog, update, step = run:compile(g:finish()), optim.new(run, params), 0
  prog:set("seed", T.from({ 1 }, { SEED }, "i64"))
  each_batch(path, 100, function(batch)
    step = step + 1
    prog:set("pixels", batch:tensor())
    prog:set("keys", T.from({ BATCH }, batch.keys, "i64"))
    prog:set("epoch", T.from({ 1 }, { batch.epoch }, "i32"))
    prog:run()
    net:remember(run, prog:get("moments"):reshape { -1 }:totable())
    -- the last batches set the running statistics of the final weights
    if step <= STEPS then
      update:step { lr = 5e-4, beta1 = 0.9, beta2 = 0.98, eps = 1e-8, weight_decay = 0,
        max_norm = 1, step = step, grad_scale = 1 / BATCH }
    end
    return step < STEPS + SETTLE
  end)
  return score(params, run, net, nil, held)
end

-- the discriminator of an autoencoder that trains
local function trained(out, path, held)
  local s = settings.bake("opensora-2.0/vae/train_dc_ae_disc", words("dc_ae",
    vgg.write(out.path, 4), out.path, "name=all", "data_path=" .. path, "steps=" .. STEPS,
    "epochs=100", "log_every=50", "mixed_strategy=none", "discriminator.ndf=16", "optim.lr=1e-3",
    "discriminator_optim.lr=1e-3", "discriminator.dropout=" .. DROPOUT,
    ("bucket_config=recipe.replace{['32px'] = {[%d] = {1.0, %d}}}"):format(FRAMES, BATCH)))
  trainer.run(s, { write = print })
  local pipe = pipeline.of(s, "f32")
  local run = E.new(E.device("cpu"), pipe.params, {})
  local dir = demo_data.run_dir(out.path, "all")
  local source <close> = ckpt.open(ckpt.dir(dir, ckpt.steps(dir)[1]))
  fill.weights(run, pipe.params, source, {})
  return score(pipe.params, run, pipe.losses.adversary.network, pipe.autoencoder, held)
end

local out <close> = folder.new()
local path, held = clips_of(out, 1), clips_of(out, 2)
local n, rows
if arg[3] == "train" then
  n, rows = trained(out, path, held)
else
  n, rows = alone(path, held)
end
print(("%d held-out clips after %d steps: %s"):format(n, STEPS, table.concat(rows, "; ")))
