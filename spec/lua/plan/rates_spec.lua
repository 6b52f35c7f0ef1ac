--- Seconds of steps, predicted from measured steps.
local rates = require "moonreel.plan.rates"

local function row(op, shapes, flop, bytes, seconds)
  return { op = op, shapes = shapes, flop = flop, bytes = bytes, seconds = seconds }
end

-- a machine of 1 G operations and 1 GB in a second, 1 us around a step, with points
local function machine(points)
  return { ops = points, rate = { product = 1e9, step_s = 1e-6 }, peak = { memory = 1e9 } }
end

local function near(want, got) assert.is_true(math.abs(got / want - 1) < 1e-9, got) end

describe("measured steps", function()
  it("are grouped by op and dtypes, whatever their shapes", function()
    assert.equal("linear bf16, bf16, -", rates.key(row("linear", "[2, 3, 8] bf16, [4, 8] bf16, -")))
    assert.equal("neg f32", rates.key(row("neg", "[] f32")))
    -- of convolutions the kernel counts, too
    assert.equal("conv3d 1x3x3 f32, f32, f32", rates.key(row("conv3d",
      "[2, 1, 8, 9, 32] f32, [64, 32, 1, 3, 3] f32, [64] f32")))
    -- and the kernel's variant
    local fewer = row("conv3d", "[1, 1, 8, 9, 64] f32, [64, 64, 1, 3, 3] f32, -")
    fewer.way = "fewer products"
    assert.equal("conv3d 1x3x3 by fewer products f32, f32, -", rates.key(fewer))
  end)

  it("of equal work become one point with their mean", function()
    local points = rates.points { row("add", "[8] f32", 8, 96, 1), row("add", "[8] f32", 8, 96, 3),
      row("add", "[9] f32", 9, 108, 7), row("add", "[8] bf16", 8, 48, 9) }
    assert.same({ ["add f32"] = { { 8, 96, 2 }, { 9, 108, 7 } }, ["add bf16"] = { { 8, 48, 9 } } },
      points)
  end)

  it("scale the limits of the machine for a step of another size", function()
    -- three times the limits at both sizes
    local function limit(flop, bytes) return flop / 1e9 + bytes / 1e9 + 1e-6 end
    local m = machine { ["linear f32"] = { { 1e6, 1e5, 3 * limit(1e6, 1e5) },
      { 1e9, 1e7, 3 * limit(1e9, 1e7) } } }
    for _, size in ipairs { { 1e3, 1e3 }, { 3e7, 1e6 }, { 1e12, 1e9 } } do
      near(3 * limit(table.unpack(size)), rates.seconds(m, row("linear", "[2, 2] f32",
        table.unpack(size))))
    end
  end)

  it("count more the nearer their sizes are", function()
    local m = machine { ["add f32"] = { { 0, 1e3, 2 * 2e-6 }, { 0, 1e9, 8 * 1.000001 } } }
    local small = rates.seconds(m, row("add", "[1] f32", 0, 2e3)) / 3e-6
    local large = rates.seconds(m, row("add", "[1] f32", 0, 5e8)) / 0.500001
    assert.is_true(small > 2 and small < 2.1 and large < 8 and large > 7.8, small .. " " .. large)
  end)

  it("of the same size are left out when only other sizes may be used", function()
    local m = machine { ["add f32"] = { { 0, 1e3, 2 * 2e-6 }, { 0, 1e4, 4 * 1.1e-5 } } }
    near(4 * 2e-6, rates.seconds(m, row("add", "[1] f32", 0, 1e3), true))
    assert.is_true(rates.seconds(m, row("add", "[1] f32", 0, 1e3)) < 2.1 * 2e-6)
    m.ops["add f32"][2] = nil
    assert.is_nil(rates.seconds(m, row("add", "[1] f32", 0, 1e3), true))
  end)

  it("predict nothing for ops and dtypes that were not measured", function()
    local m = machine { ["add f32"] = { { 0, 1e3, 1 } } }
    assert.is_nil(rates.seconds(m, row("mul", "[1] f32", 0, 1e3)))
    assert.is_nil(rates.seconds(m, row("add", "[1] bf16", 0, 1e3)))
  end)
end)
