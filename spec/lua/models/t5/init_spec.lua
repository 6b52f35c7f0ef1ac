--- T5 in a recipe: its sizes without its weights, and its inputs to the step.
-- Covers: lua/moonreel/models/t5/init.lua
local G = require "moonreel.core.graph"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local t5 = require "moonreel.models.t5"
local weights = require "datasets.demo.weights"

describe("the text encoder t5", function()
  local dir, path
  setup(function() dir, path = folder.around(weights.t5, 1) end)
  teardown(function() dir:remove() end)

  local function new(from, length, dtype)
    return t5.new(nil, { from_pretrained = from, model_max_length = length },
      { dtype = dtype or "f32" })
  end

  it("has the width of config.json, or of the released model when that is missing", function()
    local here = new(path, 7)
    assert.same({ true, 32, 7, "f32" }, { here.apart, here.width, here.max_length, here.dtype })
    local known = new("DeepFloyd/t5-v1_1-xxl", 300, "bf16")
    assert.same({ 4096, 300, "bf16" }, { known.width, known.max_length, known.dtype })
    assert.equal(768, new("some/t5-v1_1-base/", 300).width)
  end)

  it("passes features and the number of used tokens to the step", function()
    local g = G.graph(G.params "f32":seal())
    local inputs = new(path, 7):inputs(g, 3)
    assert.same({ { 3, 7, 32 }, { 3 } }, { inputs.y.shape, inputs.len.shape })
    assert.equal(inputs.y, new(path, 7):forward(g, inputs))
  end)

  it("is refused without a folder", function()
    fails("MR_E_RECIPE", "text_encoder%.from_pretrained is not set", new, nil, 7)
    fails("MR_E_RECIPE", "from_pretrained: no config%.json in 'x/y', and nothing is downloaded",
      new, "x/y", 7)
    dir:write("part/config.json", '{"d_model": 32}')
    fails("MR_E_CKPT", "part/config%.json: there is no d_kv in it; expected the "
      .. "config.json of a T5 v1%.1", new, dir.path .. "/part", 7)
    fails("MR_E_RECIPE", "no config%.json in '" .. dir.path:gsub("%W", "%%%0") .. "'", new,
      dir.path, 7)
  end)
end)
