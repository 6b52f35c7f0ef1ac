local render = require "datasets.demo.render"
local settings = require "moonreel.settings"
local world = require "datasets.demo.world"

describe("recipes/tiny/demo", function()
  local s = settings.bake("tiny/demo")

  it("bakes with a fixed number of steps and a warm-up of one twentieth", function()
    assert.equal(1014, s.steps)
    assert.equal(s.steps // 20, s.warmup_steps)
    assert.equal(10, settings.bake("tiny/demo", { "steps=200" }).warmup_steps)
  end)

  it("has a bucket for the clips and one for the stills that the builder makes", function()
    local size = s.resolutions["32px"].aspects[1]
    local clip = render.frames(world.scenes(1, 1, 0)[1], 1, s.sampling.frames, size[2], size[3])
    assert.equal(6 * 3 * 32 * 32, #clip)
    assert.is_truthy(s.bucket_config["32px"][1])
    assert.is_truthy(s.bucket_config["32px"][s.sampling.frames])
  end)

  it("takes each caption as a whole", function()
    for _, scene in ipairs(world.scenes(1, 250, 50)) do
      assert.is_true(#scene.text <= s.text_encoder.max_length)
    end
  end)
end)
