--- A recipe with T5 as its text encoder trains, resumes and samples. The run is the same with T5's
-- weights in memory or streamed. A run whose encoder has no folder does not begin.
-- Covers: lua/moonreel/embed/init.lua lua/moonreel/models/t5/init.lua
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local sample = require "moonreel.sample"
local settings = require "moonreel.settings"
local weights = require "datasets.demo.weights"
local trainer = require "moonreel.trainer"

describe("a run with T5", function()
  local out = demo_data.scratch()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  local function bake(...)
    return settings.bake(out .. "/t5.lua", { "dataset.data_path=" .. demo_data.path(),
      "outputs=" .. out, "threads=1", "num_workers=1", "steps=2",
      "model.depth=1", "model.hidden_size=32",
      "model.num_heads=2", "model.caption_channels=32", "model.model_max_length=40", ... })
  end

  local function train(...)
    assert.equal(0, trainer.run(bake(...), { write = function() end }))
  end

  local function same(a, b)
    local one <close> = ckpt.open(a)
    local two <close> = ckpt.open(b)
    assert.same(one:names(), two:names())
    for _, name in ipairs(one:names()) do
      assert.equal(0, one:compare(two, name).differing, name)
      assert.is_nil(name:find("^encoder%.") or name:find("shared", 1, true), name)
    end
  end

  it("trains, resumes bit for bit while T5 streams, and renders", function()
    weights.t5(out .. "/encoder", 1)
    local file <close> = assert(io.open(out .. "/t5.lua", "w"))
    file:write(('return recipe.extend("tiny/demo") { text_encoder = recipe.replace { type = "t5", '
      .. 'from_pretrained = "%s/encoder", model_max_length = 40 } }'):format(out))
    file:flush()
    train("name=whole", "ckpt_every=1", "text_encoder.residency=all")
    local whole = demo_data.run_dir(out, "whole")
    assert.is_true(os.rename(ckpt.dir(whole, 2), out .. "/two"))
    train("name=whole", "ckpt_every=2", "text_encoder.residency=stream", "load=" .. whole)
    same(out .. "/two", ckpt.dir(demo_data.run_dir(out, "whole"), 2))
    local sampler <close> = sample.open(whole)
    local function render(prompt)
      return sampler:render { prompts = { prompt }, seeds = { 1 }, frames = 1, height = 32,
        width = 32, steps = 2, guidance = 3 }[1].pixels
    end
    local red = render "a red circle"
    assert.equal(32 * 32 * 3, #red)
    assert.equal(red, render "a red circle")
    assert.not_equal(red, render "a blue square moving left")
    -- its sizes are checked before anything is written
    fails("MR_E_RECIPE", "model%.caption_channels is 64, but the text encoder gives 32",
      trainer.run,
      bake("name=none", "model.caption_channels=64"), { write = function() end })
    fails("MR_E_RECIPE", "text_encoder%.from_pretrained: no config%.json in '.*nowhere'",
      trainer.run, bake("name=none", "text_encoder.from_pretrained=" .. out .. "/nowhere"),
      { write = function() end })
    assert.is_nil(demo_data.run_dir(out, "none"))
  end)
end)
