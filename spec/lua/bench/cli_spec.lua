-- Covers: lua/moonreel/bench/cli.lua lua/moonreel/bench/large.lua
local json = require "moonreel.core.json"
local run = require "spec.support.bench_run"

describe("bench cli", function()
  it("reports the time of commands that a user waits for, with the aim of each", function()
    local text, exit = run("cli", "--json", "--seconds=0.01")
    assert.equal(0, exit)
    local rows = json.decode(text).cli
    local aims = {}
    for i, row in ipairs(rows) do
      aims[i] = row.aim_s
    end
    assert.same({0.01, 0.05, 0.1, 1, 1, 1, 5, 5, 10, 3}, aims)
    for i, row in ipairs(rows) do
      assert.is_true(row.seconds > 0 and row.cpu_s > 0 and row.cpu_s < 30, row.what)
      assert.equal(i > 3 and (i < 6 or i > 8), row.private_bytes ~= nil)
      if row.private_bytes then
        assert.is_true(row.private_bytes < row.aim_bytes, row.private_bytes)
      end
    end
    assert.matches("^bake opensora%-2%.0/train/stage2_i2v %(%d+ values%)$", rows[1].what)
  end)
end)
