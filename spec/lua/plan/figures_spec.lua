--- The figures that determine the seconds of a step: all are listed, and each has an origin.
local E = require "moonreel.core.exec"
local compiled = require "moonreel.plan.compiled"
local figures = require "moonreel.plan.figures"
local machine = require "moonreel.plan.machine"
local mesh = require "moonreel.plan.mesh"
local work = require "moonreel.plan.work"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"

local function planned(of, ...)
  local s = settings.bake("opensora-1.2/lambda/stage1", { "model.depth=1",
    "bucket_config=recipe.replace{['144p'] = {[51] = {1.0, 2}}}", ... })
  local cache <close> = compiled.new(of.machine)
  return plan.of(s, { mesh = of, compiled = cache })
end

local function by_name(list)
  local by = {}
  for _, one in ipairs(list) do
    by[one.figure] = one
  end
  return by
end

describe("figures", function()
  it("determine all seconds of a step, on one GPU, on nodes, of ranks that share tokens", function()
    for _, case in ipairs { { "H100" }, { "2x8xH100" }, { "8xH100", "plugin_config.sp_size=2" },
        { "8xA100", "text_encoder.residency=stream" }, { "H100", "job=eval_loss" },
        { "8xH100", "optim.type=muon" } } do
      local row = planned(mesh.parse(case[1]), case[2]).slowest
      local sum, share = 0, 0
      for i, one in ipairs(row.figures) do
        sum, share = sum + one.seconds, share + one.share
        assert.is_true(#one.origin > 0 and one.seconds > 0)
        assert.is_true(i == 1 or one.seconds <= row.figures[i - 1].seconds)
      end
      assert.is_true(math.abs(sum / row.seconds.step - 1) < 1e-9, case[1])
      assert.is_true(math.abs(share - 1) < 1e-9)
    end
  end)

  it("include the cost of each micro-step, and the links on which ranks share tokens", function()
    local step = { by = { ["peak.memory"] = 3, launch_s = 1 }, parts = { read = 0.25 },
      encode_by = { ["peak.memory"] = 1 } }
    local update = { by = { ["peak.bf16"] = 2 } }
    local function check(nodes, sequence, encode, expected)
      local by = {}
      for _, one in ipairs(figures.of(
          { machine = machine.open "H100", nodes = nodes, gpus = 4, sequence = sequence }, 3, step,
          update, { forward = 1, recompute = 2, backward = 5, encode = encode, update = 16,
            slowest = 0.125, exchange = 0.5, exposed = 0.0625, step = 64 })) do
        by[one.figure] = one.seconds
        assert.equal(one.seconds / 64, one.share)
      end
      expected["differences between GPUs"], expected.launch_s, expected["peak.bf16"] = 0.125, 6, 16
      assert.same(expected, by)
    end
    check(1, 4, 1, { ["peak.memory"] = 20.25, ["host.read"] = 0.75, ["node.link"] = 1.5625 })
    check(2, 4, 1, { ["peak.memory"] = 20.25, ["host.read"] = 0.75, ["node.link"] = 1.5,
      ["network.card"] = 0.0625 })
    check(2, 5, 1, { ["peak.memory"] = 20.25, ["host.read"] = 0.75, ["network.card"] = 1.5625 })
    -- weights are read while others are used
    check(2, 8, 0.125, { ["peak.memory"] = 18, ["host.read"] = 0.375, ["network.card"] = 1.5625 })
  end)

  it("change the step by their share", function()
    local of = mesh.parse "8xH100"
    local before = planned(of).slowest
    for name, one in pairs(by_name(before.figures)) do
      local group, key = name:match "^(%w+)%.(%w+)$"
      if one.share > 0.05 and group then
        local m = machine.open "H100"
        m[group][key] = m[group][key] / 1.001
        local after = planned(mesh.new(m, 8)).slowest.seconds.step
        local change = (after / before.seconds.step - 1) / 0.001
        assert.is_true(math.abs(change - one.share) < 0.02 + 0.06 * one.share,
          ("%s %g %g"):format(name, change, one.share))
      end
    end
  end)

  it("rate attention by its keys and heads, and count a launch of each kernel", function()
    local m = machine.open "H100"
    for _, row in ipairs { { 512, 128, 430 }, { 1024, 128, 517 }, { 16384, 128, 621 },
        { 1 << 20, 512, 621 }, { 256, 128, 215 }, { 512, 64, 0.75 * 430 },
        { 16384, 72, 621 * (0.75 + 0.25 / 8) } } do
      assert.is_true(math.abs(machine.attention(m, row[1], row[2]) / 1e12 - row[3]) < 1e-6)
    end
    assert.is_true(math.abs(machine.attention(m, 8192, 128, true) / 1e12 - 549 * 614 / 613) < 1e-6)
    local row = { op = "attention", flop = 614e12, bytes = 1,
      shapes = "[1, 1, 9, 24, 128] bf16, [1, 1, 8192, 24, 128] bf16, -" }
    local seconds, field, launch = work.seconds(m, row, "bf16")
    assert.is_true(math.abs(seconds - 1 - m.launch_s) < 1e-9)
    assert.same({ "rate.attention", m.launch_s }, { field, launch })
    local step = planned(mesh.parse "8xH100").slowest
    local one = by_name(step.figures).launch_s
    assert.matches("^assumed", one.origin)
    m.launch_s = 2 * m.launch_s
    local after = planned(mesh.new(m, 8)).slowest.seconds.step
    assert.is_true(math.abs(after / step.seconds.step - 1 - one.share) < 0.02 * one.share + 1e-3)
  end)

  it("include those that affect a run but not its steps", function()
    local all = {}
    for _, one in ipairs(figures.others(mesh.parse "2x8xH100")) do
      assert.is_truthy(one.value > 0 and one.origin ~= "its file does not say", one.figure)
      all[one.what:match "^[%w ]+"] = true
    end
    for _, what in ipairs { "links inside a node", "links between nodes", "jitter", "saves",
        "failures" } do
      assert.is_true(all[what], what)
    end
  end)

  it("have an origin, and say which of them were neither measured nor published", function()
    local m = machine.open "H100"
    assert.matches("^assumed: FlashAttention%-3", machine.origin(m, "rate.attention"))
    assert.matches("^assumed", machine.origin(m, "rate.product"))
    assert.equal("data sheet", machine.origin(m, "peak.memory"))
    assert.matches("^published", machine.origin(m, "network.card"))
    assert.matches("^measured", machine.origin(m, "here"))
    assert.is_nil(machine.origin(m, "name"))
    m.assumed = { { field = "peak.memory", of = "peak.bf16" } }
    assert.equal("assumed by its peak.bf16", machine.origin(m, "peak.memory"))
    local report = figures.assumed(planned(mesh.parse "H100").slowest.figures)
    assert.matches("^%d+ %% of the longest step depend on assumed figures %(rate.%w+ %d+ %%",
      report)
    assert.is_nil(figures.assumed { { figure = "ops", share = 1, origin = "measured by" } })
    -- a probe of this machine assumes nothing about kernels
    local here = machine.this(E.device("cpu", 1))
    local row = planned(mesh.new(here)).slowest
    assert.matches("^measured", by_name(row.figures).here.origin)
  end)
end)
