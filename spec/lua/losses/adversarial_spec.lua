--- An autoencoder and a discriminator that train against each other: the update from which each
-- loss counts, random numbers by sample, a run that is killed and resumed, and errors. Reference
-- values of other programs: make golden.
-- Covers: lua/moonreel/losses/adversarial.lua lua/moonreel/losses/discriminator.lua
-- lua/moonreel/optim/init.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local demo_data = dofile "spec/support/demo_data.lua"
local discriminator = require "moonreel.losses.discriminator"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local regions = require "moonreel.optim.regions"
local settings = require "moonreel.settings"
local state = require "moonreel.trainer.state"
local trainer = require "moonreel.trainer"
local vgg = require "spec.support.vgg"
local words = require "spec.support.adversarial"

local SHAPE = { frames = 5, height = 16, width = 16, batch = 2, text = 0 }
local MODEL = { type = "hunyuan_vae", in_channels = 3, out_channels = 3, latent_channels = 4,
  block_out_channels = { 4, 4, 8, 8 }, layers_per_block = 1, norm_num_groups = 2,
  time_compression_ratio = 4, spatial_compression_ratio = 8, mid_block_add_attention = true,
  scale_factor = 0.5, shift_factor = 0.1, piece_size = 0 }

local function new_pipe(change)
  return pipeline.new({ model = MODEL, losses = { perceptual_loss_weight = 0, adversary = {
    discriminator = { ndf = 4, n_layers = 2, dropout = change and change.dropout },
    gen = { gen_start = 3 }, disc = { disc_start = 2 } } } }, "f32")
end

local function new_batch()
  local values = {}
  for i = 1, 2 * 5 * 3 * 16 * 16 do
    values[i] = math.floor(255 * base.random_uniform(5, "pixels", 0, 0, i))
  end
  return { pixels = T.from({ 2, 5, 3, 16, 16 }, values, "u8"), keys = { 11, 12 }, seed = 5,
    epoch = 0, weight = { 1, 0.5 } }
end

local function opened(rows, change)
  local pipe = new_pipe(change)
  local run = E.new(E.device("cpu", 1), pipe.params, { regions = rows })
  run:init(3)
  return pipe, run, program.new(run, pipe, SHAPE, {})
end

-- largest gradient of each of the two models
local function largest(pipe, run)
  local found = { [0] = 0, 0 }
  for _, p in ipairs(pipe.params:list()) do
    if not p.frozen then
      local g = run:param("grad", p.name)
      found[p.model] = math.max(found[p.model], g:max(), -g:min())
    end
  end
  return found
end

