local T = require "moonreel.core.tensor"
local text = require "moonreel.models.text"

describe("models.text", function()
  it("packs used tokens to the front in order, and back again", function()
    local y = T.from({2, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8})
    local packed, len, order = text.pack(y, T.from({2, 4}, {0, 1, 0, 1, 1, 1, 0, 0}, "i64"))
    assert.same({2, 2}, len:totable())
    assert.same({2, 4, 1, 3, 5, 6, 7, 8}, packed:totable())
    assert.same(y:totable(), text.unpack(packed, order):totable())
  end)

  it("repeats a mask for the batch and keeps prefixes unchanged", function()
    local y = T.from({2, 2, 1}, {1, 2, 3, 4})
    local packed, len, order = text.pack(y, T.from({1, 2}, {1, 0}, "i64"))
    assert.is_true(packed == y)
    assert.same({1, 1}, len:totable())
    assert.is_nil(order)
  end)

  it("refuses a mask of another size", function()
    local ok, err = pcall(text.pack, T.new("f32", {2, 4, 1}), T.new("i64", {2, 3}))
    assert.is_false(ok)
    assert.matches("text mask %[2, 3%] does not fit text %[2, 4, 1%]", tostring(err))
  end)
end)
