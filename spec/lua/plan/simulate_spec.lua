--- Events on streams: order, waits, slower compute during collectives, the slowest of many.
local simulate = require "moonreel.plan.simulate"

local function event(stream, seconds, ...)
  return { stream = stream, seconds = seconds, after = { ... } }
end

describe("events", function()
  it("of one stream follow each other, those of two streams run in parallel", function()
    local t = simulate.run { event("compute", 2), event("compute", 3), event("h2d", 4) }
    assert.equal(5, t.seconds)
    assert.same({ 0, 2, 0 }, t.start)
    assert.same({ 2, 5, 4 }, t.finish)
    assert.same({ compute = 5, h2d = 4 }, t.busy)
  end)

  it("wait for the named ones, and for the one before them although it came later", function()
    local t = simulate.run { event("compute", 2), event("comm_intra", 1, 1), event("compute", 1),
      event("compute", 1, 2), event("h2d", 0) }
    assert.same({ 0, 2, 2, 3, 0 }, t.start)
    assert.equal(4, t.seconds)
  end)

  it("have a critical path: the last one to end, and the last one that it waited for", function()
    local t = simulate.run { event("compute", 2), event("comm_intra", 5, 1), event("compute", 1),
      event("compute", 1, 2) }
    assert.same({ 1, 2, 4 }, t.path)
    assert.equal(8, t.seconds)
  end)

  it("of compute are slower while a collective runs, by its share of the GPU", function()
    -- 4 s of a collective let 3.2 s of compute pass at 1 / 1.25; the other 6.8 s run alone
    local t = simulate.run({ event("compute", 10), event("comm_inter", 4) }, 0.25)
    assert.is_true(math.abs(t.seconds - 10.8) < 1e-12, t.seconds)
    assert.equal(4, t.finish[2])
    -- copies do not slow compute
    assert.equal(10, simulate.run({ event("compute", 10), event("d2h", 4) }, 0.25).seconds)
  end)

  it("may be an empty list, and may take no time", function()
    assert.equal(0, simulate.run {}.seconds)
    assert.equal(0, simulate.run { event("compute", 0), event("disk", 0, 1) }.seconds)
  end)

  it("that wait for a later one are refused", function()
    assert.is_false(pcall(simulate.run, { event("compute", 1, 2), event("compute", 1) }))
  end)
end)

describe("the slowest of many", function()
  it("is the expected largest of n draws", function()
    -- expected largest of n standard normal draws, tables of order statistics
    for n, want in pairs { [2] = 0.5642, [8] = 1.4236, [100] = 2.5076, [1000] = 3.2414 } do
      local sigma = 1e-4
      local got = (simulate.slowest(n, sigma) - 1) / sigma
      assert.is_true(math.abs(got - want) < 2e-3, ("%d: %g"):format(n, got))
    end
    assert.equal(1, simulate.slowest(1, 0.02))
    assert.equal(1, simulate.slowest(512, 0))
  end)

  it("uses the normal distribution", function()
    for x, want in pairs { [0] = 0.5, [1] = 0.8413447, [-1.96] = 0.0249979, [3] = 0.9986501 } do
      assert.is_true(math.abs(simulate.normal_below(x) - want) < 1e-6)
    end
  end)
end)