describe("a discriminator", function()
  it("counts for each model from the update that its field sets", function()
    local pipe, run = opened(regions.gradients(true))
    local step = program.new(run, pipe, SHAPE, { fresh = true })
    local batch = new_batch()
    local function at(update)
      batch.update = update
      step:run(batch)
      return step.prog:get("generator"):max(), step.prog:get("discriminator"):max(),
        step.prog:get("generator_weight"):min(), largest(pipe, run)
    end
    local generator, judged, weight, grad = at(1)
    assert.same({ 0, 0 }, { generator, judged })
    assert.is_true(weight > 0 and grad[0] > 0)
    assert.equal(0, grad[1])
    local plain = grad[0]
    generator, judged, weight, grad = at(2)
    assert.is_true(generator == 0 and judged > 0.1 and grad[1] > 0 and weight > 0)
    assert.equal(plain, grad[0])
    generator, judged, weight, grad = at(3)
    assert.is_true(generator ~= 0 and judged > 0.1 and grad[1] > 0)
    assert.is_true(grad[0] ~= plain and weight > 0)
  end)

  it("applies dropout by sample: a batch in another order has the same losses", function()
    local _, _, step = opened(regions.gradients())
    local batch = new_batch()
    batch.weight, batch.update = { 1, 1 }, 3
    local function losses()
      step:run(batch)
      return step.prog:get("discriminator"):totable(), step.prog:get("generator"):totable()
    end
    local judged, generator = losses()
    local n = T.count(batch.pixels.shape) // 2
    local a = batch.pixels:totable()
    batch.pixels = T.from(batch.pixels.shape,
      table.move(a, 1, n, n + 1, table.move(a, n + 1, 2 * n, 1, {})), "u8")
    batch.keys = { 12, 11 }
    local turned, turned_generator = losses()
    for i = 1, 2 do
      assert.near(judged[i], turned[3 - i], 1e-4)
      assert.near(generator[i], turned_generator[3 - i], 1e-3 * math.abs(generator[i]))
    end
    batch.epoch = 1
    assert.is_true(math.abs(losses()[1] - turned[1]) > 1e-3)
    -- without dropout no random numbers are drawn for it
    local _, _, still = opened(regions.gradients(), { dropout = 0 })
    step = still
    local before = losses()
    batch.epoch = 2
    assert.near(before[1], losses()[1], 0.02)
  end)

  it("drops the share that dropout sets, and scales the rest", function()
    local params = G.params "f32"
    local net = discriminator.new(params, { ndf = 8, n_layers = 1, dropout = 0.25 })
    local run = E.new(E.device("cpu", 1), params:seal(), {})
    run:init(1)
    assert.near(0.6745, net.limit, 1e-3)
    local g = G.graph(params)
    local io = { seed = g:input("seed", "i64", { 1 }), keys = g:input("keys", "i64", { 2 }),
      epoch = g:input("epoch", "i32", { 1 }) }
    local opinion = net:forward(g, g:input("x", "f32", { 2, 4, 16, 16, 3 }), io, "real")
    g:output("out", opinion)
    local prog = run:compile(g:finish())
    prog:set("x", T.new("f32", { 2, 4, 16, 16, 3 }):fill_normal(1, "x"))
    prog:set("seed", T.from({ 1 }, { 1 }, "i64"))
    prog:set("keys", T.from({ 2 }, { 3, 4 }, "i64"))
    local sums, n = {}, 150
    for epoch = 1, n do
      prog:set("epoch", T.from({ 1 }, { epoch }, "i32"))
      prog:run()
      for i, v in ipairs(prog:get("out"):reshape { 256 }:totable()) do
        sums[i] = (sums[i] or 0) + v / n
      end
    end
    net.kept = 1
    local h = G.graph(params)
    h:output("out", (net:forward(h, h:input("x", "f32", { 2, 4, 16, 16, 3 }), {}, "real")))
    local plain = run:compile(h:finish())
    plain:set("x", T.new("f32", { 2, 4, 16, 16, 3 }):fill_normal(1, "x"))
    plain:run()
    local off, size = 0, 0
    for i, v in ipairs(plain:get("out"):reshape { 256 }:totable()) do
      off, size = off + (v - sums[i]) ^ 2, size + v * v
    end
    assert.is_true(off < 0.03 * size, ("%g of %g"):format(off, size))
  end)

  it("requires an autoencoder that returns whole clips", function()
    fails("MR_E_RECIPE", "a discriminator works only with model.type = hunyuan_vae or dc_ae",
      pipeline.new, { model = { type = "OpenSoraVAE_V1_2", micro_batch_size = 4 }, losses = {
        adversary = { discriminator = {} } } }, "f32")
  end)
end)

describe("an update of two models", function()
  -- two tables of one parameter each, or one of both
  local function table_of(list)
    local params = G.params "f32"
    for i, row in ipairs(list) do
      params:add { name = row, shape = { 70 * i }, init = { kind = "normal" },
        model = row == "b" and 1 or 0 }
    end
    return params:seal()
  end

  local function update(params, h)
    local run = E.new(E.device("cpu", 1), params, { regions = regions.of({ optim = {
      ema_decay = 0.5 } }, nil, "f32", false, params) })
    run:init(7)
    local change, norms = optim.new(run, params), nil
    for step = 1, 3 do
      for _, p in ipairs(params:list()) do
        local g = T.new("f32", p.shape):fill_normal(step, p.name) * (p.name == "b" and 3 or 0.2)
        run:write("grad", p.offset, g)
      end
      h.step = step
      norms = select(3, change:start(h)())
    end
    return run, norms
  end

  it("equals the separate update of each: rate, decays, clip", function()
    local a = { lr = 1e-2, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1, max_norm = 1,
      ema_decay = 0.5, grad_scale = 0.5 }
    local b = { lr = 3e-3, beta1 = 0.5, beta2 = 0.9, eps = 1e-6, weight_decay = 0, max_norm = 1,
      ema_decay = 0.5, grad_scale = 0.5 }
    a.others = { b }
    local both, norms = update(table_of { "a", "b" }, a)
    local first, of_first = update(table_of { "a" }, a)
    local params = G.params "f32"
    params:add { name = "b", shape = { 140 }, init = { kind = "normal" } }
    b.others = nil
    local second, of_second = update(params:seal(), b)
    assert.equal(first:param("w", "a"):bytes(), both:param("w", "a"):bytes())
    assert.equal(second:param("w", "b"):bytes(), both:param("w", "b"):bytes())
    assert.same({ of_first[0], of_second[0] }, { norms[0], norms[1] })
    assert.equal(first:param("ema", "a"):bytes(), both:param("ema", "a"):bytes())
    fails("MR_E_RANGE", "", both.param, both, "ema", "b")
  end)

  it("puts each model into buckets of its own", function()
    local params = G.params "f32"
    for i, model in ipairs { 0, 0, 1, 1 } do
      params:add { name = "p" .. i, shape = { 100 }, init = { kind = "zeros" }, model = model }
    end
    params:seal { ranks = 2, elements = 1 << 20, granule = 256 }
    assert.same({ { start = 0, stop = 256, chunk = 128 },
      { start = 256, stop = 512, chunk = 128 } }, params:buckets())
  end)
end)

