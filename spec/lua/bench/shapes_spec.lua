describe("bench shapes", function()
  it("compiles a recipe's buckets as a run does, and keeps as many as fit its limit",
    function()
    local shapes = require "moonreel.bench.shapes"
    local function measure(most_bytes)
      return shapes.measure(require("moonreel.settings").bake("tiny/demo",
        {"model.depth=1", "model.hidden_size=16", "model.num_heads=2", "text_encoder.width=16",
        "model.caption_channels=16", "programs_bytes=" .. most_bytes}), 2)
    end
    local all = measure(1 << 30)
    assert.same({2, 2, 0}, {all.shapes, all.kept, all.closed})
    assert.is_true(all.bytes <= 2 * all.each_bytes + 1 and all.median_s <= all.most_s)
    local few = measure(all.bytes - 1)
    assert.same({2, 1, 1}, {few.shapes, few.kept, few.closed})
    assert.is_true(few.bytes <= few.bound)
  end)
end)
