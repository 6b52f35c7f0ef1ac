--- A small Open-Sora 2.0: all its stages in sequence from the weights of an image model, with its
-- autoencoders, T5, CLIP and conditions; and renderings of their checkpoints.
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local data = require "moonreel.data"
local demo_data = dofile "spec/support/demo_data.lua"
local settings = require "moonreel.settings"
local start = require "moonreel.ckpt.start"
local weights = require "datasets.demo.weights"

local STAGES = { "image", "stage1", "stage2", "stage1_i2v", "stage2_i2v", "high_compression" }

describe("recipes/tiny/opensora20", function()
  local out = demo_data.scratch()
  local stages = out .. "/runs/001-opensora20/stages/"
  teardown(function()
    base.remove_dir(out)
    demo_data.remove()
  end)

  it("has the fields of the real stages, except sizes", function()
    for _, name in ipairs(STAGES) do
      local tiny = settings.bake("tiny/opensora20", nil, { stage = name })
      local real = settings.bake("opensora-2.0/train/" .. name)
      for _, path in ipairs { "optim", "dropout_ratio", "condition_config", "seed", "compat",
          "dtype", "grad_checkpoint", "grad_ckpt_settings", "is_causal_vae", "warmup_steps",
          "sigma_min", "model.guidance", "vae.type", "vae.scaling_factor", "text_encoder.type",
          "clip.type", "clip.max_length", "model.type", "model.cond_embed", "model.fused_qkv",
          "model.use_liger_rope", "model.patch_size", "patch_size", "dataset.type",
          "dataset.fps_max", "dataset.vmaf", "dataset.transform_name" } do
        assert.same(real:get(path), tiny:get(path), name .. " " .. path)
      end
    end
  end)

  it("trains its stages in sequence, each from the weights of the one before", function()
    weights.opensora20(out .. "/weights", 3)
    local at = out .. "/weights/"
    local text = demo_data.moonreel("train", "tiny/opensora20", "steps=2", "threads=1",
      "dataset.data_path=" .. demo_data.long_path(), "outputs=" .. out .. "/runs",
      "vae.from_pretrained=" .. at .. "hunyuan.safetensors",
      "text_encoder.from_pretrained=" .. at .. "t5", "clip.from_pretrained=" .. at .. "clip",
      "stages.image.ckpt_path=" .. at .. "flux.safetensors",
      "stages.high_compression.vae.from_pretrained=" .. at .. "dc_ae.safetensors")
    for i = 2, #STAGES - 1 do
      assert.matches(("stage %s %%(%d of 6%%): follows .*/%s/ckpt/step%%-000000000002\n"):format(
        STAGES[i], i, STAGES[i - 1]), text)
    end
    -- latents of another autoencoder: no weight is taken over
    assert.matches("stage high_compression %(6 of 6%): begins in .*/high_compression\n", text)
    local image <close> = ckpt.open(stages .. "image/ckpt/step-000000000002")
    local given <close> = ckpt.open(stages .. "stage2_i2v/ckpt/step-000000000002")
    assert.is_nil(image:info "cond_in.weight")
    assert.same({ 32, 68 }, given:info("cond_in.weight").shape)
    -- a condition begins at zero, and two stages with conditions changed it
    assert.is_true(start.tensor(given, "cond_in.weight"):to "f32":max() > 0)
    -- the weights of the other models are only in their own files
    assert.is_nil(given:info "shared.weight")
    assert.is_nil(given:info "encoder.conv_in.conv.weight")
  end)

  it("renders with conditions, and with the high-compression autoencoder", function()
    local still = out .. "/still.png"
    data.png(still, string.char(200, 30, 90):rep(32 * 32), { height = 32, width = 32 })
    local function run(stage, ...)
      local text = demo_data.moonreel("sample", stages .. stage, "--prompt", "a red circle",
        "--seed", "1", "--threads", "1", "--out", out .. "/clips/" .. stage, ...)
      local path = text:match "(%S+%.mp4)"
      local pixels, facts = data.decode(path)
      return { facts.frames, facts.height, facts.width }, pixels
    end
    local size, free = run "stage2_i2v"
    assert.same({ 17, 32, 32 }, size)
    local again, given = run("stage2_i2v", "--cond-type", "i2v_head", "--ref", still, "--overwrite")
    assert.same(size, again)
    assert.are_not.equal(free, given)
    assert.same({ 16, 32, 32 }, (run "high_compression"))
    -- the newest stage of the run itself
    local text = demo_data.moonreel("sample", out .. "/runs/001-opensora20", "--prompt", "a",
      "--seed", "1", "--frames", "1", "--threads", "1", "--out", out .. "/still")
    assert.matches("image_32x32/prompt_0000%.png\n$", text)
  end)
end)
