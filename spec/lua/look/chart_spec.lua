--- Charts as pictures.
local chart = require "moonreel.look.chart"

describe("a chart", function()
  it("leaves room for the longest label", function()
    local p = chart.picture(chart.new { 0.0030004, -0.0020937 })
    -- the first columns are empty, the labels follow them
    for y = 0, p.height - 1 do
      assert.equal(("\255"):rep(18), p.rgb:sub(y * p.width * 3 + 1, y * p.width * 3 + 18))
    end
    assert.is_truthy(p.rgb:find("\60\60\60", 1, true))
  end)

  it("has round ticks that enclose all values, and a title", function()
    for _, case in ipairs { { { 0.137, 0.93 }, "1", "0" }, { { 3, 17.2 }, "20", "0" },
        { { -0.0031, 0.0047 }, "0.006", "-0.004" }, { { 100, 100 }, "110", "90" } } do
      local text = chart.text(chart.new(case[1], { title = "loss" }))
      assert.matches("^loss\n *" .. case[2]:gsub("%p", "%%%0") .. " ▏", text)
      assert.matches("\n *" .. case[3]:gsub("%p", "%%%0") .. " ▏[^\n]*\n[^\n]*\n$", text)
    end
    local function ink(title)
      local p = chart.picture(chart.new({ 1, 2 }, { title = title }))
      return select(2, p.rgb:sub(1, 20 * p.width * 3):gsub("\60\60\60", ""))
    end
    assert.is_true(ink "a title" > ink "" + 50)
  end)

  it("has straight lines between few values, and bars filled to the lower edge", function()
    local lines = {}
    for line in chart.text(chart.new { 0, 10 }):gmatch "▏([^\n]*)" do
      lines[#lines + 1] = line
    end
    for row, line in ipairs(lines) do
      -- the line rises by one row in equally many columns everywhere
      local before, marks = line:gsub("[^ ]", ""), line:gsub(" ", "")
      assert.near((#lines - row) / (#lines - 1), #before / #(lines[1]:gsub("[^ ]", "")), 0.1)
      assert.is_true(marks ~= "")
    end
    assert.is_truthy(chart.text(chart.new({ 0, 9, 3 }, { bars = true })):find("██\n", 1, true))
  end)

  it("of points has their axis: steps or time", function()
    local printed = require "spec.support.printed"
    local tensor = require "moonreel.look.tensor"
    local text = printed(tensor.plot, { { step = 50, loss = 3 }, { step = 60, loss = 2 },
      { step = 90, loss = 1 } })
    assert.matches("^loss by step\n", text)
    assert.matches("\n +50 +90\n$", text)
    text = printed(tensor.plot, { { wall = 7, a = 1, b = 5 }, { wall = 9, a = 1, b = 6 } },
      { field = "b", title = "mine" })
    assert.matches("^mine\n", text)
    assert.matches("\n +7 +9\n$", text)
  end)

  it("has several curves with a mark each, over the range of all of them", function()
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
    -- points of one column are averaged
    text = chart.several { { name = "x", points = { { 0, 2 }, { 0, 4 }, { 1000, 9 } } } }
    assert.matches("\n3 ▏a", text)
  end)
end)
