--- Training of an autoencoder: its losses and their gradients, which half trains, and a run of both
-- stages and of a model on their latents, resumed bit for bit.
-- Covers: lua/moonreel/trainer/reconstruction.lua lua/moonreel/trainer/statistics.lua
-- Covers: lua/moonreel/models/opensora_vae/losses.lua recipes/tiny/vae.lua
-- recipes/tiny/demo_latent.lua
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local regions = require "moonreel.optim.regions"
local runs = require "moonreel.run"
local sample = require "moonreel.sample"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

-- two pieces in time, the second one short; sizes that are not multiples of a cell
local SHAPE = { frames = 5, height = 9, width = 12, batch = 2, text = 0 }

local function new_pipe(trains, kl_weight)
  return pipeline.new({ losses = { kl_loss_weight = kl_weight or 0.01 }, model = {
    type = "OpenSoraVAE_V1_2", trains = trains,
    micro_frame_size = 3, micro_batch_size = 4,
    vae_2d = { block_out_channels = { 8, 8 }, layers_per_block = 1, norm_num_groups = 2 },
    vae_temporal = { filters = 8, num_res_blocks = 1, channel_multipliers = { 1, 1 },
      temporal_downsample = { true, false }, num_groups = 2, latent_channels = 3 } } }, "f32")
end

local function new_batch()
  local values = {}
  for i = 1, 2 * 5 * 3 * 9 * 12 do
    values[i] = math.floor(255 * base.random_uniform(5, "pixels", 0, 0, i))
  end
  return { pixels = T.from({ 2, 5, 3, 9, 12 }, values, "u8"), keys = { 11, 12 }, seed = 5,
    epoch = 0, weight = { 1, 0.5 } }
end

local function opened(trains, rows, kl_weight)
  local pipe = new_pipe(trains, kl_weight)
  local run = E.new(E.device("cpu", 1), pipe.params, { regions = rows })
  run:init(3)
  return pipe, run, program.new(run, pipe, SHAPE, {})
end

describe("trainer.reconstruction", function()
  for _, trains in ipairs { "pictures", "frames" } do
    it("computes the gradient of its loss: " .. trains, function()
      local pipe, run, step = opened(trains, regions.gradients())
      local batch, checked = new_batch(), 0
      step:run(batch)
      local grad = run:read("grad", "f32", 0, { pipe.params:elements(false) })
      for i, p in ipairs(pipe.params:list()) do
        if not p.frozen and i % 5 == 0 then
          local w = run:param("w", p.name):clone()
          local way = T.new("f32", p.shape):fill_normal(9, "way", i)
          local slope, size = 0, 0
          local g = grad:slice(0, p.offset, p.offset + p.count):totable()
          for k, v in ipairs(way:totable()) do
            slope, size = slope + v * g[k], size + g[k] ^ 2
          end
          local function at(d)
            run:set_param("w", p.name, w + way * d)
            return step:run(batch)
          end
          local h = 2e-3
          local found = (at(h) - at(-h)) / (2 * h)
          run:set_param("w", p.name, w)
          assert.is_true(math.abs(found - slope) < 0.03 * math.max(math.abs(slope), size ^ 0.5)
            + 2e-3, ("%s: %g by differences, %g"):format(p.name, found, slope))
          checked = checked + 1
        end
      end
      assert.is_true(checked > 8)
    end)

    it("trains one half only, and the error becomes smaller: " .. trains, function()
      local pipe, run, step = opened(trains, regions.adamw())
      local frozen = run:read("frozen", "f32", 0, { pipe.params:elements(true) }):bytes()
      local update, batch, first, last = optim.new(run, pipe.params), new_batch(), nil, nil
      for k = 1, 60 do
        last = step:run(batch)
        first = first or last
        update:step { lr = 4e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0,
          max_norm = 1, step = k, grad_scale = 1 / 1.5 }
      end
      assert.is_true(last < 0.6 * first, ("%g after %g"):format(last, first))
      assert.equal(frozen, run:read("frozen", "f32", 0, { pipe.params:elements(true) }):bytes())
    end)
  end

  it("computes how far the latent is from a standard normal", function()
    local function losses(weight)
      local _, _, step = opened("frames", regions.gradients(), weight)
      step:run(new_batch())
      return step.prog:get("per_sample"):totable(), step.prog:get("kl"):totable()
    end
    local light, kl = losses(0.5)
    local heavy = losses(2)
    for i = 1, 2 do
      assert.is_true(kl[i] > 0.1)
      assert.near(1.5 * kl[i], heavy[i] - light[i], 1e-4 * heavy[i])
    end
  end)

  it("draws by sample: a batch in another order has the same losses", function()
    local _, _, step = opened("frames", regions.gradients())
    local batch = new_batch()
    step:run(batch)
    local losses = step.prog:get("per_sample"):totable()
    batch.keys = { 12, 11 }
    batch.pixels = T.from(batch.pixels.shape, (function()
      local a, n = batch.pixels:totable(), T.count(batch.pixels.shape) // 2
      return table.move(a, 1, n, n + 1, table.move(a, n + 1, 2 * n, 1, {}))
    end)(), "u8")
    step:run(batch)
    local turned = step.prog:get("per_sample"):totable()
    -- the variance of a channel is summed in the order of the batch
    assert.near(losses[1], turned[2], 1e-5 * losses[1])
    assert.near(losses[2], turned[1], 1e-5 * losses[2])
    assert.is_true(math.abs(losses[1] - losses[2]) > 1e-3)
  end)
end)

