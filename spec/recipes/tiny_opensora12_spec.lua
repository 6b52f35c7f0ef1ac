--- Open-Sora 1.2 in small: the stages in a row with its video autoencoder and T5, and a rendering.
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local weights = require "datasets.demo.weights"

describe("recipes/tiny/opensora12", function()
  local out = demo_data.scratch()
  local vae = "vae.from_pretrained=" .. out .. "/vae"
  local t5 = "text_encoder.from_pretrained=" .. out .. "/t5"
  local last = out .. "/runs/001-opensora12/stages/stage3"
  teardown(function()
    base.remove_dir(out)
    demo_data.remove()
  end)

  it("trains its stages one after the other, with masks of latent frames", function()
    weights.vae(out .. "/vae", 3)
    weights.t5(out .. "/t5", 4)
    local text = demo_data.moonreel("train", "recipes/tiny/opensora12.lua", vae, t5, "steps=2",
      "dataset.data_path=" .. demo_data.path(), "outputs=" .. out .. "/runs", "threads=1")
    assert.matches("stage stage3 %(3 of 3%): follows .*/stage2/ckpt/step%-000000000002\n", text)
    local final <close> = ckpt.open(last .. "/ckpt/step-000000000002")
    -- the autoencoder's weights lie in their own files alone
    assert.is_nil(final:info("scale"))
    assert.is_nil(final:info("temporal_vae.quant_conv.conv.weight"))
    assert.is_nil(final:info("shared.weight"))
  end)

  it("renders clips and stills through its autoencoder", function()
    local text = demo_data.moonreel("sample", last, "--prompt", "a red circle", "--steps", "2",
      "--frames", "6", "--out", out .. "/clips", "--threads", "1")
    local facts = require("moonreel.data").scan(text:match("(%S+%.mp4)"))
    assert.same({6, 32, 32}, {facts.frames, facts.height, facts.width})
  end)

  it("leaves nothing behind where the autoencoder's weights are missing", function()
    local ok, err = pcall(demo_data.moonreel, "train", "recipes/tiny/opensora12.lua",
      "vae.from_pretrained=" .. out .. "/none", t5, "dataset.data_path=" .. demo_data.path(),
      "outputs=" .. out .. "/refused")
    assert.is_false(ok)
    assert.matches("exit 8", err)
    assert.same({}, base.list_dir(out .. "/refused"))
  end)
end)
