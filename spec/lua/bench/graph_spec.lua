describe("bench graph", function()
  it("reports the time of each phase of building a graph, for several depths", function()
    local graph = require "moonreel.bench.graph"
    local depths = graph.depths
    finally(function() graph.depths = depths end)
    graph.depths = {2, 4}
    local rows = graph.measure{threads = 1, seconds = 0}
    assert.same({2, 4}, {rows[1].depth, rows[2].depth})
    for _, phase in ipairs(graph.phases) do
      assert.is_true(rows[1][phase] > 0 and rows[2][phase] > 0)
    end
    -- nodes outside the blocks are as many in both
    assert.is_true(rows[2].nodes > 1.5 * rows[1].nodes and rows[2].nodes < 2 * rows[1].nodes)
  end)
end)
