--- One number that identifies the samples of a step.
local digest = require "moonreel.data.digest"

describe("the digest of a step's samples", function()
  it("is the same for the same samples in any order and any micro-batches", function()
    local one = digest.of { { keys = { 5, -7, 9, 11 } } }
    assert.matches("^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x$", one)
    assert.equal(one, digest.of { { keys = { 11, 5 } }, { keys = { 9, -7 } } })
    assert.equal(one, digest.of { { keys = { 9, -7, 3, 3 }, n = 2 }, { keys = { 5, 11 } } })
  end)

  it("differs when a sample is repeated, missing or replaced", function()
    local seen = {}
    for _, keys in ipairs { {}, { 5 }, { 5, 5 }, { 5, 6 }, { 6 }, { 11 }, { 5, 6, 6 } } do
      local text = digest.of { { keys = keys } }
      assert.is_nil(seen[text])
      seen[text] = true
    end
    -- the sum of the keys is the same
    assert.not_equal(digest.of { { keys = { 1, 4 } } }, digest.of { { keys = { 2, 3 } } })
  end)
end)
