--- Encoders beside the step: the programs that encode a clip, each as often as it runs, and those
-- of captions.
local closed = require "moonreel.plan.closed"
local encoders = require "moonreel.plan.encoders"
local machine = require "moonreel.plan.machine"
local pipeline = require "moonreel.models.pipeline"
local settings = require "moonreel.settings"

local FACTS = { facts = { device = "cpu", isa = "base", threads = 1, bf16 = true, amx = false } }

-- f of the encoders of Open-Sora 1.2 on an H100
local function with_encoders(f)
  local s = settings.bake("opensora-1.2/stage1", { "model.depth=1" })
  local e = encoders.new(pipeline.of(s, "bf16"), machine.open "H100", FACTS)
  f(e)
  e:close()
end

describe("encoders", function()
  it("have the weights of the released ones", function()
    with_encoders(function(e)
      -- the 2-D and the temporal autoencoder, both halves of each; T5 without its words
      local text = closed.t5.parameters - 32128 * 4096
      assert.is_true(math.abs(e.weights / 2 / (83.65e6 + 309.69e6 + text) - 1) < 0.001, e.weights)
      assert.matches("all of their 300 tokens", e.notes[1])
    end)
  end)

  it("take as long as their pictures, pieces and captions together", function()
    with_encoders(function(e)
      local captions = e.captions
      local function batch(frames, n, captioned)
        e.text = captioned and e.text or nil
        return e:batch { frames = frames, height = 144, width = 256, batch = n }
      end
      local with, most = batch(17, 4, true)
      local bare, clips = batch(17, 4)
      -- by formula: two operations for each weight and token; what is no product takes longer
      local formula = 4 * 300 * 2 * (closed.t5.parameters - 32128 * 4096)
      local prog, runs = captions(4)
      local flop = runs * prog:cost().flop
      assert.is_true(math.abs(flop / formula - 1) < 0.1, flop / formula)
      assert.is_true(with - bare > formula / 600e12 and with - bare < 1.3 * formula / 600e12)
      assert.is_true(most > clips and captions(4):memory().arena < most)
      -- sample by sample; three pieces of 17 frames
      assert.is_true(math.abs(batch(17, 8) / bare - 2) < 1e-9)
      assert.is_true(math.abs(batch(51, 4) / (3 * bare) - 1) < 0.02)
      assert.equal(clips, select(2, batch(51, 8)))
    end)
  end)
end)
