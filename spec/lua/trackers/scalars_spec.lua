--- Numbers in a line of the journal.
-- Covers: lua/moonreel/trackers/scalars.lua
local scalars = require "moonreel.trackers.scalars"
local tracked = require "spec.support.tracked"

local function by_tag(list)
  local values = {}
  for _, row in ipairs(list) do
    assert.is_nil(values[row[1]])
    values[row[1]] = row[2]
  end
  return values
end

describe("the numbers of a step", function()
  it("are the numbers of its line, each with its tag", function()
    local line = tracked.step(4, 0.25)
    line.gpu, line.scalars = { power_w = 300, slow = "heat" }, { ["block/norm"] = 2 }
    assert.same({ loss = 0.25, grad_norm = 0.4, lr = 1e-4, t = 500.5, epoch = 0,
      samples_per_s = 16.0, ["time/step_s"] = 0.5, ["time/data_wait_s"] = 0.25,
      ["loss_by_bucket/6x32x32"] = 0.25, ["gpu/power_w"] = 300, ["block/norm"] = 2 },
      by_tag(scalars.of_step(line)))
  end)

  it("have the same order in each call", function()
    local function tags()
      local list, line = {}, tracked.step(4)
      line.gpu = { a = 1, b = 2, c = 3, d = 4, e = 5, f = 6 }
      for i, row in ipairs(scalars.of_step(line)) do
        list[i] = row[1]
      end
      return table.concat(list, " ")
    end
    assert.equal(tags(), tags())
    assert.matches("gpu/a gpu/b gpu/c gpu/d gpu/e gpu/f$", tags())
  end)

  it("include the nan or inf for which a step was skipped", function()
    local values = by_tag(scalars.of_step { kind = "skip", step = 3,
      reason = "loss -nan, gradient norm inf" })
    assert.not_equal(values.loss, values.loss)
    assert.equal(math.huge, values.grad_norm)
    assert.equal(1, values.skipped)
    values = by_tag(scalars.of_step { kind = "skip", step = 3,
      reason = "loss 4.5, gradient norm nan" })
    assert.is_nil(values.loss)
    assert.not_equal(values.grad_norm, values.grad_norm)
    assert.same({ skipped = 1 }, by_tag(scalars.of_step { kind = "skip", step = 3,
      reason = "no good sample" }))
  end)

  it("are absent when a line of another version has other kinds of values", function()
    assert.same({}, scalars.of_step { kind = "step", step = 1, loss = "x", lr = {}, gpu = 5,
      bucket = 7, scalars = "y", time_s = {}, samples = "z" })
    assert.same({ { "a", 1 } }, scalars.of_line { scalars = { a = 1, b = "x" } })
  end)
end)