describe("stages of an autoencoder and a model on its latents", function()
  local out = demo_data.scratch()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  -- options that make a stage very small
  local function words(stage, prefix, ...)
    local list, record = {}, stage == "clips" and "vae." or "model."
    local function add(key, text) list[#list + 1] = prefix .. key .. "=" .. text end
    add(record .. "vae_2d.block_out_channels", "[8,8,8]")
    add(record .. "vae_2d.norm_group_channels", "4")
    add(record .. "vae_temporal.filters", "8")
    add(record .. "vae_temporal.num_groups", "2")
    add("bucket_config.32px", "recipe.replace{[1] = {1.0, 8}, [6] = {1.0, 2}}")
    if stage == "clips" then
      for _, width in ipairs { "model.hidden_size", "model.caption_channels",
          "text_encoder.width" } do
        add(width, "32")
      end
      add("model.depth", "1")
      add("model.num_heads", "2")
    end
    for _, word in ipairs { "steps=2", "warmup_steps=1", "threads=1", "num_workers=1",
        "outputs=" .. out, "data_path=" .. demo_data.path(), ... } do
      list[#list + 1] = prefix .. word
    end
    return list
  end

  it("follow one another", function()
    local all = { "train", "tiny/demo_latent", "name=whole", "outputs=" .. out }
    for _, stage in ipairs { "pictures", "frames", "clips" } do
      for _, word in ipairs(words(stage, "stages." .. stage .. ".")) do
        all[#all + 1] = word
      end
    end
    assert.matches("run .-/stages/clips:.-done: step 2", demo_data.moonreel(table.unpack(all)))
  end)

  it("write the parts of their losses to the journal", function()
    for _, stage in ipairs { "pictures", "frames" } do
      local weight = settings.bake("tiny/vae", {}, { stage = stage }).vae_loss_config.kl_loss_weight
      local lines = 0
      for line in runs.entries(demo_data.run_dir(out, "whole") .. "/stages/" .. stage) do
        if line.kind == "step" then
          local terms = line.scalars
          assert.near(line.loss, terms.reconstruction + weight * terms.kl, 1e-5 * line.loss)
          assert.is_true(terms.kl > 0 and terms.reconstruction > 0)
          lines = lines + 1
        end
      end
      assert.equal(2, lines)
    end
  end)

  local function newest(run_path) return ckpt.dir(run_path, ckpt.steps(run_path)[1]) end

  for _, stage in ipairs { "pictures", "frames" } do
    it("resume with the same bits: " .. stage, function()
      local whole = demo_data.run_dir(out, "whole") .. "/stages/"
      local function train(...)
        local more = { "name=cut-" .. stage, ... }
        if stage == "frames" then
          more[#more + 1] = "ckpt_path=" .. (select(2, ...) and "none" or newest(whole
            .. "pictures"))
        end
        local s = settings.bake("tiny/vae", words(stage, "stages." .. stage .. ".",
          table.unpack(more)),
          { stage = stage })
        assert.equal(0, (trainer.run(s, { write = function() end })))
      end
      train("steps=1")
      train("steps=2", "load=latest")
      assert.matches("equal: %d+ tensors, bit for bit", demo_data.moonreel("ckpt", "diff",
        whole .. stage, demo_data.run_dir(out, "cut-" .. stage)))
    end)
  end

  it("save an autoencoder under its released names, whose latents are normal", function()
    local whole = demo_data.run_dir(out, "whole")
    local pictures <close> = ckpt.open(newest(whole .. "/stages/pictures"))
    local frames <close> = ckpt.open(newest(whole .. "/stages/frames"))
    for _, name in ipairs { "spatial_vae.module.encoder.down_blocks.1.downsamplers.0.conv.weight",
        "spatial_vae.module.quant_conv.bias", "spatial_vae.module.decoder.conv_out.weight" } do
      assert.equal(0, pictures:compare(frames, name).differing, name)
    end
    local name = "temporal_vae.encoder.block_res_blocks.0.0.conv1.conv.weight"
    assert.is_true(pictures:compare(frames, name).differing > 0)
    assert.same({ 1, 8, 1, 1, 1 }, frames:info("scale").shape)
    for _, buffer in ipairs { "scale", "shift" } do
      assert.is_true(pictures:compare(frames, buffer).differing > 0, buffer)
    end
  end)

  it("are rendered with the autoencoder of the stage before", function()
    local whole = demo_data.run_dir(out, "whole")
    local sampler <close> = sample.open(whole)
    local clip = sampler:render { prompts = { "a red circle" }, seeds = { 1 }, steps = 1 }[1]
    assert.equal(6 * 3 * 32 * 32, #clip.pixels)
    fails("MR_E_USAGE", "is an autoencoder, which cannot render", sample.open,
      whole .. "/stages/frames")
    assert.is_nil(ckpt.before(whole .. "/stages/pictures"))
    assert.is_nil(ckpt.before(whole))
  end)
end)
