--- Parts in place of encoders: their sizes are those of the released ones.
-- Covers: lua/moonreel/plan/closed.lua
local closed = require "moonreel.plan.closed"
local given = require "moonreel.plan.given"

describe("a part that is given", function()
  local vae = given.part({ type = "OpenSoraVAE_V1_2", micro_frame_size = 17 }, "bf16")

  it("has the latent sizes of the video autoencoder", function()
    for frames, want in pairs { [51] = 15, [102] = 30, [204] = 60, [408] = 120, [1] = 1, [16] = 4,
        [18] = 6 } do
      assert.same({ 4, want, 18, 32 }, vae:latent(frames, 144, 256), frames)
    end
    local whole = given.part({ type = "OpenSoraVAE_V1_2" }, "bf16")
    assert.equal(13, whole:latent(51, 144, 256)[2])
  end)

  it("has the width and the tokens of the text encoder", function()
    local t5 = given.part({ type = "t5", model_max_length = 300 }, "bf16")
    assert.same({ 4096, 300 }, { t5.width, t5.max_length })
    assert.is_true(math.abs(t5.parameters / 4.76e9 - 1) < 0.001)
    assert.is_true(math.abs(t5:flop() / (2 * 4.76e9 * 300) - 1) < 0.001)
  end)

  it("is not there for what nobody knows", function()
    assert.is_nil(given.part({ type = "hunyuan_vae" }, "bf16"))
    assert.is_nil(given.part({}, "bf16"))
  end)

  it("encodes with the operations of its convolutions", function()
    -- a picture of 512 x 512 takes the 2-D encoder 1.1 TFLOP, the temporal one, which pads it to
    -- four frames, 1.7; pieces of 17 frames cost alike
    local one = closed.opensora_vae_encode(1, 512, 512)
    assert.is_true(one > 2.6e12 and one < 3.0e12, one)
    local more = closed.opensora_vae_encode(2, 512, 512) - one
    assert.is_true(more > 1.0e12 and more < 1.2e12, more)
    assert.equal(3 * closed.opensora_vae_encode(17, 144, 256),
      closed.opensora_vae_encode(51, 144, 256))
    assert.is_true(closed.opensora_vae_encode(17, 144, 256) > closed.opensora_vae_encode(16, 144,
      256))
  end)
end)