describe("a run of an autoencoder with a discriminator", function()
  local out, files
  setup(function()
    out = folder.new()
    files = vgg.write(out.path, 4)
  end)
  teardown(function()
    out:remove()
    demo_data.remove()
  end)

  local function train(recipe, model, name, ...)
    local s = settings.bake("opensora-2.0/vae/" .. recipe, words(model, files, out.path, "name="
      .. name, ...))
    return trainer.run(s, { write = function() end })
  end

  for _, model in ipairs { "dc_ae", "hunyuan_vae" } do
    it("resumes with the same bits of both: " .. model, function()
      assert.equal(0, (train("train_dc_ae_disc", model, "whole-" .. model)))
      train("train_dc_ae_disc", model, "cut-" .. model, "steps=1")
      train("train_dc_ae_disc", model, "cut-" .. model, "load=latest")
      local whole = demo_data.run_dir(out.path, "whole-" .. model)
      assert.matches("equal: %d+ tensors, bit for bit", demo_data.moonreel("ckpt", "diff", whole,
        demo_data.run_dir(out.path, "cut-" .. model)))
      local source <close> = ckpt.open(ckpt.dir(whole, ckpt.steps(whole)[1]))
      assert.is_truthy(source:info "adam_v.discriminator.main.3.weight")
      assert.is_nil(source:info "ema.discriminator.main.3.weight")
      assert.is_nil(source:info "perceptual.features.0.weight")
      local variance = source:info "discriminator.main.3.running_var"
      assert.same({ 8 }, variance.shape)
    end)
  end

  -- frames of a run's micro-batches from its journal, and their numbers
  local function frames_of(name)
    local seen = {}
    local text = base.read_file(demo_data.run_dir(out.path, name) .. "/journal.jsonl")
    for frames in text:gmatch '"bucket":"(%d+)x%d+x%d+ b%d+ l0","bytes"' do
      seen[math.tointeger(frames)] = (seen[math.tointeger(frames)] or 0) + 1
    end
    return seen
  end

  it("is the same on several ranks, whatever parts of both models they share", function()
    local function launch(name, ...)
      local all = words("dc_ae", files, out.path, "name=" .. name, "steps=2", ...)
      demo_data.moonreel("train", "opensora-2.0/vae/train_dc_ae_disc", table.unpack(all))
      return demo_data.run_dir(out.path, name)
    end
    local whole = launch("by-two", "nproc_per_node=2", "plugin_config.zero_stage=0")
    local shared = launch("by-parts", "nproc_per_node=2", "plugin_config.zero_stage=3")
    assert.matches("equal: %d+ tensors, bit for bit", demo_data.moonreel("ckpt", "diff", whole,
      shared))
    train("train_dc_ae_disc", "dc_ae", "by-one", "accumulate=2", "steps=2")
    local one = demo_data.run_dir(out.path, "by-one")
    local a <close> = ckpt.open(ckpt.dir(one, 2))
    local b <close> = ckpt.open(ckpt.dir(whole, 2))
    for _, name in ipairs(a:names()) do
      local size = a:stats(name)
      -- f32, summed in another order
      assert.near(0, a:compare(b, name).max_abs, 1e-5 * math.max(size.max, -size.min) + 1e-7, name)
    end
  end)

  it("saves an autoencoder that other runs can use", function()
    train("train_dc_ae_disc", "dc_ae", "used", "steps=1")
    local run = demo_data.run_dir(out.path, "used")
    local coder <close> = codec.open(ckpt.dir(run, 1), { device = E.device("cpu", 1), fields = {
      latent_channels = 8, widths = { 8, 8, 32 }, encoder_blocks = { 1, 0, 1 },
      decoder_blocks = { 1, 0, 1 }, attention_levels = 1, temporal_levels = { 0, 1 } } })
    local z = coder:encode(T.new("u8", { 4, 3, 8, 8 }))
    assert.same({ 8, 1, 2, 2 }, z.shape)
  end)

  it("reads each field of the reference's recipes", function()
    for _, recipe in ipairs { "train_dc_ae", "train_dc_ae_disc" } do
      settings.bake("opensora-2.0/vae/" .. recipe):require_readers()
    end
  end)

  it("mixes first frames into clips, drawn by sample", function()
    local alone = { "discriminator.n_layers=none", "discriminator.ndf=none",
      "vae_loss_config.perceptual_loss_weight=0", "steps=40" }
    train("train_dc_ae", "dc_ae", "mixed", "mixed_image_ratio=0.3", table.unpack(alone))
    local seen = frames_of "mixed"
    assert.equal(40, seen[1] + seen[4])
    assert.is_true(seen[1] > 4 and seen[1] < 22, seen[1])
    train("train_dc_ae", "hunyuan_vae", "random", "mixed_strategy=mixed_video_random",
      table.unpack(alone))
    seen = frames_of "random"
    assert.equal(40, seen[1] + seen[5])
    assert.is_true(seen[1] > 10 and seen[1] < 30)
    -- the same again in two parts
    train("train_dc_ae", "dc_ae", "parts", "mixed_image_ratio=0.3", alone[1],
      alone[2], alone[3], "steps=7")
    train("train_dc_ae", "dc_ae", "parts", "mixed_image_ratio=0.3", "load=latest",
      table.unpack(alone))
    assert.matches("equal: %d+ tensors, bit for bit", demo_data.moonreel("ckpt", "diff",
      demo_data.run_dir(out.path, "mixed"), demo_data.run_dir(out.path, "parts")))
  end)

  it("does not resume from a checkpoint without a discriminator", function()
    train("train_dc_ae", "dc_ae", "alone", "discriminator.n_layers=none", "discriminator.ndf=none",
      "steps=1")
    local run = demo_data.run_dir(out.path, "alone")
    fails("MR_E_RECIPE", "discriminator%.type", train, "train_dc_ae_disc", "dc_ae", "more",
      "load=" .. run)
    -- nor when only its weights are missing
    local s = settings.bake("opensora-2.0/vae/train_dc_ae_disc", words("dc_ae", files, out.path))
    local pipe = pipeline.of(s, "f32")
    local exec = E.new(E.device("cpu", 1), pipe.params, { regions = regions.of(s, nil, "f32", false,
      pipe.params) })
    local source <close> = ckpt.open(ckpt.dir(run, ckpt.steps(run)[1]))
    fails("MR_E_CKPT", "no tensor '.-discriminator%.main%.", state.load, exec, pipe.params, source)
    -- only its weights are loaded
    train("train_dc_ae_disc", "dc_ae", "weights", "ckpt_path=" .. run, "steps=1")
  end)

  it("starts from the weights of a file, or refuses them by name", function()
    local params = G.params "f32"
    discriminator.new(params, { ndf = 4, n_layers = 3 })
    local path = out:write("disc.safetensors", "")
    local rows = {}
    for i, p in ipairs(params:seal():list()) do
      local values = (T.new("f32", p.shape) + i):bytes()
      rows[i] = { name = p.name:sub(#"discriminator." + 1), dtype = "f32", shape = p.shape,
        ptr = values, bytes = #values }
    end
    ckpt.write(path, rows)
    train("train_dc_ae_disc", "dc_ae", "given", "discriminator.from_pretrained=" .. path, "steps=1",
      "discriminator_optim.lr=0", "disc_loss_config.disc_start=2")
    local run = demo_data.run_dir(out.path, "given")
    local source <close> = ckpt.open(ckpt.dir(run, ckpt.steps(run)[1]))
    assert.same({ 1, 1, 1, 1 }, source["discriminator.main.0.weight"]:tensor():reshape { 4 * 81 }
      :slice(0, 0, 4):totable())
    rows[3].name = "main.2.weights"
    ckpt.write(path, rows)
    fails("MR_E_CKPT", "discriminator.from_pretrained: .-tensor 'main%.2%.weight' is missing",
      train, "train_dc_ae_disc", "dc_ae", "other", "discriminator.from_pretrained=" .. path)
    fails("MR_E_CKPT", "discriminator.from_pretrained: there is no file '/nowhere'", train,
      "train_dc_ae_disc", "dc_ae", "none", "discriminator.from_pretrained=/nowhere")
  end)

  it("has no matrices for Muon", function()
    fails("MR_E_RECIPE", "optim.type = muon cannot be used with a discriminator", train,
      "train_dc_ae_disc",
      "hunyuan_vae", "muon", "optim.type=muon", "optim.muon.parameters=['to_q.weight']",
      "optim.muon.block=8")
  end)
end)
