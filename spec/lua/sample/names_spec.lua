--- Lengths, sizes and files by the reference's names; spec/golden/text_rules.json has all of them.
local names = require "moonreel.sample.names"
local resolutions = require "moonreel.recipe.resolutions"

local function message(f, ...)
  local good, err = pcall(f, ...)
  assert.is_false(good)
  return err.message
end

describe("names of the reference", function()
  it("are lengths", function()
    assert.equal(102, names.frames "4s")
    assert.equal(816, names.frames "16x")
    assert.equal(7, names.frames "7")
    for _, text in ipairs { "0", "3s", "-5", "x", "", "1.5" } do
      assert.matches("frames '.*': expected a number from 1 on, or a name: 2s, 4s, 8s, 16s, 32s, "
        .. "1x, ",
        message(names.frames, text))
    end
  end)

  it("are sizes, found by the name of the ratio and not by its value", function()
    assert.same({ 720, 1280 }, { names.size(resolutions["720p"], "9:16") })
    -- the value is nearer to 1.89
    assert.same({ 277, 132 }, { names.size(resolutions["144p"], "50:27") })
    -- no such name: the nearest
    assert.same({ 256, 144 }, { names.size(resolutions["144p"], "7:4") })
    assert.is_nil(names.size(resolutions["144p"], "square"))
    assert.is_nil(names.size(resolutions["144p"], "1:0"))
  end)

  it("are files", function()
    assert.equal("out/sample_0003", names.path("out", { index = 3 }))
    assert.equal("out/foo_0012-1", names.path("out", { index = 12, name = "foo", many = true,
      k = 1 }))
    assert.equal("out/a cat", names.path("out", { index = 0, prompt = "a cat" }))
  end)
end)
