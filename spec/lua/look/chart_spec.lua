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
end)
