--- A rendering with weights, noise and features of the reference and a video autoencoder: its
-- latents step by step, and the decoded frames.
-- Covers: lua/moonreel/sample/init.lua
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local conditions = require "moonreel.sample.conditions"
local fails = require "spec.support.fails"
local file = require "spec.golden.runner.file"
local folder = require "spec.support.folder"
local override = require "moonreel.recipe.override"
local sample = require "moonreel.sample"
local text = require "moonreel.models.text"
local weights = require "datasets.demo.weights"

local TRAJECTORY = 1e-4  -- of the reference's own files

describe("a rendering with the reference's weights", function()
  local dir, golden
  setup(function()
    dir, golden = folder.new(), file.open "spec/golden/rflow_sample_masked.safetensors"
    weights.vae(dir.path .. "/vae", 5)
    weights.t5(dir.path .. "/t5", 1)
    local from <close>, rows = golden:weights(), {}
    for i, name in ipairs(from.names) do
      local t = from:tensor(name)
      rows[i] = {name = name, dtype = t.dtype, shape = t.shape, ptr = t:bytes(),
        bytes = #t:bytes()}
    end
    ckpt.write(dir.path .. "/model.safetensors", rows)
    base.replace_file(dir.path .. "/config.json", [[{"model_type": "STDiT3", "depth": 2,
      "hidden_size": 64, "num_heads": 4, "patch_size": [1, 2, 2], "in_channels": 4,
      "caption_channels": 32, "model_max_length": 12, "input_sq_size": 512, "mlp_ratio": 4.0,
      "qk_norm": true, "pred_sigma": true}]])
  end)
  teardown(function()
    golden:close()
    dir:remove()
  end)

  local function open()
    local overrides = {}
    for i, field in ipairs {"dtype=fp32", "vae.from_pretrained=" .. dir.path .. "/vae",
        "text_encoder.from_pretrained=" .. dir.path .. "/t5", "text_encoder.model_max_length=12",
        "cfg_scale=" .. golden:need "cfg_scale"} do
      overrides[i] = override.parse(field)
    end
    return sample.open(dir.path, {overrides = overrides, ema = false, threads = 1})
  end

  -- masks, noise and features as recorded; the model gets other sizes than those of its latents
  local function recorded(sampler, z)
    local mask, n = golden:list "in.mask", golden.has["in.mask"].shape[2]
    local rows, noise, fill = 0, golden:tensor "in.noise_per_step", T.methods.fill_torch_normal
    local new = conditions.new
    T.methods.fill_torch_normal = function(t, _, step)
      return t:copy_from(step == 0 and z or noise:slice(0, step - 1, step):reshape(z.shape))
    end
    conditions.new = function()
      rows = rows + 1
      local row = table.move(mask, (rows - 1) * n + 1, rows * n, 1, {})
      return {apply = function() return row end, kept = function() return 0 end}
    end
    local y = golden:tensor "in.y_cond"
    local packed, len = text.pack(y:reshape {z.shape[1], 12, 32}, golden:tensor "in.text_mask")
    sampler.pipe.text.tokens = function() return {y = packed, len = len} end
    sampler.pipe.autoencoder.latent = function() return table.move(z.shape, 2, 5, 1, {}) end
    return function() T.methods.fill_torch_normal, conditions.new = fill, new end
  end

  it("is refused below a cell of the autoencoder, and when it does not fit", function()
    local sampler <close> = open()
    local function refused(code, pattern, height, width)
      fails(code, pattern, sampler.render, sampler, {prompts = {"a"}, frames = 102,
        height = height, width = width, steps = 1})
    end
    refused("MR_E_USAGE", "frames of 4 x 40 are smaller than a cell of the autoencoder", 4, 40)
    refused("MR_E_MEMORY", "sample: 102 frames of 60000 x 60000, 1 at once, need about .-, and "
      .. ".- are free; try: %-%-size %d+x%d+", 60000, 60000)
  end)

  it("has the reference's latents, and the autoencoder's frames of them", function()
    local sampler <close> = open()
    local z = golden:tensor "in.z"
    local back, last, worst = recorded(sampler, z), nil, 0
    local ins = golden:tensor "out.z_in_per_step"
    local ok, clips = pcall(sampler.render, sampler, {prompts = {"a", "b"}, seeds = {1},
      batch_size = 2, steps = golden:need "steps", frames = 17, height = 240, width = 426, fps = 24,
      watch = function(i, prog)
        last = prog:get "z"
        local want = ins:slice(0, i - 1, i):reshape(z.shape):clone()
        worst = math.max(worst, (prog:get "z_start" - want):norm() / want:norm())
      end})
    back()
    assert.is_true(ok, tostring(clips))
    local want = golden:tensor "out.z"
    assert.is_true(worst < TRAJECTORY, worst)
    assert.is_true((last - want):norm() < TRAJECTORY * want:norm())
    for b, clip in ipairs(clips) do
      local one = want:slice(0, b - 1, b):reshape {4, 5, 4, 6}
      local frames = sampler.codec:decode(one, {frames = 17})
      assert.same({17, 3, 32, 48}, frames.shape)
      assert.same({17, 32, 48}, {clip.frames, clip.height, clip.width})
      -- bytes may round to the other side
      local off = T.from(frames.shape, clip.pixels, "u8"):to "f32" - frames:to "f32"
      assert.is_true(off:max() <= 1 and off:min() >= -1)
    end
  end)
end)
