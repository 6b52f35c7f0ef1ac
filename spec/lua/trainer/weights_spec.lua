--- Measurements of a run's weights: when they are made, on which ranks, and what raises an alarm.
-- Covers: lua/moonreel/trainer/weights.lua
local T = require "moonreel.core.tensor"
local demo_data = dofile "spec/support/demo_data.lua"
local histograms = require "moonreel.trackers.histograms"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local trackers = require "moonreel.trackers"
local weights = require "moonreel.trainer.weights"

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

-- a very small run; epochs of 15 steps, or of this many micro-batches
local function train(name, ranks, ...)
  local words = { "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program() }
  for _, word in ipairs { "train", "tiny/demo", "-n", tostring(ranks),
    "dataset.data_path=" .. demo_data.path(), "outputs=" .. out, "name=" .. name,
    -- the size of Muon's update cannot be derived from the state after it
    "optim.type=adamw",
    "warmup_steps=2", "threads=1", "num_workers=1", "model.depth=1", "model.hidden_size=16",
    "model.num_heads=1", "text_encoder.width=16", "text_encoder.num_heads=1",
    "text_encoder.rows=64", "model.caption_channels=16", "log_every=1000",
    'bucket_config={["32px"]={[1]={1.0,50},[6]={1.0,50}}}', ... } do
    words[#words + 1] = word
  end
  local done = process.run(words, "", { deadline_s = 600, output_bytes = 1 << 20 })
  assert.equal(0, done.exit, done.output)
  return done.output
end

local function lines(name, kind)
  local list = {}
  for entry in run.entries(demo_data.run_dir(out, name)) do
    list[#list + 1] = entry.kind == kind and entry or nil
  end
  return list
end

local function steps_of(name)
  local list = {}
  for i, line in ipairs(lines(name, "weight_norms")) do
    list[i] = line.step
  end
  return list
end

describe("the weights of a run", function()
  it("are measured every N steps and after each epoch, with the same bits as without",
    function()
      train("watched", 1, "weights.every=4", "steps=13")
      train("never", 1, "weights.every=0", "steps=13")
      -- an epoch has six batches
      assert.same({ 4, 6, 8, 12 }, steps_of "watched")
      assert.same({}, steps_of "never")
      local a <close> = demo_data.newest(out, "watched")
      local b <close> = demo_data.newest(out, "never")
      for _, name in ipairs(a:names()) do
        assert.equal(0, a:compare(b, name).differing, name)
      end
      local scalars = lines("watched", "weight_norms")[4].scalars
      for _, block in ipairs { "spatial_blocks.0", "final_layer", "text_encoder", "all" } do
        for _, what in ipairs { "norm", "update_ratio", "dead", "ema_drift" } do
          assert.number(scalars[("weights/%s/%s"):format(block, what)], block .. what)
        end
      end
    end)

  it("have the same measurements for any division among ranks, and in host memory", function()
    local want
    for _, case in ipairs { { 0, "fp32" }, { 1, "fp32" }, { 2, "fp32" }, { 3, "fp32" },
        { 3, "bf16" } } do
      local name = "zero" .. case[1] .. case[2]
      train(name, 2, "weights.every=2", "steps=2", "dtype=" .. case[2],
        "plugin_config.zero_stage=" .. case[1])
      local got = lines(name, "weight_norms")
      assert.equal(1, #got)
      want = want or got[1].scalars
      for tag, x in pairs(want) do
        assert.near(x, got[1].scalars[tag], (case[2] == "fp32" and 1e-6 or 0.1) * math.abs(x)
          + 1e-3, name .. tag)
      end
    end
    train("offloaded", 1, "weights.every=2", "steps=2", "optim.offload=true", "dtype=bf16")
    train("kept", 1, "weights.every=2", "steps=2", "dtype=bf16")
    assert.same(lines("kept", "weight_norms")[1].scalars,
      lines("offloaded", "weight_norms")[1].scalars)
  end)
end)

describe("the histograms of a run", function()
  -- the number of all elements, and the norm of all
  local function totals(line, what)
    local num, squares = 0, 0
    for _, one in ipairs(histograms.of_line(line)) do
      if one[1]:match "[^/]+$" == what then
        num, squares = num + one[2].num, squares + one[2].sum_squares
      end
    end
    return num, squares ^ 0.5
  end

  -- a single rank has fresh gradients; two reduce them with the micro-step or in the update
  for _, case in ipairs { { "alone", 1 }, { "two", 2 },
      { "sums", 2, "accumulate=2", "plugin_config.zero_stage=1" },
      { "parts", 2, "accumulate=2", "plugin_config.zero_stage=2", "dtype=bf16" },
      { "far", 1, "optim.offload=true", "dtype=bf16" } } do
    it("count each element once and change no bit: " .. case[1], function()
      local name, ranks = case[1], case[2]
      train(name .. "_counted", ranks, "weights.histograms=2", "weights.every=2", "steps=3",
        table.unpack(case, 3))
      train(name .. "_plain", ranks, "weights.every=0", "steps=3", table.unpack(case, 3))
      local a <close> = demo_data.newest(out, name .. "_counted")
      local b <close> = demo_data.newest(out, name .. "_plain")
      for _, tensor in ipairs(a:names()) do
        assert.equal(0, a:compare(b, tensor).differing, tensor)
      end
      local got = lines(name .. "_counted", "histograms")
      assert.equal(1, #got)
      assert.equal(2, got[1].step)
      local n, norm = totals(got[1], "weights")
      local measured = lines(name .. "_counted", "weight_norms")[1].scalars["weights/all/norm"]
      assert.near(1, norm / measured, 1e-6)
      local n_gradients, grad_norm = totals(got[1], "gradients")
      assert.equal(n, n_gradients)
      assert.near(1, grad_norm / lines(name .. "_counted", "step")[2].grad_norm, 1e-5)
      local elements = 0
      for _, tensor in ipairs(a:names()) do
        elements = elements + (tensor:find "^ema%." and T.count(a:info(tensor).shape) or 0)
      end
      assert.equal(elements, n)
    end)
  end

  it("are the same in files that an export writes", function()
    train("later", 1, "weights.histograms=2", "steps=4", "tensorboard=true", "wandb=true")
    local dir = demo_data.run_dir(out, "later")
    for _, name in ipairs { "tensorboard", "wandb" } do
      assert(os.rename(dir .. "/" .. name, dir .. "/was"))
      assert.equal(1, trackers.export(dir, name).written)
      local done = process.run { "/usr/bin/diff", "-r", "-x", "written.json", dir .. "/was",
        dir .. "/" .. name }
      assert.equal(0, done.exit, done.output)
      assert(os.execute("rm -r '" .. dir .. "/was'"))
    end
  end)
end)

describe("alarms of a run", function()
  it("are in its log, its journal and its charts", function()
    local said = train("moved", 1, "steps=104", "weights.every=102", "weights.update_most=1e-9",
      "tensorboard=true")
    local alarm = lines("moved", "alarm")[1]
    assert.equal("update", alarm.cause)
    assert.equal(102, alarm.step)
    assert.matches("  step 102: alarm an update moves [%w._]+ by %S+ of its norm, more than "
      .. "1e%-09; the same for %d+ more blocks\n", said)
    local dir = demo_data.run_dir(out, "moved")
    assert.matches("step 102: alarm: an update moves", demo_data.moonreel("log", dir))
    local _, times = demo_data.moonreel("log", dir):gsub("alarm", "")
    assert.equal(1, times)
    local folders = require("moonreel.core.base").list_dir(dir .. "/tensorboard")
    local text = require("moonreel.core.base").read_file(dir .. "/tensorboard/" .. folders[1])
    assert.truthy(text:find("alarm: an update moves", 1, true))
    assert.truthy(text:find("weights/final_layer/norm", 1, true))
  end)
end)

-- a run with given measurements, one after another; its journal and messages
local function watched(settings, measured, given)
  local report, said = {}, {}
  local s = { every = 1, norm_factor = 2, update_most = 0.1, update_least = 0, dead_most = 0.5,
    ema_most = 1 }
  for name, value in pairs(settings) do
    s[name] = value
  end
  local r = { step = 200, updates = 200, alarms = {}, norms = {}, lr_at = function() return 1 end,
    settings = { weights = s, optim = { betas = { 0.9, 0.99 }, eps = 1e-8, weight_decay = 0,
      ema_decay = 0.9 } },
    team = { leads = true, sum = function(_, x) return x end },
    journal = { append = function(_, line) report[#report + 1] = line end },
    progress = { say = function(_, line) said[#said + 1] = line end } }
  for name, value in pairs(given or {}) do
    r[name] = value
  end
  for _, facts in ipairs(measured) do
    r.weights = { sums = function() end, facts = function() return facts end }
    weights.look(r)
    r.step, r.updates = r.step + 1, r.updates + 1
  end
  local alarms = {}
  for _, line in ipairs(report) do
    alarms[#alarms + 1] = line.kind == "alarm" and line or nil
  end
  return alarms, said, report
end

local function block(name, norm, update, dead, ema)
  return { name = name, norm = norm, update_ratio = update or 1e-3, dead = dead or 0,
    ema_drift = ema or 0.1 }
end

describe("an alarm of weights", function()
  it("is reported once when it begins and once when it ends", function()
    local high = { block("a", 1, 0.2), block("b", 1, 0.3), block("all", 1, 0.3) }
    local alarms, said = watched({}, { { block("a", 1) }, high, high, { block("a", 1) } })
    assert.equal(2, #alarms)
    assert.same({ "a", "update", 201, 0.2, 0.1 }, { alarms[1].block, alarms[1].cause,
      alarms[1].step, alarms[1].value, alarms[1].limit })
    assert.is_true(alarms[2].over)
    assert.same({ "step 201: alarm an update moves a by 0.2 of its norm, more than 0.1; the same "
      .. "for 1 more blocks", "step 203: alarm over: an update moves a by 0.2 of its norm, more "
      .. "than 0.1; the same for 1 more blocks" }, said)
  end)

  it("is raised by a norm that grows or is not finite, and by each other limit", function()
    local function cause_of(settings, ...)
      local alarms = watched(settings, { { block("a", 1) }, { block("a", ...) } })
      return alarms[1] and alarms[1].cause, #alarms
    end
    assert.equal("norm", cause_of({}, 2.1))
    assert.equal(nil, (cause_of({}, 1.9)))
    assert.equal("norm", cause_of({}, 0 / 0))
    assert.equal("norm", cause_of({}, math.huge))
    assert.equal("dead", cause_of({}, 1, nil, 0.6))
    assert.equal("ema", cause_of({}, 1, nil, nil, 1.1))
    assert.equal(nil, (cause_of({}, 1, 1e-9, 0.5, 1)))
    assert.equal("still", cause_of({ update_least = 1e-8 }, 1, 1e-9))
  end)

  it("is not raised in the first updates, for zero weights, or without an update",
    function()
      local zero, large = { block("a", 0) }, { block("a", 9, 0.5, 1, 3) }
      assert.same({}, (watched({}, { large, large }, { updates = 99 })))
      assert.equal(1, #watched({}, { zero, { block("a", 1, 0.5) } }))
      assert.equal(0, #select(3, watched({}, { large }, { updates = 0 })))
    end)

  it("writes no number to the journal that JSON lacks", function()
    local alarms, _, report = watched({}, { { block("a", 0 / 0, math.huge) } })
    assert.equal("the norm of a is -nan, more than 1.798e+308",
      (alarms[1].text:gsub(" nan", " -nan")))
    assert.equal("norm", watched({}, { { block("a", math.huge) } })[1].cause)
    assert.is_nil(alarms[1].value)
    assert.is_nil(report[1].scalars["weights/a/norm"])
    assert.equal(0.1, report[1].scalars["weights/a/ema_drift"])
  end)
end)
