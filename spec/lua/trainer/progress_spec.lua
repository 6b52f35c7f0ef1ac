--- What a run says while it goes: the rate and the time left.
-- Covers: lua/moonreel/trainer/progress.lua
local progress = require "moonreel.trainer.progress"

-- the lines of steps that take these seconds each
local function lines(total, seconds)
  local at, out = 0, {}
  local p = progress.new(total, 1, function(line) out[#out + 1] = line end,
    function() return at end)
  for i, s in ipairs(seconds) do
    at = at + s
    -- what the step itself took says nothing of a save after it
    p:step { step = i, loss = 1, grad_norm = 1, lr = 1e-3, time_s = 0.001, data_wait_s = 0 }
  end
  return out
end

describe("trainer.progress", function()
  it("tells the rate of steps of 19 s and 1 s in turn as 0.10 a second", function()
    local seconds = {}
    for i = 1, 201 do
      seconds[i] = i % 2 == 1 and 19 or 1
    end
    local out = lines(401, seconds)
    assert.is_nil(out[1]:find("steps/s", 1, true))
    for i = 21, 201 do
      local rate = tonumber(out[i]:match("(%S+) steps/s"))
      assert.near(0.1, rate, 0.011, out[i])
    end
    -- 200 steps of ten seconds
    assert.matches("  3[2-4]m%d+s left  ", out[201])
  end)

  it("counts what happens between steps, and leaves out what comes before the first", function()
    local out = lines(5, { 1000, 2, 2, 50, 2 })
    assert.matches("  0%.50 steps/s  6s left", out[2])
    assert.matches("  0%.06 steps/s  18s left", out[4])
    assert.matches("  0%.07 steps/s  0s left", out[5])
  end)

  it("tells no time left where the end is not known", function()
    assert.is_nil(lines(0, { 1, 2, 2 })[3]:find(" left", 1, true))
  end)
end)
