--- Training of autoencoders of Open-Sora 2.0: gradients of all terms, a smaller error after
-- training, sizes that do not fit.
-- Covers: lua/moonreel/losses/init.lua
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local regions = require "moonreel.optim.regions"
local vgg = require "spec.support.vgg"

local MODELS = {
  hunyuan_vae = { type = "hunyuan_vae", in_channels = 3, out_channels = 3, latent_channels = 4,
    block_out_channels = { 4, 4, 8, 8 }, layers_per_block = 1, norm_num_groups = 2,
    time_compression_ratio = 4, spatial_compression_ratio = 8, mid_block_add_attention = true,
    scale_factor = 0.5, shift_factor = 0.1, piece_size = 0 },
  dc_ae = { type = "dc_ae", in_channels = 3, out_channels = 3, latent_channels = 8,
    widths = { 8, 8, 32 }, encoder_blocks = { 1, 0, 0 }, decoder_blocks = { 1, 0, 0 },
    attention_levels = 1, temporal_levels = { 0, 1 }, frames_at_once = 0 },
}
local FRAMES = { hunyuan_vae = 5, dc_ae = 4 }
-- of samples, whose weights differ
local WEIGHT = { 1, 0.5 }

local function batch_of(frames, H, W)
  local values = {}
  for i = 1, 2 * frames * 3 * H * W do
    values[i] = math.floor(255 * base.random_uniform(5, "pixels", 0, 0, i))
  end
  return { pixels = T.from({ 2, frames, 3, H, W }, values, "u8"), keys = { 11, 12 }, seed = 5,
    epoch = 0, weight = WEIGHT }
end

describe("an autoencoder that trains", function()
  local dir, files
  setup(function()
    dir = folder.new()
    files = vgg.write(dir.path, 4)
  end)
  teardown(function() dir:remove() end)

  local function opened(type, rows, losses)
    local config = { perceptual_network = files.network, perceptual_linear = files.linear }
    for name, value in pairs(losses or {}) do
      config[name] = value
    end
    local pipe = pipeline.new({ model = MODELS[type], losses = config }, "f32")
    local run = E.new(E.device("cpu", 1), pipe.params, { regions = rows })
    run:init(3)
    pipe.losses:load(run, pipe.params)
    return pipe, run, program.new(run, pipe, { frames = FRAMES[type], height = 16, width = 16,
      batch = 2, text = 0 }, {})
  end

  for type in pairs(MODELS) do
    it("computes the gradient of its losses: " .. type, function()
      local pipe, run, step = opened(type, regions.gradients())
      local batch, n = batch_of(FRAMES[type], 16, 16), pipe.params:elements(false)
      step:run(batch)
      local grad, w = run:read("grad", "f32", 0, { n }), run:read("w", "f32", 0, { n })
      local squares = 0
      for _, v in ipairs(grad:totable()) do
        squares = squares + v * v
      end
      -- along the gradient, where the slope is its length
      local slope = squares ^ 0.5
      local way = grad * (1 / slope)
      local function at(d)
        run:write("w", 0, w + way * d)
        return step:run(batch)
      end
      local h = 2e-3
      local found = (at(h) - at(-h)) / (2 * h)
      assert.near(slope, found, 0.03 * math.abs(slope))
    end)

    it("reconstructs training clips better after training: " .. type, function()
      local pipe, run, step = opened(type, regions.adamw())
      local update, batch = optim.new(run, pipe.params), batch_of(FRAMES[type], 16, 16)
      local first, last
      for k = 1, 40 do
        last = step:run(batch)
        first = first or last
        update:step { lr = 4e-3, beta1 = 0.9, beta2 = 0.98, eps = 1e-8, weight_decay = 0,
          max_norm = 1, step = k, grad_scale = 1 / 1.5 }
      end
      assert.is_true(last < 0.9 * first, ("%g after %g"):format(last, first))
    end)

    it("has the same gradient with recomputation: " .. type, function()
      local pipe, run = opened(type, regions.gradients(true))
      local function gradient(config)
        local step = program.new(run, pipe, { frames = FRAMES[type], height = 16, width = 16,
          batch = 2, text = 0 }, config)
        step:run(batch_of(FRAMES[type], 16, 16))
        return run:read("grad", "f32", 0, { pipe.params:elements(false) }), step.graph:print()
      end
      local plain, kept = gradient { fresh = true }
      local again, text = gradient { fresh = true, grad_checkpoint = true }
      local all = math.max(plain:max(), -plain:min())
      assert.near(0, math.max((plain - again):max(), (again - plain):max()), 1e-6 * all)
      local function convolutions(graph) return select(2, graph:gsub("conv3d ", "")) end
      assert.is_true(convolutions(text) > convolutions(kept) + 1)
    end)

    it("weighs its terms: " .. type, function()
      local function of(weights)
        local _, _, step = opened(type, regions.gradients(), weights)
        step:run(batch_of(FRAMES[type], 16, 16))
        return step.prog
      end
      local default = of()
      local all, rec = default:get("per_sample"):totable(),
        default:get("reconstruction"):totable()
      local per = default:get("perceptual"):totable()
      local kl = type == "hunyuan_vae" and default:get("kl"):totable() or { 0, 0 }
      for b = 1, 2 do
        assert.near(rec[b] + 0.5 * per[b] + 5e-4 * kl[b], all[b], 1e-5 * all[b])
        assert.is_true(per[b] > 0 and rec[b] > 0)
      end
      local heavy = kl[1] > 0 and 1 or 0
      local other = of { perceptual_loss_weight = 2, kl_loss_weight = heavy }:get("per_sample")
        :totable()
      assert.near(rec[1] + 2 * per[1] + kl[1], other[1], 1e-5 * other[1])
      local plain = of { perceptual_loss_weight = 0, kl_loss_weight = 0 }:get("per_sample")
        :totable()
      assert.near(rec[2], plain[2], 1e-6 * rec[2])
    end)
  end

  it("refuses the divergence of a latent without random numbers", function()
    fails("MR_E_RECIPE", "kl_loss_weight = 1: the latents of this autoencoder are not random",
      opened,
      "dc_ae", {}, { kl_loss_weight = 1 })
  end)

  it("refuses clips that are not made of whole cells", function()
    local pipe = opened("dc_ae", regions.gradients())
    fails("MR_E_SHAPE", "clips of 18 x 17: .- multiples of 4; try: a resolution of 16 x 16",
      program.graph, pipe, { frames = 4, height = 18, width = 17, batch = 1, text = 0 }, {})
  end)
end)
