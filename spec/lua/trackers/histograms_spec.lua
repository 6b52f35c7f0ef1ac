--- Histograms in lines of the journal: the short form loses no count.
-- Covers: lua/moonreel/trackers/histograms.lua
local T = require "moonreel.core.tensor"
local histograms = require "moonreel.trackers.histograms"
local json = require "moonreel.core.json"
local ops = require "moonreel.core.op"

local function packed(values, scale)
  return histograms.pack(ops.histogram(T.from({ #values }, values, "f32"),
    T.from({ 1 }, { scale or 1 }, "f64")):totable())
end

local function read(short)
  local list = histograms.of_line { histograms = { x = json.decode(json.encode(short)) } }
  return list[1] and list[1][2]
end

describe("a histogram of the journal", function()
  it("counts each element in a bin whose edges enclose it", function()
    local values = { -70000, -1.5, -1.25, -0.1, -2 ^ -46, -1e-30, 0, 2 ^ -47, 2 ^ -46, 0.3, 1, 1,
      1.24, 65535 }
    for _, value in ipairs(values) do
      local h = read(packed { value })
      assert.equal(1, h.num)
      assert.same({ 1 }, h.counts)
      local low, high = h.min, h.limits[1]
      -- the outermost bin also counts larger values
      assert.is_true(value == -70000 and low == -65536 or low <= value and value <= high, value)
      assert.is_true(math.abs(value) < 2 ^ -46 or high - low <= 0.25 * math.abs(value))
    end
    local h, sum = read(packed(values)), 0
    assert.equal(#values, h.num)
    for i = 2, #h.limits do
      assert.is_true(h.limits[i] > h.limits[i - 1])
    end
    for _, n in ipairs(h.counts) do
      sum = sum + n
    end
    assert.equal(#values, sum)
    assert.equal(#h.counts, #h.limits)
    assert.near(70000 ^ 2 + 65535 ^ 2, h.sum_squares, 10)
  end)

  it("merges empty bins between others into one with the same outer edges", function()
    local h = read(packed({ -3, 3 }, 0.5))
    assert.same({ 1, 0, 1 }, h.counts)
    assert.same({ -1.75, -1.5, 1.5, 1.75 }, { h.min, table.unpack(h.limits) })
    assert.equal(4.5, h.sum_squares)
    -- W&B takes 512 bins
    local all = {}
    for i = 1, histograms.NUMBERS do
      all[i] = 1
    end
    assert.equal(497, #read(histograms.pack(all)).counts)
  end)

  it("counts nan and inf separately, and is absent when no number is finite", function()
    local short = packed { 0 / 0, 1 / 0, 2 }
    assert.equal(1, short.nan)
    assert.equal(2, read(short).num)
    assert.equal(2, read(short).sum)
    assert.is_nil(read(packed { 0 / 0 }))
    assert.is_nil(packed { 1 }.nan)
  end)

  it("is left out when its line has another form", function()
    for _, odd in ipairs { {}, { first = 1 }, { first = "a", counts = { 1 } },
        { first = 496, counts = { 1, 1 } }, { first = -1, counts = { 1 } },
        { first = 0, counts = { 1.5 } }, { first = 0, counts = { "x" } },
        { first = 0, counts = { -498, 1 } }, { first = 3, counts = {} } } do
      assert.is_nil(read(odd))
    end
    assert.same({}, histograms.of_line { histograms = { x = 7 } })
    assert.same({}, histograms.of_line { histograms = 7 })
    assert.same({}, histograms.of_line {})
    local h = read { first = 248, counts = { 1 }, sum = "x" }
    assert.same({ 0, 0 }, { h.sum, h.sum_squares })
  end)
end)
