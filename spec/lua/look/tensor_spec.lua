--- Statistics of tensors for people.
-- Covers: core/bind/look.c core/bind/tensor.c
local T = require "moonreel.core.tensor"
local look = require "moonreel.look.tensor"

describe("a tensor", function()
  it("counts values that are not finite and puts each finite value in a bin", function()
    local t = T.from({ 2, 4 }, { 1, 2, 3, 4, 1 / 0, -1 / 0, 0 / 0, 0 })
    local s = t:stats()
    assert.same({ 8, 1, 3, 0, 4, 2 }, { s.n, s.zeros, s.nonfinite, s.min, s.max, s.mean })
    local h = t:hist(4)
    assert.same({ 1, 1, 1, 2 }, h.counts)
    -- a strided view counts only its own elements
    assert.same({ 1, 1 }, { t:permute({ 1, 0 })[0]:stats().zeros + 1, t["0, :"]:stats().min })
    assert.same({ 3, 0 }, T.new("f32", { 3 }):hist(2).counts)
  end)

  it("has as many elements as its dimensions multiply to, of any rank", function()
    assert.same({ 1, 6, 0, 2 }, { T.count {}, T.count { 2, 3 }, T.count { 4, 0 },
      T.count { 1, 1, 1, 1, 1, 1, 1, 1, 2 } })
    assert.is_false(pcall(T.count, { 1, "x" }))
  end)

  it("prints its shape, dtype and corners, and the number of values that are not finite", function()
    local values = {}
    for i = 1, 20 do
      values[i] = i
    end
    values[20] = 0 / 0
    local text = look.text(T.from({ 2, 10 }, values))
    assert.matches("^tensor %[2, 10%] f32 cpu\n", text)
    assert.matches("  1   2   3  %.%.%.   8   9 +10\n", text)
    assert.matches("1 ▕.*▏ 19 .*1 not finite$", text)
    assert.equal("tensor [0] i32 cpu (empty)", look.text(T.new("i32", { 0 })))
  end)

  it("refuses shapes that are no picture", function()
    local ok, problem = pcall(look.picture, T.new("f32", { 2, 4, 4 }))
    assert.is_false(ok)
    assert.matches("expected %[H, W%], %[3, H, W%] or %[H, W, 3%], got %[2, 4, 4%]; try: "
      .. "imshow%(x%[0%]%)", tostring(problem))
  end)
end)
