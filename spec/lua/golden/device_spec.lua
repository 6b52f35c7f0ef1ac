--- Reference numbers on the device of MOONREEL_DEVICE, the emulated GPU among them: the loss of a
-- flow, models forward and backward, autoencoders, a text encoder, an optimizer, a step and a
-- rendering of 2.0. All of a folder: MOONREEL_DEVICE=cudaemu moonreel golden DIR
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"

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
end)
