--- Sources that are the easy and the hard part of one index, by quantiles of a column.
-- Covers: core/bind/source.c core/data/subset.c lua/moonreel/data/place.lua
local core = require "moonreel.core.loader"
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local derive = require "moonreel.data.derive"
local folder = require "spec.support.folder"

local place, index
setup(function()
  place = folder.new()
  local all <close> = data.open(demo_data.path())
  -- each value twice, the largest first; one row in ten has none
  derive.run { output = place.path .. "/hard.mrx", from = { all }, made = "join",
    columns = { "motion" }, choose = function(_, _, i)
      return { columns = i % 10 ~= 0 and { motion = (300 - i) // 2 + 0.0 } or {} }
    end }
  index = data.open(place.path .. "/hard.mrx")
end)
teardown(function()
  index:close()
  place:remove()
end)

local function pick(from, to, trim)
  return core.quantiles(index.core, { column = "motion", from = from, to = to, trim_top = trim })
end

describe("quantiles of a column", function()
  it("split the rows that have a value, without those at the top", function()
    local easy, low, high = pick(0, 1 / 3, 0.1)
    local parts = { easy, (pick(1 / 3, 0.6, 0.1)), (pick(0.6, 1, 0.1)) }
    local sum = 0
    for _, part in ipairs(parts) do
      sum = sum + part:count()
    end
    assert.equal(270 - 27, sum)
    assert.equal(81, easy:count())
    assert.same({ 0.0, 44.0 }, { low, high })
    for i = 1, #index do
      local n = 0
      for _, part in ipairs(parts) do
        n = n + (part:has(i) and 1 or 0)
      end
      assert.equal((i % 10 == 0 or i < 31) and 0 or 1, n, i)
    end
  end)

  it("distinguish neighbours that are equal in f32, for whole numbers and reals", function()
    local all <close> = data.open(demo_data.path())
    derive.run { output = place.path .. "/near.mrx", from = { all }, made = "join",
      columns = { "uid", "score" }, kinds = { uid = "whole" }, choose = function(_, _, i)
        return { columns = { uid = (i - 150) * 3 + (i > 150 and 2 ^ 62 // 1 | 0 or 0),
          score = (150 - i) * (1 + i * 2.0 ^ -40) } }
      end }
    local near <close> = data.open(place.path .. "/near.mrx")
    local set, low, high = core.quantiles(near.core, { column = "uid", from = 0.25, to = 0.75 })
    assert.equal(150, set:count())
    assert.same({ -222, (225 - 150) * 3 + (1 << 62) }, { low, high })
    assert.equal("integer", math.type(high))
    assert.is_true(set:has(76) and set:has(225))
    assert.is_false(set:has(75) or set:has(226))
    set, low, high = core.quantiles(near.core, { column = "score", from = 0, to = 0.5 })
    assert.is_true(set:has(300) and set:has(151) and not set:has(150))
    assert.same({ -150 * (1 + 300 * 2.0 ^ -40), -1 * (1 + 151 * 2.0 ^ -40) }, { low, high })
  end)

  it("make sources that are drawn separately, each sample once", function()
    local easy, hard = pick(0, 0.5, 0.01), pick(0.5, 1, 0.01)
    local draws <close> = core.order({
      { name = "easy", index = index.core, members = easy, epochs = 1 },
      { name = "hard", index = index.core, members = hard, epochs = 1 } },
      { seed = 3, buckets = { { name = "all", pixels = 1.0, aspects = { { 1.0, 8, 8 } },
        lengths = { { 1, 1.0, 1.0, 3 }, { 2, 1.0, 1.0, 2 } } } } })
    local count, total = {}, 0
    while total < easy:count() + hard:count() do
      local draw = draws:next()
      for _, row in ipairs(draw.rows) do
        assert.is_true((draw.source == 1 and easy or hard):has(row))
        assert.is_nil(count[row])
        count[row], total = true, total + 1
      end
    end
    assert.has_error(function() draws:next() end)
  end)

  it("report errors with the column and a proposal", function()
    for given, pattern in pairs {
      [{ column = "aesthetic" }] = "no column 'aesthetic'; it has: motion",
      [{ column = "motion", from = 0.999 }] = "no row is between the quantiles 0.999 and 1 of",
      [{ column = "motion", from = 0.5, to = 0.5 }] = "quantiles 0.5 to 0.5, trim_top 0: expected",
      [{ column = "motion", trim_top = 1 }] = "trim_top 1: expected" } do
      given.trim_top = given.trim_top or given.from == 0.999 and 0.01 or nil
      local ok, problem = pcall(core.quantiles, index.core, given)
      assert.is_false(ok)
      assert.matches(pattern, tostring(problem))
    end
  end)
end)
