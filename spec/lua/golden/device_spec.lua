--- Reference numbers on a device, the emulated GPU among them: the loss of a
-- flow, models forward and backward, autoencoders, a text encoder, an optimizer, a step and a
-- rendering of 2.0. All of a folder: MOONREEL_DEVICE=cudaemu moonreel golden DIR. The video
-- DC-AE, whose files are large, next to a CPU.
-- MOONREEL_DEVICE names the device.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local dc_ae = require "moonreel.models.dc_ae"
local folder = require "spec.support.folder"
local network = require "moonreel.models.dc_ae.network"
local nn = require "moonreel.nn"

-- cells that attend to all others at both levels, and a step in time
local SMALL = { in_channels = 3, out_channels = 3, latent_channels = 4, widths = { 32, 32 },
  encoder_blocks = { 1, 1 }, decoder_blocks = { 1, 1 }, attention_levels = 1,
  temporal_levels = { 0 }, frames_at_once = 2 }

describe("golden files on a device", function()
  it("agree with the reference", function()
    local place, lines = folder.new(), {}
    for _, name in ipairs{"adamw_ema", "rflow_train_0", "stdit3_nomask_text", "stdit3_weights",
        "vae_2d", "hunyuan_vae_grad", "clip_text_tiny", "train_i2v",
        "denoise_i2v_loop_neg"} do
      name = name .. ".safetensors"
      place:write(name, base.read_file("spec/golden/" .. name))
    end
    local sum = require("spec.golden.runner").run(place.path, function(line)
      lines[#lines + 1] = line
    end)
    place:remove()
    assert.equal(8, sum.passed, table.concat(lines, "\n"))
  end)

  it("agree with the CPU for the video DC-AE in pieces", function()
    local place <close> = folder.new()
    local params = G.params "f32"
    network.new(nn.scope(params), dc_ae.new(nil, SMALL, { dtype = "f32" }).sizes)
    local path = place:random_weights("ae.safetensors", params:seal(), 0.3)
    local x = T.new("f32", { 14, 3, 4, 2 }):fill_normal(1, "clip")
    local function of(device)
      local vae <close> = codec.open(path, { device = device, fields = SMALL })
      local z = vae:encode(x)
      local frames = {}
      vae:decode(z, { frames = 14, height = 4, width = 2 }, function(pictures)
        for _, value in ipairs(pictures:clone():totable()) do
          frames[#frames + 1] = value
        end
      end)
      return z, T.from({ #frames }, frames)
    end
    local z, y = of(E.device("cpu", 1))
    local got_z, got_y = of(E.device())
    assert.is_true((got_z - z):norm() < 1e-5 * z:norm())
    assert.is_true((got_y - y):norm() < 1e-5 * y:norm())
    assert.same({ { 4, 7, 2, 1 }, { 14 * 3 * 8 } }, { z.shape, y.shape })
  end)
end)
