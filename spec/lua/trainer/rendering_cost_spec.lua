--- The time of a run's renderings: predicted, measured, and limited to a share that the recipe
-- sets.
-- Covers: lua/moonreel/trainer/rendering_cost.lua lua/moonreel/trainer/renderings.lua
-- lua/moonreel/sample/cost.lua
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local rendering_cost = require "moonreel.trainer.rendering_cost"
local run = require "moonreel.run"

describe("the cost of renderings", function()
  -- the cost in a run that has trained for this many seconds
  local function cost(most_share, seconds, predicted_s, ...)
    local one = rendering_cost.new { most_share = most_share, on = "device" }
    one.began, one.predicted_s = base.now_s() - seconds, predicted_s
    for _, took in ipairs { ... } do
      one:took { seconds = took, cpu_s = 3 * took }
    end
    return one
  end

  it("is too large when one more rendering would exceed the share", function()
    -- 10 of 90 + 10 seconds
    assert.near(0.1, cost(0.09, 90, 10):excess(), 1e-3)
    assert.is_nil(cost(0.11, 90, 10):excess())
    -- measured times replace the prediction: 20 + 20 of 180 + 20
    assert.near(0.2, cost(0.19, 180, 1, 20):excess(), 1e-3)
    assert.is_nil(cost(0.21, 180, 1, 20):excess())
    assert.is_nil(cost(0, 1, 1e9, 1e9):excess())
  end)

  it("is the median of the measured times, compared with the prediction", function()
    local one = cost(0, 100, 4, 5, 3, 9)
    local facts = one:facts()
    assert.same({ 3, 5, 4, 17 }, { facts.n, facts.measured_s, facts.predicted_s, facts.spent_s })
    assert.near(0.17, facts.share, 1e-3)
    assert.equal("renderings: 3, 5.00 s each, 17.0 % of the time; 4.00 s were predicted: +25 %",
      one:line())
    assert.equal("renderings: 3, 5.00 s each, 17.0 % of the time; not compared with the "
      .. "prediction: it was busy", one:line "it was busy")
    assert.equal("renderings: 1, 4.30 s each, 4.3 % of the time", cost(0, 100, 4, 4.3):line())
    assert.equal("renderings: 1, 4.00 s each, 4.0 % of the time", cost(0, 100, nil, 4):line())
    assert.is_nil(cost(0, 100, 4):line())
    assert.is_nil(cost(0, 100, 4):facts())
    assert.same({ "0.27 s", "12.3 s" }, { rendering_cost.text(0.274), rendering_cost.text(12.34) })
  end)

  it("includes the bytes of weights, programs and a checkpoint in a CPU run", function()
    local settings = require("moonreel.settings").bake("tiny/demo", { "model.depth=1",
      "sampling.every=5", "sampling.on=device", "scheduler.num_sampling_steps=1",
      'sampling.prompts={"a"}' })
    local function bytes(saved)
      local found
      cost(0, 1):predict { settings = settings, facts = { device = "cpu", threads = 1 },
        team = { size = 1 }, saved_bytes = saved, progress = { say = function() end },
        measured = { add_rendering = function(_, n) found = n end } }
      return found
    end
    local least = bytes(0)
    assert.is_true(least > 1e6 and least < 1e8, least)
    assert.equal(least + 5e6, bytes(5000000))
  end)

  it("in another process is its processor time, not the time that it waits", function()
    local one = rendering_cost.new { most_share = 0, on = "host" }
    one.predicted_s = 4
    one:took { seconds = 60, cpu_s = 5 }
    assert.same({ 5, 5 }, { one:facts().measured_s, one:facts().spent_s })
    assert.matches("^renderings: 1, 5.00 s each of a processor, .*; 4.00 s were predicted: %+25 %%"
      .. "$", one:line())
  end)

  -- a recipe of one small block
  local function small(...)
    return require("moonreel.settings").bake("tiny/demo", { "model.depth=1",
      "scheduler.num_sampling_steps=1", 'sampling.prompts={"a"}', ... })
  end
  local function on(settings, threads, here)
    local device <close> = require("moonreel.core.exec").device("cpu", threads)
    return (rendering_cost.on(settings, device, here))
  end

  it("counts all threads of a separate process", function()
    local cost_of = require "moonreel.sample.cost"
    local programs, around = cost_of.programs, cost_of.around
    -- a program that the device needs 100 seconds for
    function cost_of.programs(_, _, _, how)
      return how.seconds { plan = function() return { total = 0, seconds = 100 } end }, 1
    end
    function cost_of.around() return 1 end
    assert.equal(801, on(small(), 8, { saved_bytes = 0, fresh = true }))
    assert.equal(101, on(small(), 8, { saved_bytes = 0, fresh = false }))
    cost_of.programs, cost_of.around = programs, around
  end)

  it("is measured by one short rendering", function()
    local cost_of = require "moonreel.sample.cost"
    local whole, seen = cost_of.whole, 0
    function cost_of.whole(...)
      seen = seen + 1
      return whole(...)
    end
    local took = on(small(), 1, { saved_bytes = 0, fresh = true })
    cost_of.whole = whole
    assert.is_true(seen == 1 and took > 0.005 and took < 5, took)
  end)

  it("includes reading all bytes of a checkpoint", function()
    local settings = small()
    local function seconds(bytes) return on(settings, 1, { saved_bytes = bytes, fresh = false }) end
    seconds(0)
    local least = seconds(0)
    assert.is_true(least > 0.005 and least < 5, least)
    -- the limit of any disk and hash is 1 TB/s
    assert.is_true(seconds(1e13) > 10 + least)
  end)
end)

