--- The cost of a run's renderings.
-- Covers: lua/moonreel/plan/renders.lua
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local made_run = require "spec.support.made_run"
local renders = require "moonreel.plan.renders"

describe("plan with sampling.every", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  local function planned(...)
    local out, err, code = folder.moonreel(table.concat({ "plan recipes/tiny/demo --json "
      .. "steps=100", ... }, " "))
    assert.equal(0, code, err)
    return json.decode(out).course
  end
  local function course(...)
    return planned("sampling.every=30", "'sampling.prompts={\"a\", \"b\"}'", ...)
  end

  it("reports number, duration and share of the run", function()
    local c = course()
    assert.same({ 4, 8, "host" }, { c.renderings, c.rendering_clips, c.rendering_on })
    assert.is_true(c.rendering_s > 0)
    assert.near(c.renderings * c.rendering_s / (c.hours * 3600), c.rendering_share, 1e-9)
    -- most work is in the steps, the rest in opening the checkpoint and decoding latents
    local twice = course("--machine H100", "sampling.on=device")
    local once = course("--machine H100", "sampling.on=device", "scheduler.num_sampling_steps=10")
    local ratio = twice.rendering_s / once.rendering_s
    assert.is_true(ratio > 1.95 and ratio < 2, ratio)
    assert.is_nil(planned("sampling.every=0").renderings)
    assert.is_nil(course("--machine H100").rendering_s)
  end)

  it("uses the measured time of a run's renderings", function()
    local lines = { made_run.start(0) }
    for i, seconds in ipairs { 5, 1, 3 } do
      lines[i + 1] = { kind = "samples", set = "recipe", seconds = 2 * seconds,
        cpu_s = seconds, step = i }
    end
    lines[5] = { kind = "samples", set = "low4s", seconds = 100, step = 5 }
    local of_runs = require "moonreel.trainer.measured"
    local function measured(name, list, on)
      return renders.measured(select(2, of_runs.of_run(made_run.make(dir, name, list, false))), on)
    end
    assert.equal(3, measured("r", lines, "host"))
    assert.equal(6, measured("d", lines, "device"))
    assert.is_nil(measured("s", { made_run.start(0) }, "host"))
  end)
end)
