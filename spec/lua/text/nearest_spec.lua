--- The name that was meant.
local nearest = require "moonreel.text.nearest"

describe("nearest", function()
  it("finds slips of one or two letters and swaps", function()
    assert.equal("epochs", nearest("epoch", { "steps", "epochs", "seed" }))
    assert.equal("warmup_steps", nearest("warmup-stesp", { "warmup_steps", "steps" }))
    assert.equal("lr", nearest("lrr", { "lr", "dtype" }))
    assert.equal("seed", nearest("SEDE", { "seed", "steps" }))
  end)

  it("says nothing rather than something far", function()
    assert.is_nil(nearest("banana", { "lr", "epochs", "dtype" }))
    assert.is_nil(nearest("xx", {}))
  end)

  it("is the same whatever the order of names", function()
    assert.equal("ab", nearest("aa", { "ac", "ab" }))
    assert.equal("ab", nearest("aa", { "ab", "ac" }))
  end)
end)