describe("a run whose renderings may take little of its time", function()
  local dir = folder.new()
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  local function train(name, ...)
    return demo_data.moonreel("train", "tiny/demo", "dataset.data_path="
      .. demo_data.path(), "outputs=" .. dir.path, "name=" .. name, "threads=1", "num_workers=1",
      "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", 'bucket_config={["32px"]={[6]={1.0,2}}}', "log_every=100",
      "scheduler.num_sampling_steps=2", "sampling.every=5", "sampling.seeds={1}",
      'sampling.prompts={"a", "b"}', ...)
  end
  local function lines(name)
    local report, last = {}, nil
    for line in run.entries(demo_data.run_dir(dir.path, name)) do
      if line.kind == "samples" then
        report[#report + 1] = ("%d %s"):format(line.step, line.event or "rendered")
      end
      last = line
    end
    return report, last
  end

  for _, on in ipairs { "host", "device" } do
    it("leaves out all renderings but the last, on the " .. on, function()
      local said = train(on, "steps=15", "sampling.on=" .. on, "sampling.most_share=0.00001")
      local report, last = lines(on)
      assert.same({ "10 skip", "15 rendered", "5 skip" }, (function()
        table.sort(report)
        return report
      end)())
      assert.matches("renderings: every 5 steps %(sampling.every%) 2 clips, about [%d.]+ s each"
        .. (on == "host" and " of a processor, in parallel with the run, by %d+ thread"
        or ", between two steps"), said)
      assert.matches("step 5 is not rendered: renderings would take [%d.]+ %% of the time, "
        .. "sampling.most_share = 1e%-05; try: moonreel watch %S+ %-%-every 5\n", said)
      assert.matches("renderings: 1, [%d.]+ s each" .. (on == "host" and " of a processor" or "")
        .. ", [%d.]+ %% of the time", said)
      assert.equal("end", last.kind)
      assert.equal(1, last.renderings.n)
      assert.is_true(last.renderings.predicted_s > 0 and last.renderings.measured_s > 0
        and last.renderings.share > 0)
      -- a resumed run does not make them later
      train(on, "steps=15", "load=latest")
      assert.equal(3, #lines(on))
      assert.matches("samples of step 10, recipe: not rendered: renderings would take",
        demo_data.moonreel("log", demo_data.run_dir(dir.path, on)))
    end)
  end
end)
