local json = require "moonreel.core.json"
local run = require "spec.support.bench_run"

describe("bench ranks", function()
  it("reports the cost of a step by ranks beyond their parts of it", function()
    local text, exit = run("ranks", "--seconds", "0.01", "--dtype", "f32", "--json")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(2, r.ranks)
    -- f32 gradients reduced, f32 weights gathered: half of each goes to the other rank, and a sum
    assert.equal(0, (r.sent - 8) % (2 * 4 * 16384))
    for i, row in ipairs(r.stages) do
      assert.same({ i - 1, row.reported + 8 }, { row.stage, row.sent })
    end
    for _, name in ipairs(require("moonreel.bench.ranks").parts) do
      assert.is_true(r.seconds[name] > 0 and r.seconds[name .. "_cpu"] >= 0)
    end
  end)

  it("subtracts the separate part from the step and compares the rest with one rank", function()
    local got = require("moonreel.bench.ranks").judge({
      { one = 8, threads = 5, apart = 4.4, reported = 1, together = 6, one_cpu = 8, threads_cpu = 8,
        apart_cpu = 4, reported_cpu = 1, together_cpu = 5 } }, 2)
    assert.same({ 1.25, 1.1, 1.2 }, { got.ratio, got.alone, got.of_threads })
    assert.same({ 1, 1 }, { got.ratio_cpu, got.alone_cpu })
  end)
end)
