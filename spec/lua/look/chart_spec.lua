--- Charts as pictures.
local chart = require "moonreel.look.chart"

describe("a chart", function()
  it("leaves room for the longest label", function()
    local p = chart.picture(chart.new { 0.0030004, -0.0020937 })
    -- the first columns are paper, the labels stand behind them
    for y = 0, p.height - 1 do
      assert.equal(("\255"):rep(18), p.rgb:sub(y * p.width * 3 + 1, y * p.width * 3 + 18))
    end
    assert.is_truthy(p.rgb:find("\60\60\60", 1, true))
  end)

  it("has several curves with a mark each, over all that any of them has", function()
    local text = chart.several({ { name = "down", points = { { 0, 8 }, { 10, 4 } } },
      { name = "late", points = { { 2, 5 }, { 9, 0 / 0 }, { 20, 4 } } },
      { name = "none", points = {} } }, { title = "t" })
    local lines = {}
    for line in text:gmatch("([^\n]*)\n") do
      lines[#lines + 1] = line
    end
    assert.same({ "t", "8 ▏a", 1 + 16 + 1 + 3 }, { lines[1], lines[2]:match("^8 ▏a"), #lines })
    -- the first curve ends in the middle, the second one at the right, both at the lower edge
    local low = lines[17]:match("^4 ▏(.*)$")
    assert.matches("^ +a+ +b+$", low)
    assert.matches("^   0 +20$", lines[18])
    assert.same({ "a  down  4.0000 at 10", "b  late  4.0000 at 20", "c  none  no values" },
      { lines[19], lines[20], lines[21] })
    assert.is_truthy(text:find("*", 1, true))
    -- points of one column have their mean
    text = chart.several { { name = "x", points = { { 0, 2 }, { 0, 4 }, { 1000, 9 } } } }
    assert.matches("\n3 ▏a", text)
  end)
end)
