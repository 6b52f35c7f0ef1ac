local core = require "moonreel.core.bench"

describe("convolutions", function()
  it("holds convolutions beside the product peak and what a peer says", function()
    local conv = require "moonreel.bench.conv"
    local rows, peak = conv.rows, core.product_peak
    -- looking for the best product takes seconds
    core.product_peak = function() return {m = 64, n = 64, k = 64, own = true} end
    finally(function() conv.rows, core.product_peak = rows, peak end)
    conv.rows = {{what = "pictures", x = {1, 1, 6, 5, 8}, filters = 8, kernel = {1, 3, 3},
      pad = {0, 0, 1, 1, 1, 1}},
      {what = "dc_ae", x = {1, 3, 4, 6, 8}, filters = 16, kernel = {3, 3, 3}, groups = 4,
        stride = {1, 2, 2}, pad = {1, 1, 1, 1, 1, 1}}}
    local asked = {}
    local found = conv.measure({threads = 1, seconds = 0.01, dtype = "f32"}, function(row, machine)
      asked[#asked + 1] = row.what .. " " .. row.dtype .. " " .. machine.threads
      return 3 * row.seconds
    end)
    assert.same({"pictures f32 1", "dc_ae f32 1"}, asked)
    for _, row in ipairs(found) do
      -- the best windows of ours are no slower than their median
      assert.is_true(row.ratio >= 2.999, row.ratio)
      assert.is_true(row.of_peak > 0 and row.tflops > 0)
    end
    -- taps of all channels, twice, at each position
    assert.near(2 * 6 * 5 * 9 * 8 * 8, found[1].tflops * 1e12 * found[1].seconds, 1)
    assert.equal(2 * 3 * 2 * 3 * 27 * 2 * 16, found[2].flop)
    assert.equal("pictures 1x3x3 8 to 8", found[1].name)
    assert.equal("dc_ae 3x3x3 / 1x2x2 8 to 16 in 4 groups", found[2].name)
    assert.same({conv.rows[2]}, conv.named "/ 1x2x2")
    assert.has_error(function()
      require("moonreel.cli.bench").run{"conv", "--layer", "hunyuen"}
    end)
  end)
end)
