--- Reference numbers on the device of MOONREEL_DEVICE, the emulated GPU among them: the loss of a
-- flow, a model forward and backward, an autoencoder, an optimizer. All of 1.2:
-- MOONREEL_DEVICE=cudaemu moonreel golden DIR
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"

describe("golden files on a device", function()
  it("agree with the reference", function()
    local place, lines = folder.new(), {}
    for _, name in ipairs{"adamw_ema", "rflow_train_0", "stdit3_nomask_text", "stdit3_weights",
        "vae_2d"} do
      name = name .. ".safetensors"
      place:write(name, base.read_file("spec/golden/" .. name))
    end
    local sum = require("spec.golden.runner").run(place.path, function(line)
      lines[#lines + 1] = line
    end)
    place:remove()
    assert.equal(4, sum.passed, table.concat(lines, "\n"))
  end)
end)
