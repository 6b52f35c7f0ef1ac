--- Encoders beside the step: the programs that encode a clip, each as often as it runs.
local closed = require "moonreel.plan.closed"
local encoders = require "moonreel.plan.encoders"
local machine = require "moonreel.plan.machine"
local pipeline = require "moonreel.models.pipeline"
local settings = require "moonreel.settings"

local FACTS = { facts = { device = "cpu", isa = "base", threads = 1, bf16 = true, amx = false } }

-- f of the encoders of Open-Sora 1.2 on an H100
local function with_encoders(f)
  local s = settings.bake("opensora-1.2/stage1", { "model.depth=1" })
  local pipe = pipeline.new({ model = s:plain "model", vae = s:plain "vae",
    text_encoder = { type = "bytes", width = 4096, max_length = 300, num_heads = 4 } }, "bf16")
  local e = encoders.new(s, pipe, machine.open "H100", FACTS)
  f(e)
  e:close()
end

describe("encoders", function()
  it("have the weights of the released ones", function()
    with_encoders(function(e)
      -- the 2-D and the temporal autoencoder, both halves of each; T5 by formula
      local autoencoder = e.weights - 2 * closed.t5.parameters
      assert.is_true(math.abs(autoencoder / 2 / (83.65e6 + 309.69e6) - 1) < 0.001, autoencoder)
      assert.is_true(math.abs(closed.t5.parameters / 4.76e9 - 1) < 0.001)
      assert.matches("text_encoder 't5': its 4.76 G weights", e.notes[1])
    end)
  end)

  it("take as long as their pictures and pieces together, sample by sample", function()
    with_encoders(function(e)
      local function seconds(frames, batch)
        return (e:batch { frames = frames, height = 144, width = 256, batch = batch })
      end
      local text = e.text.flop / 500e12
      assert.equal(3 * seconds(17, 1), seconds(17, 3))
      -- three pieces of 17 frames, 12 times four pictures and one more each, or three more at once
      local one, three = seconds(17, 1) - text, seconds(51, 1) - text
      assert.is_true(math.abs(three / (3 * one) - 1) < 0.02, three / one)
      local _, bytes = e:batch { frames = 17, height = 144, width = 256, batch = 1 }
      local _, same = e:batch { frames = 51, height = 144, width = 256, batch = 4 }
      assert.equal(bytes, same)
      assert.is_true(bytes > 1e6)
    end)
  end)
end)
