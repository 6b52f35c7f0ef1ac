--- What a run does about spikes and bad steps, for any number of ranks and kills at any point.
-- Covers: lua/moonreel/trainer/spikes.lua samples.lua loop.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local out = demo_data.scratch()

-- batches of the first epoch with too large gradients; three in a row are a spike
local LARGE = { ["26"] = 50, ["27"] = 50, ["28"] = 50, ["29"] = 50 }
local NO_LOSSES, BACK = "spike.loss_sigmas=1e9", { "spike.action=rollback", "ckpt_every=5",
  "spike.back_steps=8", "spike.skip_batches=4", "spike.loss_sigmas=1e9" }

-- trains with a plan of spec/support/spiked_run.lua; returns exit code and output
local function train(ranks, plan, name, steps, ...)
  local words = { "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program() }
  if ranks > 1 then
    table.move({ "-n", tostring(ranks) }, 1, 2, #words + 1, words)
  end
  for _, word in ipairs { "spec/support/spiked_run.lua", json.encode(plan),
    "tiny/demo", "dataset.data_path=" .. demo_data.path(), "outputs=" .. out,
    "name=" .. name, "steps=" .. steps, "dtype=fp32", "warmup_steps=2", "lr_schedule=constant",
    "threads=1", "num_workers=1", "model.depth=1", "model.hidden_size=32", "model.num_heads=2",
    "text_encoder.width=32", "text_encoder.rows=1024", "model.caption_channels=32",
    "log_every=1000", 'bucket_config=recipe.replace{32px: {6: (1, 4)}}', ... } do
    words[#words + 1] = word
  end
  local done = process.run(words, "", { deadline_s = 600, output_bytes = 1 << 20 })
  return done.exit, done.output
end

local function trained(...)
  local exit, output = train(...)
  assert.equal(0, exit, output)
  return output
end

-- lines of one kind in a run's journal, without times
local function lines(name, kind)
  local list = {}
  for entry in run.entries(demo_data.run_dir(out, name)) do
    entry.wall = nil
    list[#list + 1] = entry.kind == kind and entry or nil
  end
  return list
end

local function newest(name) return demo_data.newest(out, name) end

local function steps_of(name, kind)
  local list = {}
  for i, line in ipairs(lines(name, kind)) do
    list[i] = line.step
  end
  return list
end

describe("a run with spikes", function()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("reports the spike with its samples and continues under action = log", function()
    local said = trained(1, { draws = LARGE }, "log", 32, NO_LOSSES)
    assert.matches("step 29 is a spike: gradient norm [%d.]+: for 3 steps in a row above 5 times "
      .. "its median, [%d.]+\n", said)
    local report = lines("log", "spike")
    assert.equal(1, #report)
    assert.same({ "log", "norm", 29, 3 }, { report[1].action, report[1].cause, report[1].step,
      report[1].steps })
    local steps = {}
    for i, row in ipairs(report[1].samples) do
      steps[i] = row.step
      assert.equal(4, #row.ids)
    end
    assert.same({ 27, 28, 29 }, steps)
    assert.equal(32, #lines("log", "step"))
    local last <close> = newest "log"
    assert.equal(32, last.manifest.run_state.updates)
  end)

  it("skips the updates of the spike and no others under action = skip", function()
    trained(1, { draws = LARGE }, "skip", 32, NO_LOSSES, "spike.action=skip")
    -- the third and the fourth: the two before them were not yet known to be a spike
    assert.same({ 29, 30 }, steps_of("skip", "skip"))
    assert.same({ 29, 30 }, steps_of("skip", "spike"))
    local last <close> = newest "skip"
    assert.equal(30, last.manifest.run_state.updates)
    -- waiting for losses before each update changes no bit
    trained(1, { draws = {} }, "calm", 12, "spike.action=skip")
    trained(1, { draws = {} }, "usual", 12)
    local a <close> = newest "calm"
    local b <close> = newest "usual"
    for _, name in ipairs(a:names()) do
      assert.equal(0, a:compare(b, name).differing, name)
    end
  end)

  it("skips the update of a loss that is a spike, so that no weight changes", function()
    -- the known losses have mean 3 and deviation 0.2, so the limit is about 4.2
    trained(1, { draws = { ["11"] = 10 }, known = { 50, 3, 0.04 } }, "loss", 12,
      "spike.action=skip", "ckpt_every=1")
    assert.same({ 12 }, steps_of("loss", "skip"))
    local report = lines("loss", "spike")[1]
    assert.same({ "loss", 12 }, { report.cause, report.step })
    assert.matches("^32px of 6 frames, noise [1-4] of 4$", report.group)
    assert.equal(1, #report.samples)
    local dir = demo_data.run_dir(out, "loss")
    local a <close> = ckpt.open(ckpt.dir(dir, 11))
    local b <close> = ckpt.open(ckpt.dir(dir, 12))
    for _, name in ipairs(a:names()) do
      assert.equal(0, a:compare(b, name).differing, name)
    end
    assert.are_not.equal(a.manifest.sampler, b.manifest.sampler)
  end)

  it("rolls back, skips the batches after that checkpoint and counts them as taken", function()
    local said = trained(1, { draws = LARGE }, "back", 34, table.unpack(BACK))
    assert.matches("the 3 kept checkpoints go back at least 10 steps",
      trained(1, { draws = {} }, "reach", 1, "spike.action=rollback", "ckpt_every=5"))
    assert.matches("step 29: gradient norm .- back to step 20, without the batches of 9 steps from "
      .. "there on, 36 samples\n", said)
    local back = lines("back", "rollback")
    assert.equal(1, #back)
    assert.same({ 20, 29, 9, 36 }, { back[1].step, back[1].from, back[1].skipped,
      back[1].left_out })
    -- the checkpoints after the rollback's target are removed
    local dir = demo_data.run_dir(out, "back")
    assert.same({ 34, 30, 25 }, ckpt.steps(dir))
    -- the run's position in its data is nine steps further
    trained(1, { draws = {} }, "clean", 43)
    local a <close> = newest "back"
    local b <close> = newest "clean"
    assert.equal(b.manifest.sampler, a.manifest.sampler)
  end)

  it("ends with the bits of a run without kills, wherever it is killed after the rollback",
    function()
    local whole <close> = newest "back"
    for _, stop in ipairs { 23, 32 } do
      local name = "killed" .. stop
      local exit, output = train(1, { draws = LARGE, stop = stop }, name, 34, table.unpack(BACK))
      assert.equal(9, exit, output)
      -- the rollback removed its step 25, so the newest checkpoint is of step 20
      assert.equal(stop < 25 and 20 or 30, ckpt.steps(demo_data.run_dir(out, name))[1])
      trained(1, { draws = LARGE }, name, 34, "load=" .. demo_data.run_dir(out, name),
        table.unpack(BACK))
      local resumed <close> = newest(name)
      assert.equal(whole.manifest.sampler, resumed.manifest.sampler)
      assert.same(whole.manifest.run_state, resumed.manifest.run_state)
      for _, tensor in ipairs(whole:names()) do
        assert.equal(0, whole:compare(resumed, tensor).differing, tensor)
      end
    end
  end)

  it("rolls back to the same checkpoint once, then continues", function()
    local draws = {}
    for draw = 26, 62 do
      draws[tostring(draw)] = 50
    end
    local said = trained(1, { draws = draws }, "vain", 34, table.unpack(BACK))
    assert.equal(1, #lines("vain", "rollback"))
    assert.matches("there is no checkpoint to go back to: all are too new, or the run has gone "
      .. "back to it",
      said)
  end)

  it("decides the same on two ranks of which one has the spike, at each ZeRO stage", function()
    local draws = { ["7"] = "nan" }
    -- a step has two batches; the second one belongs to rank 1
    for draw = 53, 59, 2 do
      draws[tostring(draw)] = 50
    end
    local wanted
    for name, how in pairs { one = { 1 }, zero = { 2, 0 }, three = { 2, 3 } } do
      trained(how[1], { draws = draws }, name, 31, "virtual_ranks=2",
        "plugin_config.zero_stage=" .. (how[2] or 0), "optim.type=adamw", table.unpack(BACK))
      local skipped, spike, back = lines(name, "skip"), lines(name, "spike"),
        lines(name, "rollback")
      assert.same({ 1, 1, 1 }, { #skipped, #spike, #back }, name)
      wanted = wanted or { spike = spike, back = back }
      assert.equal(4, skipped[1].step)
      assert.near(1, spike[1].value / wanted.spike[1].value, 1e-5)
      assert.same(wanted.spike[1].samples, spike[1].samples)
      assert.same({ 29, 20, 9 }, { back[1].from, back[1].step, back[1].skipped })
      assert.equal(wanted.back[1].left_out, back[1].left_out)
    end
  end)

  it("refuses a rollback without checkpoints, and values out of range",
    function()
    for _, case in ipairs {
      { 3, "spike.action=rollback", "spike%.action = \"rollback\" with ckpt_every = 0: there would "
        .. "be no checkpoint to go back to; try: ckpt_every = 50" },
      { 2, "spike.action=stop", "expected one of \"log\", \"skip\", \"rollback\"" },
      { 2, "spike.norm_steps=0", "spike%.norm_steps" },
    } do
      local exit, output = train(1, { draws = {} }, "refused", 1, case[2])
      assert.equal(case[1], exit, output)
      assert.matches(case[3], output)
    end
    assert.is_false(base.exists(out .. "/001-refused"))
  end)
end)
