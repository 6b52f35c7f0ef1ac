--- Times that depend on the size of a clip. Reference values: make golden (timesteps).
-- Covers: lua/moonreel/diffusion/shift.lua
local shift = require "moonreel.diffusion.shift"

describe("the shift of times", function()
  it("is 1 at 256 tokens a frame and 3 at 4096, and grows with the root of frames", function()
    assert.near(1, shift.alpha({ 1, 32, 32 }, 4), 1e-12)
    assert.near(3, shift.alpha({ 1, 128, 128 }, 4), 1e-12)
    assert.near(6, shift.alpha({ 4, 64, 64 }, 1), 1e-12)
    -- tokens are whole: 3 x 3 cells make 2 of 4
    assert.equal(shift.alpha({ 1, 2, 4 }, 4), shift.alpha({ 1, 3, 3 }, 4))
    -- the line continues below and above
    assert.is_true(shift.alpha({ 1, 2, 2 }, 4) < 1)
    assert.is_true(shift.alpha({ 1, 256, 256 }, 4) > 3)
  end)

  it("keeps both ends, and moves times between them towards noise", function()
    assert.equal(0, shift.of(0, 3))
    assert.equal(1, shift.of(1, 3))
    assert.near(0.75, shift.of(0.5, 3), 1e-12)
    assert.near(0.5, shift.logit_normal(0, 1), 1e-12)
    assert.near(0.75, shift.logit_normal(0, 3), 1e-12)
  end)

  it("rounds each operation to f32, as the reference does", function()
    local function f32(x) return (string.unpack("<f", string.pack("<f", x))) end
    local apart = 0
    for i = 1, 99 do
      local n, alpha = f32(i / 20 - 2.5), 1 + i / 30
      local t = shift.logit_normal(n, alpha)
      assert.equal(f32(t), t)
      local exact = 1 / (1 + math.exp(-n))
      exact = alpha * exact / (1 + (alpha - 1) * exact)
      assert.near(exact, t, 3e-7)
      apart = apart + (f32(exact) == t and 0 or 1)
    end
    -- a single rounding at the end gives other numbers
    assert.is_true(apart > 20, apart)
  end)

  it("has one more time than steps, from 1 to 0", function()
    assert.same({ 1, 0.75, 0.5, 0.25, 0 }, shift.schedule(4))
    local moved = shift.schedule(4, 3)
    assert.equal(5, #moved)
    assert.near(0.9, moved[2], 1e-7)
    assert.same({ 1, 0 }, { moved[1], moved[5] })
  end)
end)
