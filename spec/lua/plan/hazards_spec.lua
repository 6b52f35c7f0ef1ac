--- A simulated run, compared with the expected one.
local hazards = require "moonreel.plan.hazards"
local simulate = require "moonreel.plan.simulate"

local function near(want, got, share)
  assert.is_true(math.abs(got - want) <= share * want, ("%g, expected %g"):format(got, want))
end

describe("a run", function()
  it("without delays takes the time of its steps", function()
    local run = hazards.run { steps = 1000, step_s = 2, ranks = 4096 }
    assert.same({ 2000, 2000, 0 }, { run.seconds, run.useful, run.failures })
  end)

  it("waits for the slowest rank as expected, from 1 to 4,096 ranks", function()
    for _, ranks in ipairs { 1, 8, 192, 4096 } do
      local run = hazards.run { steps = 4000, step_s = 1, ranks = ranks, sigma = 0.015 }
      near(simulate.slowest(ranks, 0.015), run.seconds / 4000, 1e-3)
    end
  end)

  it("of one rank waits for no other", function()
    local run = hazards.run { steps = 4000, step_s = 1, ranks = 1, sigma = 0.015 }
    assert.same({ 4000, 0 }, { run.seconds, run.slowest })
  end)

  it("waits for data when any rank does", function()
    local run = hazards.run { steps = 20000, step_s = 1, ranks = 64, stall_share = 1e-3,
      stall_s = 5 }
    near(20000 * (1 - 0.999 ^ 64) * 5, run.stalled, 0.05)
  end)

  it("fails, returns to its last save and starts again", function()
    -- a failure every 1,000 s, saves every 100 steps: 50 steps are lost on average
    local run = hazards.run { steps = 100000, step_s = 1, ranks = 100, between_s = 1e5,
      restart_s = 60, interval = 100, save_s = 2 }
    near(run.seconds / 1000, run.failures, 0.25)
    near(50 * run.failures, run.lost, 0.15)
    assert.equal(60 * run.failures, run.restarting)
    assert.is_true(run.saving >= 2 * 1000)
    near(run.useful + run.saving + run.lost + run.restarting, run.seconds, 1e-9)
  end)

  it("saves best at the interval of the square-root formula", function()
    local function seconds(interval)
      return hazards.run { steps = 60000, step_s = 1, ranks = 10, between_s = 2e4, restart_s = 1,
        interval = interval, save_s = 4 }.seconds
    end
    local best = math.floor((2 * 4 * 2000) ^ 0.5)  -- 126 steps
    assert.is_true(seconds(best) < seconds(best // 4) and seconds(best) < seconds(best * 4))
  end)

  it("makes no progress when it fails before each save", function()
    assert.is_nil(hazards.run { steps = 1000, step_s = 1, ranks = 1000, between_s = 1e3 })
  end)

  it("with more steps than are simulated continues at the same rate", function()
    local run = hazards.run { steps = 1e6, step_s = 1, ranks = 8, stall_share = 0.01, stall_s = 1 }
    assert.equal(1e6, run.useful)
    near(1e6 * (1 - 0.99 ^ 8), run.stalled, 0.05)
  end)

  it("has the same result each time", function()
    local of = { steps = 500, step_s = 1, ranks = 8, sigma = 0.02, between_s = 1e3, interval = 10 }
    assert.same(hazards.run(of), hazards.run(of))
  end)
end)
