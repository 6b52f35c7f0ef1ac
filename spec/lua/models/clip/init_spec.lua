--- CLIP's text encoder in a recipe. Its vector is that of the end of the text, in any batch.
-- Reference values of other programs: make golden.
-- Covers: lua/moonreel/models/clip/init.lua lua/moonreel/models/clip/network.lua
local clip = require "moonreel.models.clip"
local embed = require "moonreel.embed"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local weights = require "datasets.demo.weights"

describe("the text encoder clip", function()
  local dir, path
  setup(function() dir, path = folder.around(weights.clip, 1) end)
  teardown(function() dir:remove() end)

  local function new(from, length)
    return clip.new(nil, { from_pretrained = from, model_max_length = length or 77 },
      { dtype = "f32" })
  end

  it("has the width of config.json, or of the released model when that is missing", function()
    local here = new(path, 9)
    assert.same({ true, true, 32, 1, 9 }, { here.apart, here.vector, here.width, here.max_length,
      here.max_tokens })
    assert.equal(768, new("openai/clip-vit-large-patch14").width)
    assert.equal(512, new("x/clip-vit-base-patch16/").width)
    assert.equal(123060480 - 49408 * 768, new("openai/clip-vit-large-patch14"):elements())
  end)

  it("returns the same vector for a text alone, in a batch and padded", function()
    local enc <close> = embed.open(path, { padding = "skip" })
    local texts = { "red", "", "a red circle moves over the sea, then it stops there", "the" }
    local together = enc:tokens(texts)
    assert.same({ 4, 1, 32 }, together.y.shape)
    assert.same({ 1, 1, 1, 1 }, together.len:totable())
    local filled <close> = embed.open(path, { padding = "attend" })
    local all = filled:tokens(texts).y
    for b, text in ipairs(texts) do
      local want = enc:tokens { text }.y:totable()
      for name, got in pairs { together = together.y, filled = all } do
        for i, value in ipairs(got:slice(0, b - 1, b):totable()) do
          assert.near(want[i], value, 1e-5, name .. " " .. text)
        end
      end
    end
    local values = together.y:totable()
    assert.is_true(math.abs(values[1] - values[33]) > 1e-3)
  end)

  it("takes the vector at the first of the largest ids", function()
    assert.equal(2, clip.end_of { 3, 9, 4, 9 })
    assert.equal(1, clip.end_of { 5 })
  end)

  it("shortens a text to its number of positions", function()
    local enc <close> = embed.open(path, { max_length = 300, say = function() end })
    assert.equal(77, enc.max_length)
    assert.equal(77, #enc.tok:ids(("x"):rep(200)))
    fails("MR_E_RECIPE", "clip%.model_max_length is 78, but the CLIP of '.*' has 77 places; try: "
      .. "clip%.model_max_length = 77", new, path, 78)
  end)

  it("is refused without a folder", function()
    fails("MR_E_RECIPE", "clip%.from_pretrained is not set; expected the folder of a CLIP", new)
    fails("MR_E_RECIPE", "no config%.json in 'x/y', and nothing is downloaded", new, "x/y")
  end)
end)
