-- Covers: lua/moonreel/bench/demo.lua lua/moonreel/bench/weights.lua
-- lua/moonreel/bench/follow.lua lua/moonreel/bench/muon.lua
local json = require "moonreel.core.json"
local run = require "spec.support.bench_run"

describe("bench demo", function()
  it("prints the rates of a training step of the demo as JSON", function()
    local text, exit = run("demo-step", "--json", "--no-peer", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.near(r.tokens / r.seconds, r.tokens_per_s, 1)
    assert.equal(r.shape.batch * r.shape.frames * r.shape.rows * r.shape.cols, r.tokens)
    assert.is_nil(r.peer)
  end)

  it("reports the cost of measuring weights at the default interval", function()
    local text, exit = run("weights", "--json", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(100, r.every)
    assert.is_true(r.seconds > 0 and r.share > 0 and r.share < r.seconds / r.step_s)
    assert.equal(0.005, r.aim)
  end)

  it("reports the cost of trackers and of all measurements in a step", function()
    local text, exit = run("follow", "--json", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.is_true(r.rounds >= 3 and r.first_s > 0 and r.second_s > 0 and r.ratio > 0.2
      and r.cpu_ratio > 0.5)
    assert.equal(1.02, r.aim)
    text, exit = run("follow", "--journal=40", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    assert.matches("follow: a step of the demo takes [%d.]+ ms behind a journal of 40 steps, "
      .. "[%d.]+ ms in a new run: [%d.]+ times as long", text)
  end)

  it("reports the cost of Muon compared with AdamW", function()
    local text, exit = run("muon", "--json", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(3, r.rounds)
    assert.is_true(r.adamw_s > 0 and r.muon_s > 0)
    assert.equal(1.25, r.aim)
    assert.matches("muon: %a+%d+, 1 threads: .* times as long, 1.25 is allowed: ",
      (run("muon", "--seconds=0.01", "--threads=1")))
  end)
end)
