--- The known name that is nearest to an unknown one.
local nearest = require "moonreel.text.nearest"

describe("nearest", function()
  it("finds typos of one or two letters and swaps", function()
    assert.equal("epochs", nearest("epoch", { "steps", "epochs", "seed" }))
    assert.equal("warmup_steps", nearest("warmup-stesp", { "warmup_steps", "steps" }))
    assert.equal("lr", nearest("lrr", { "lr", "dtype" }))
    assert.equal("seed", nearest("SEDE", { "seed", "steps" }))
  end)

  it("returns nothing rather than a distant name", function()
    assert.is_nil(nearest("banana", { "lr", "epochs", "dtype" }))
    assert.is_nil(nearest("xx", {}))
  end)

  it("is the same for any order of names", function()
    assert.equal("ab", nearest("aa", { "ac", "ab" }))
    assert.equal("ab", nearest("aa", { "ab", "ac" }))
  end)
end)
