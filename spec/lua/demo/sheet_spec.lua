local sheet = require "datasets.demo.sheet"

describe("datasets.demo.sheet", function()
  it("puts the frames of each clip next to each other, after the mark", function()
    -- two clips of two frames, 3 channels, 1 x 2 pixels
    local a = { pixels = "\1\2\3\4\5\6" .. "\7\8\9\10\11\12", mark = "right" }
    local b = { pixels = ("\200"):rep(12), mark = "wrong" }
    local pixels, height, width = sheet.compose({ { a }, { b, a } }, 2, 1, 2)
    assert.equal(3 * height * width, #pixels)
    assert.equal(4 + 2 * (1 + 4), height)
    assert.equal(4 + 2 * (3 + 4 + 4), width)
    local function row(c, y)
      return { pixels:byte((c * height + y) * width + 1, (c * height + y + 1) * width) }
    end
    assert.same({ 60, 60, 60, 1, 2, 7, 8, 30 }, { table.unpack(row(0, 4), 5, 12) })
    assert.same({ 80, 80, 80, 5, 6, 11, 12, 34 }, { table.unpack(row(2, 4), 5, 12) })
    assert.same({ 200, 200, 200, 200, 200, 200, 200, 30 }, { table.unpack(row(0, 9), 5, 12) })
    -- the first row has no second clip
    for x = 13, width do
      assert.equal(30, row(0, 4)[x])
    end
  end)

  it("enlarges by whole pixels", function()
    assert.equal("\1\1\2\2\1\1\2\2\3\3\4\4\3\3\4\4", sheet.enlarge("\1\2\3\4", 2, 2))
  end)
end)
