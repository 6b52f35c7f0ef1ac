-- Figures are not asserted, because machines differ. The specs assert what is measured and in which
-- order.
-- Covers: core/bind/bench.c lua/moonreel/bench/show.lua lua/moonreel/bench/kernels.lua
-- lua/moonreel/cli/bench.lua
local core = require "moonreel.core.bench"
local process = require "moonreel.core.process"
local run = require "spec.support.bench_run"

describe("moonreel bench", function()
  it("counts the memory of a program, not of its parent", function()
    local large <const> = 300 << 20
    local held = ("x"):rep(large)
    local done = process.run { process.program(), "-e",
      "print(require('moonreel.core.bench').max_resident())" }
    assert.is_true(core.max_resident() > #held)
    assert.is_true(tonumber(done.output) > 1 << 20 and tonumber(done.output) < large,
      done.output)
  end)

  it("measures limits and names the instruction set that was used", function()
    local peak = core.product_peak("f32", 1, 0.001)
    assert.is_true(peak.tflops > 0)
    assert.matches("^o", peak.how)
    assert.is_true(core.product_rate("f32", 1, 64, 64, 64, true, 0.001) > 0)
    assert.is_true(core.memory_rate(1 << 20, 1, 0.001) > 0 and core.memory_rate(1, 1, 0) > 0)
    assert.has_error(function() core.memory_rate(0, 1) end,
      "bad argument #1 to 'memory_rate' (expected 1 to 2^40 bytes)")
  end)

  it("refuses unknown options and names", function()
    local _, exit = run("speed")
    assert.equal(2, exit)
    _, exit = run("step", "--threads=many")
    assert.equal(2, exit)
    _, exit = run("step", "--dtype=f16")
    assert.equal(2, exit)
  end)

  it("has a row for each kernel whose op exists", function()
    local ops = require "moonreel.core.op"
    local named = {}
    for _, row in ipairs(require("moonreel.bench.kernels").rows) do
      named[row.op] = row.limit
    end
    assert.equal("bytes", named.layer_norm_modulate)
    assert.is_function(ops.attention)
  end)
end)
