-- Covers: lua/moonreel/bench/demo.lua lua/moonreel/bench/weights.lua
-- lua/moonreel/bench/follow.lua lua/moonreel/bench/muon.lua
local json = require "moonreel.core.json"
local run = require "spec.support.bench_run"

describe("the demo's step", function()
  it("says rates of the demo's step as JSON", function()
    local text, exit = run("demo-step", "--json", "--no-peer", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.near(r.tokens / r.seconds, r.tokens_per_s, 1)
    assert.equal(r.shape.batch * r.shape.frames * r.shape.rows * r.shape.cols, r.tokens)
    assert.is_nil(r.peer)
  end)

  it("says what watching the weights takes from training, at the usual interval", function()
    local text, exit = run("weights", "--json", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(100, r.every)
    assert.is_true(r.seconds > 0 and r.share > 0 and r.share < r.seconds / r.step_s)
    assert.equal(0.005, r.aim)
  end)

  it("says what trackers and all that is watched take from a step", function()
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

  it("says what Muon takes of a step beside AdamW", function()
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
