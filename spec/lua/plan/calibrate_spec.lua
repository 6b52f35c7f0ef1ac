--- A plan beside what a run measured.
local calibrate = require "moonreel.plan.calibrate"
local work = require "moonreel.plan.work"

local function bucket(frames, seconds, total)
  return { resolution = "32px", frames = frames, height = 32, width = 32, total = total,
    seconds = { step = seconds }, bytes = { decoders = 10 } }
end

describe("a plan beside a run", function()
  local p = { buckets = { bucket(1, 2, 100), bucket(6, 4, 200), bucket(9, 1, 300) } }

  it("has rates as the median of its buckets says", function()
    assert.equal(1.5, calibrate.factor(p, { { bucket = "32px 6x32x32", measured_s = 6 } }))
    assert.equal(2, calibrate.factor(p, { { bucket = "32px 6x32x32", measured_s = 8 },
      { bucket = "32px 1x32x32", measured_s = 20 }, { bucket = "32px 9x32x32", measured_s = 1 },
      { bucket = "64px 1x64x64", measured_s = 1000 } }))
    assert.is_nil(calibrate.factor(p, { { bucket = "32px 6x32x32" } }))
  end)

  it("is as much slower in every step", function()
    local mesh = { machine = { here = true } }
    calibrate.slow(mesh, 1.5)
    assert.equal(3, work.seconds(mesh.machine, { op = "add", expected = 2 }, "f32"))
  end)

  it("stands beside what was measured, without processes that decode", function()
    local rows = { { bucket = "32px 6x32x32" }, { bucket = "other" } }
    calibrate.compare(p, rows)
    assert.same({ { bucket = "32px 6x32x32", planned_s = 4, planned_bytes = 190 },
      { bucket = "other" } }, rows)
  end)
end)
