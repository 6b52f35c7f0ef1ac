--- Slow and hanging ranks, detected from an artificial page.
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local watch = require "moonreel.life.watch"

-- the events of three ranks whose steps take `seconds`, until a step
local function slow_events(seconds, steps)
  local at = 0
  local page = {
    about = function() return { first = 4, ranks = 3 } end,
    rank = function(_, rank)
      return { rank = rank, state = "R", step = at + 1, phase = "forward", phase_s = 1e12,
        beat_s = 1e12 }
    end,
    own_s = function(_, rank, step) return seconds(rank, step) end,
    quantile = function() return 1, 1000 end,
  }
  local eye, found = watch.new(page, { forward = 60, reduce = 60 }), {}
  for step = 1, steps do
    at = step
    for _, event in ipairs(eye:look()) do
      found[#found + 1] = event
    end
  end
  return found
end

describe("a rank is reported as slow", function()
  it("once, after 50 steps in a row in which others took less than 0.75 of its time", function()
    local found = slow_events(function(rank) return rank == 5 and 1.4 or 1 end, 300)
    assert.equal(1, #found)
    assert.same({ "slow", 5, 50, "others" }, { found[1].kind, found[1].rank, found[1].step,
      found[1].against })
    assert.matches("^rank 5 is slow: for 50 steps in a row the others took less than 0.75 of its "
      .. "time, 0.71 in step 50$", found[1].text)
  end)

  it("not when one of the steps is as fast as the others'", function()
    assert.same({}, slow_events(function(rank, step)
      return rank == 5 and step % 50 ~= 0 and 2 or 1
    end, 300))
    assert.same({}, slow_events(function(rank) return rank == 5 and 1.32 or 1 end, 300))
  end)

  it("when it was faster, compared with the others, before", function()
    -- a fast rank becomes as slow as the others
    local found = slow_events(function(rank, step)
      return rank == 6 and step <= 100 and 0.6 or 1
    end, 400)
    assert.equal(1, #found)
    assert.same({ 6, 150, "before" }, { found[1].rank, found[1].step, found[1].against })
    assert.matches("slower compared with the others than 0.75 of its usual speed, 0.60 in step 150",
      found[1].text)
  end)

  it("not because another rank recovers, or steps become longer for all", function()
    assert.same({ 4, 50 }, (function(found)
      return { found[1].rank, found[1].step, found[2] and found[2].rank }
    end)(slow_events(function(rank, step) return rank == 4 and step <= 100 and 5 or 1 end, 400)))
    assert.same({}, slow_events(function(rank, step)
      return (step > 100 and 3 or 1) * (rank == 6 and 0.9 or 1)
    end, 400))
  end)
end)

describe("a rank is reported as hanging", function()
  local now_s, now, beat_s = base.now_s, nil, nil
  before_each(function()
    now, beat_s = 1000, 999
    base.now_s = function() return now end
  end)
  after_each(function() base.now_s = now_s end)

  -- a rank whose limit in its phase is 9 s
  local function eye_of_one()
    return watch.new({
      about = function() return { first = 0, ranks = 1 } end,
      rank = function()
        return { rank = 0, state = "S", step = 3, phase = "load", phase_s = 990, beat_s = beat_s }
      end,
      own_s = function() end,
      quantile = function() return 1, 1000 end,
    }, { load = 9, reduce = 9 })
  end

  -- looks `times` times, `seconds` apart; returns the events
  local function look(eye, times, seconds)
    local found = {}
    for _ = 1, times do
      now = now + seconds
      for _, event in ipairs(eye:look()) do
        found[#found + 1] = event.text
      end
    end
    return found
  end

  it("when it was observed for its limit, until it gives a sign of life", function()
    local eye = eye_of_one()
    assert.same({}, look(eye, 73, 0.125))
    assert.same({ "rank 0 hangs in load at step 3 for 9.1 s" }, look(eye, 1, 0.125))
    assert.same({}, look(eye, 71, 0.125))
    local _, times = eye:standing()
    assert.equal(2, times)
    beat_s = now
    assert.same({ "rank 0 continues" }, look(eye, 1, 0.125))
    assert.is_nil(eye:standing())
  end)

  -- a rank of two in the state that `now_of` returns; the other one waits for it
  local function eye_of(now_of)
    return watch.new({
      about = function() return { first = 4, ranks = 2 } end,
      rank = function(_, rank)
        local r = { rank = rank, pid = rank, state = "S", step = 3, phase = "load", phase_s = 990,
          beat_s = beat_s }
        if rank == 4 then
          r.open = { kind = "barrier", seq = 2, count = 0, began_s = 990 }
        end
        for key, value in pairs(rank == 5 and now_of or {}) do
          r[key] = value
        end
        return r
      end,
      own_s = function() end,
      ops = function() return {} end,
      quantile = function() return 1, now_of.known or 1000 end,
    }, { start = 9, compile = 9, load = 9, forward = 9, reduce = 9, persist = 900 })
  end

  it("after 5 s when it is stopped, in any phase, and not before", function()
    for _, phase in ipairs { "start", "meet", "persist", "load" } do
      local r = { phase = phase, state = "S", known = 0 }
      local eye = eye_of(r)
      look(eye, 16, 0.125)
      r.state = "T"
      assert.same({}, look(eye, 40, 0.125), phase)
      local found = look(eye, 2, 0.125)
      assert.equal(1, #found)
      assert.matches("^rank 5 is stopped in " .. phase .. " %D+ %d* ?for 5.[01] s$", (found[1]
        :gsub("before its first step", "at step 0")))
      assert.equal(0, #look(eye, 40, 0.125))
      local event, times = eye:standing()
      assert.equal(5, event.rank)
      assert.is_true(times > 1.9 and times < 2.2, times)
      -- it continues, and its time in the phase starts again
      r.state = "S"
      assert.same({ "rank 5 continues" }, look(eye, 1, 0.125))
      assert.is_nil(eye:standing())
      assert.same({}, look(eye, 40, 0.125))
    end
  end)

  it("not for pauses of 3 s", function()
    local r = { phase = "compile", state = "S" }
    local eye = eye_of(r)
    for _ = 1, 20 do
      r.state = "T"
      assert.same({}, look(eye, 24, 0.125))
      r.state = "S"
      assert.same({}, look(eye, 8, 0.125))
    end
  end)

  it("for each of several ranks that are stopped", function()
    local eye = eye_of { state = "T" }
    eye.page.rank = function(_, rank)
      return { rank = rank, state = "T", step = 0, phase = "open", phase_s = 990, beat_s = beat_s }
    end
    local found = look(eye, 44, 0.125)
    assert.equal(2, #found)
    assert.matches("^rank [45] is stopped in open before its first step for 5.%d s$", found[1])
    assert.is_true(found[1]:sub(1, 6) ~= found[2]:sub(1, 6))
  end)

  describe("before its first step, and in its first ones,", function()
    local work, cpu_s, bytes = core.work, nil, nil
    before_each(function()
      cpu_s, bytes = 1, 0
      core.work = function(pid)
        assert.equal(5, pid)
        return cpu_s, bytes
      end
    end)
    after_each(function() core.work = work end)

    -- seconds of idleness until it is reported, at most 40
    local function named_after(r, each)
      local eye = eye_of(r)
      for i = 1, 320 do
        if each then
          each(i)
        end
        if #look(eye, 1, 0.125) > 0 then
          return i * 0.125
        end
      end
    end

    it("after the minimum of its limit when it does no work", function()
      for _, r in ipairs { { phase = "compile" }, { phase = "start" },
        { phase = "forward", known = 39 } } do
        local seconds = named_after(r)
        assert.is_true(seconds > 9 and seconds < 9.5, seconds)
      end
    end)

    it("not while it computes, reads, or waits for a processor", function()
      assert.is_nil(named_after({ phase = "compile" }, function() cpu_s = cpu_s + 0.001 end))
      assert.is_nil(named_after({ phase = "compile" }, function() bytes = bytes + 2000 end))
      assert.is_nil(named_after({ phase = "compile", state = "R" }))
      assert.is_nil(named_after({ phase = "forward", known = 39 },
        function() cpu_s = cpu_s + 0.001 end))
    end)

    it("although one of its threads wakes up now and then", function()
      local seconds = named_after({ phase = "compile" }, function(i)
        cpu_s, bytes = cpu_s + (i % 80 == 0 and 0.01 or 0), bytes + 64
      end)
      assert.is_true(seconds > 9 and seconds < 11.5, seconds)
    end)

    it("not while it waits for others that have not connected", function()
      assert.is_nil(named_after { phase = "meet" })
    end)

    it("in a step by its usual time, once that is known", function()
      local eye = eye_of { phase = "forward", known = 40 }
      eye.page.quantile = function() return 10, 40 end
      assert.same({}, look(eye, 236, 0.125))
      assert.equal(1, #look(eye, 10, 0.125))
    end)
  end)

  it("not when all processes were stopped, the watching one among them", function()
    local eye = eye_of_one()
    assert.same({}, look(eye, 8, 0.125))
    assert.same({}, look(eye, 1, 3600))
    assert.same({}, look(eye, 59, 0.125))
    assert.same({}, look(eye, 2, 60))
    assert.same({ "rank 0 hangs in load at step 3 for 9.1 s" }, look(eye, 1, 0.125))
  end)
end)
