-- Covers: lua/moonreel/bench/clips.lua lua/moonreel/bench/readers.lua

describe("bench clips", function()
  it("reports the cost of each part of the data pipeline, with its aim", function()
    local lines = require("moonreel.bench.clips").measure { seconds = 0.01, rows = 2000, clips = 30,
      pool_bytes = 16 << 20, only = { build = true, many = true } }
    local whats = {}
    for i, line in ipairs(lines) do
      whats[i] = line.what
      assert.is_true(line.value >= 0 and line.aim >= 0 and #line.unit > 0)
    end
    assert.same({ "build", "index", "memory", "torn samples", "slabs", "slabs" }, whats)
    assert.equal(0, lines[4].value)
  end)
end)
