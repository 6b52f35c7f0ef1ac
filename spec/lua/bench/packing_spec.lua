describe("bench packing", function()
  it("reports the time of packing the weights of a model's products", function()
    local packing = require "moonreel.bench.packing"
    local models = packing.models
    packing.models = {{model = "trained", layers = {{40, 24, 16}, {8, 16, 16}}},
      {model = "frozen", layers = {{8, 16, 16}}, frozen = true}}
    local rows = packing.measure{threads = 1, dtype = "f32", seconds = 0.01}
    packing.models = models
    assert.same({"trained", "frozen"}, {rows[1].model, rows[2].model})
    assert.same({2, 1}, {rows[1].bytes, rows[2].bytes})
    for i, row in ipairs(rows) do
      assert.equal(i == 1, row.step ~= nil)
      assert.equal(i == 1, row.saved ~= nil)
      assert.is_true(row.forward >= 0 and row.forward <= row.largest)
    end
    assert.is_true(rows[1].saved <= rows[1].step)
  end)
end)
