--- A plan as text and as JSON, by the command.
-- Covers: lua/moonreel/cli/plan.lua
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local plan = require "moonreel.plan"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local show = require "moonreel.plan.show"
local small_plan = require "spec.support.small_plan"

local function run(...)
  local done = process.run({ process.program(), "plan", ... }, "", { deadline_s = 600 })
  return done.exit, done.output
end

local SMALL = table.move(small_plan.words, 1, #small_plan.words, 2, { "dataset.data_path=none" })

local function demo(...)
  local words = { "recipes/tiny/demo", ... }
  table.move(SMALL, 1, #SMALL, #words + 1, words)
  return run(table.unpack(words))
end

-- docs/plan_json.md names each field of a plan as JSON, and all numbers are finite
local function expect_documented(p)
  local known = {}
  for path in base.read_file("docs/plan_json.md"):gmatch "`([%w_.%[%]]+)`" do
    known[path] = true
  end
  local function walk(value, path)
    if type(value) == "table" then
      for key, one in pairs(value) do
        walk(one, math.type(key) and path .. "[]" or path .. (path == "" and "" or ".") .. key)
      end
    elseif path ~= "" then
      assert.is_true(known[path], path)
      assert.is_true(value == value and value ~= math.huge and value ~= -math.huge, path)
    end
  end
  walk(p, "")
end

describe("moonreel plan", function()
  teardown(demo_data.remove)

  it("prints a recipe in sentences, tables and bars", function()
    local exit, text = demo("--gpus", "2x8xH100")
    assert.equal(0, exit)
    for _, want in ipairs { "on 2 x 8 H100: ZeRO 1, [%d,]+ parameters, of them [%d,]+ train, in bf",
        "memory of one rank at its peak, in bucket 32px", "activations and workspace +[%d.]+ MB",
        "libraries and communication +4.0 GB +██", "decoded batches +[%d.]+ kB  host",
        "of 85.5 GB %(%d+ %%%), and .* of host memory for each rank", "kept +spatial_blocks",
        "\nbucket +batch +memory +forward +backward +communication +slowest rank "
        .. "+update +step +decode cores +of peak\n",
        "\n32px 6x32x32 +8 +%d", "note: H100: the planned workspace is that of plain" } do
      assert.matches(want, text)
    end
  end)

  it("prints samples of each bucket of an index, and the rules that leave out others", function()
    local exit, text = demo("--gpus", "H100", "--data", demo_data.path(),
      "bucket_config=recipe.replace{['32px'] = {[6] = {1.0, 8}}}")
    assert.equal(0, exit)
    assert.matches("\nbucket +batch +samples +memory", text)
    assert.is_nil(text:find("no sample of the first epoch", 1, true))
    assert.matches("first epoch of .*%.mrx: 250 of 300 samples in 32 batches; left out: 50 "
      .. "samples, [^(]+ %(such as /[^ )]+%)", text)
    -- 31 batches of eight, and two clips for the next epoch; the last epoch trains all
    exit, text = demo("--gpus", "H100", "--data", demo_data.path(), "tail=carry",
      "bucket_config=recipe.replace{['32px'] = {[6] = {1.0, 8}}}")
    assert.equal(0, exit)
    assert.matches(": 248 of 300 samples in 31 batches; 2 more are carried to the next; left out",
      text)
    -- an evaluation takes those that training leaves out
    local taken = {}
    for _, job in ipairs { "train", "eval_loss" } do
      exit, text = demo("--gpus", "H100", "--data", demo_data.path(), "job=" .. job,
        "dataset.hold_back=0.25", "mask_ratios=none", "bucket_config=recipe.replace{['32px'] = "
        .. "{[1] = {1.0, 8}, [6] = {1.0, 8}}}")
      assert.equal(0, exit)
      taken[job] = tonumber(text:match ": (%d+) of 300 samples in")
    end
    assert.is_true(taken.eval_loss > 50 and taken.eval_loss < 100)
    assert.equal(300 - taken.eval_loss, taken.train)
    exit, text = demo("--gpus", "H100", "--data", demo_data.path(), "tail=carry", "epochs=1",
      "bucket_config=recipe.replace{['32px'] = {[6] = {1.0, 8}}}")
    assert.equal(0, exit)
    assert.matches(": 250 of 300 samples in 32 batches; left out", text)
    exit, text = demo("--gpus", "H100", "--data", demo_data.path(),
      "bucket_config=recipe.replace{['32px'] = {[6] = {1.0, 8}, [99] = {1.0, 1}}}")
    assert.equal(0, exit)
    assert.matches("note: bucket_config.32px%[99%]: no sample of the first epoch enters it", text)
    exit, text = demo("--gpus", "H100", "--data", demo_data.path(), "--json")
    assert.equal(0, exit)
    local p = json.decode(text)
    expect_documented(p)
    assert.same({ 2, "H100", 1 }, { #p.buckets, p.machine, p.ranks })
    assert.same({ 300, 300, 34 }, { p.survey.rows, p.survey.samples, p.survey.batches })
    assert.equal(p.course.cost, p.course.gpu_hours * p.price_hour)
    assert.equal(300, p.buckets[1].samples + p.buckets[2].samples)
    exit, text = demo("--gpus", "H100", "--data", demo_data.path(),
      "bucket_config=recipe.replace{['4k'] = {[6] = {1.0, 8}}}")
    assert.equal(4, exit, text)
  end)

  it("refuses options that do not belong to the chosen question", function()
    local command = require "moonreel.cli.plan"
    for _, case in ipairs { { "gpus", "published", "--published", "--gpus", "8" },
        { "html", "check", "--check", "--html", "/tmp/none.html" },
        { "balance", "solve", "tiny/demo", "--solve=mesh", "--balance", "--gpus=2" },
        { "trace", "fit", "tiny/demo", "--fit=all", "--trace", "/tmp/none.json" },
        { "json", "why", "tiny/demo", "--why", "--json", "--gpus=2" } } do
      fails("MR_E_USAGE", (
        "plan: %%-%%-%s cannot be combined with %%-%%-%s, which allows %%-%%-"):format(
        case[1], case[2]), command.run, table.move(case, 3, #case, 1, {}))
    end
    fails("MR_E_USAGE", "%-%-data '/tmp/no such': no index '/tmp/no such.mrx'", command.run,
      { "tiny/demo", "--gpus=1", "--data", "/tmp/no such" })
  end)

  it("exits with 5 when a bucket does not fit, and reports by how much", function()
    local exit, text = demo("--gpus", "H100",
      "bucket_config=recipe.replace{['4k'] = {[6] = {1.0, 64}}}")
    assert.equal(5, exit)
    assert.matches("bucket 4k 6x%d+x%d+ of 64 needs %S+ GB, but H100 has 85.5 GB: %S+ GB too many "
      .. "%(activations and workspace %S+ GB, .-%)\n  fits with any of: .*a batch of %d+", text)
  end)

  it("exits with 5 when a buffer for inputs of blocks is too small, with the size needed",
    function()
    local exit, text = demo("--gpus", "H100", "grad_checkpoint=true",
      "grad_ckpt_buffer_size=1000")
    assert.equal(5, exit)
    local needs = 0
    for one in text:gmatch("bucket 32px %dx32x32 of %d+ keeps %S+ [kM]B of inputs of blocks in "
        .. "host memory, but grad_ckpt_buffer_size is 1000; try: grad_ckpt_buffer_size = (%d+)") do
      needs = math.max(needs, math.tointeger(one))
    end
    assert.not_matches("too many", text)
    exit, text = demo("--gpus", "H100", "grad_checkpoint=true", "grad_ckpt_buffer_size=" .. needs)
    assert.equal(0, exit)
    assert.matches("activations moved to the host, inputs being copied +%S+ [kM]B +host", text)
  end)

  it("refuses input that it cannot read", function()
    for words, exit in pairs { ["--stalls 2"] = 2, ["--gpus 12"] = 2, ["--machine ./none.lua"] = 2,
        ["--html /nowhere/x.html"] = 8 } do
      assert.equal(exit, (demo(words:match("^(%S+) (.*)$"))), words)
    end
    assert.equal(2, (run("recipes/tiny/demo", "--gpus", "8xH10")))
    assert.equal(2, (demo("--html", "")))
    assert.equal(2, (demo("--trace", "")))
    assert.equal(2, (demo("--gpus", "8xH100", "plugin_config.tp_size=2")))
    assert.equal(2, (run("recipes/tiny/demo", "again")))
    assert.equal(3, (run("recipes/tiny/dem")))
    assert.equal(4, (demo("--data", "/nowhere/at-all.mrx")))
  end)
end)

describe("the buckets of ranks that --why advises", function()
  local schedule = require "moonreel.plan.schedule"

  -- the proposal for a wide model on eight GPUs, and its plan
  local function why(memory, ...)
    local m = small_plan.machine(memory)
    local cache <close> = require("moonreel.plan.compiled").new(m)
    local p = plan.of(settings.bake("tiny/demo", { "model.hidden_size=512",
      "model.depth=2", "model.num_heads=8", "plugin_config.zero_stage=2",
      "bucket_config=recipe.replace{['32px'] = {[1] = {1.0, 2}}}", ... }),
      { mesh = require("moonreel.plan.mesh").new(m, 8), compiled = cache })
    return show.why(p, p.slowest), p
  end

  local function seconds(p, size)
    return (schedule.seconds(p.mesh.machine, setmetatable({ bucket = size << 20 },
      { __index = p.slowest.schedule.step })))
  end

  it("are the fastest in the simulator, and none are proposed when the recipe's are", function()
    local text, p = why(80e9, "plugin_config.reduce_bucket_size_in_m=1")
    local size = tonumber(text:match "reduce_bucket_size_in_m = (%d+) %([%d.]+ m?s%)\n")
    for _, other in ipairs(plan.bucket_sizes) do
      assert.is_true(seconds(p, size) <= seconds(p, other), other)
    end
    assert.is_true(seconds(p, size) * 1.001 < seconds(p, 1))
    -- a graph with other buckets is a slightly different step: proposals converge
    for _ = 1, 2 do
      text = why(80e9, "plugin_config.reduce_bucket_size_in_m=" .. size)
      size = tonumber(text:match "reduce_bucket_size_in_m = (%d+) %(") or size
    end
    assert.matches("no other size that fits is notably faster", text)
    -- temporary buffers of gradients have to fit
    text = why(p.largest.total, "plugin_config.reduce_bucket_size_in_m=1")
    assert.matches("no other size that fits is notably faster", text)
  end)
end)

describe("a bar and a number", function()
  it("have the right length and digits", function()
    assert.same({ "", "▌", "█", "███▌", "████" }, { show.bar(0, 4), show.bar(1 / 8, 4),
      show.bar(1 / 4, 4), show.bar(7 / 8, 4), show.bar(2, 4) })
    assert.same({ "7", "1,234", "1,207,643,972" }, { show.count(7), show.count(1234),
      show.count(1207643972) })
    assert.same({ "-", "12 us", "3.2 ms", "1.50 s" }, { show.seconds(0), show.seconds(12e-6),
      show.seconds(3.2e-3), show.seconds(1.5) })
  end)
end)

describe("stages", function()
  it("add up to a total of what is known, and have no cost without a price", function()
    local function stage(course)
      return { stage = "one", buckets = {}, course = course, mesh = { machine = {} },
        largest = { resolution = "144p", frames = 1, height = 8, width = 8, total = 1 } }
    end
    local one = stage { steps = 2, hours = 3, gpu_hours = 4, cost = 5 }
    local _, rows = show.stage_table { one, one, stage(nil) }
    local total = rows[#rows]
    assert.same({ 4, 6, 8, 10 }, { total.steps, total.hours, total.gpu_hours, total.cost })
    _, rows = show.stage_table { stage { steps = 2, hours = 3, gpu_hours = 4 } }
    assert.is_nil(rows[#rows].cost)
  end)

  it("are rows with a total, and each has a course if its steps are known", function()
    local exit, text = run("opensora-1.2/lambda/tutorial", "--gpus", "24x8xH100",
      "bucket_config=recipe.replace{['144p'] = {[51] = {1.0, 8}}}", "model.depth=1")
    assert.equal(0, exit)
    assert.matches("tutorial on 24 x 8 H100, stage by stage:", text)
    assert.matches("\nstage3 +1 +[%d.]+ GB  144p 51x%d+x%d+ +14,778 ", text)
    assert.matches("\nstage7 +1 +[%d.]+ GB  144p 51x%d+x%d+ +- ", text)
    assert.matches("\ntotal of known steps .* 32,387 ", text)
    assert.matches("stage stage7: its number of steps needs an index", text)
    exit, text = run("opensora-1.2/lambda/tutorial", "--gpus", "24x8xH100", "--stage", "stage4",
      "bucket_config=recipe.replace{['144p'] = {[51] = {1.0, 8}}}", "model.depth=1")
    assert.equal(0, exit)
    assert.matches("the whole run: 2,100 steps %(names of the published checkpoints", text)
    exit, text = run("opensora-1.2/lambda/stage1", "--gpus", "24x8xH100",
      "bucket_config=recipe.replace{['144p'] = {[51] = {1.0, 8}}}", "model.depth=1")
    assert.equal(0, exit)
    assert.matches("\nthe number of steps is known only with an index; try: %-%-data", text)
  end)
end)

describe("a run", function()
  -- settings and journal of a run whose steps took this long
  local function write_run(dir, baked, seconds, device)
    base.make_dir(dir)
    base.replace_file(dir .. "/settings.json", baked:to_json())
    base.replace_file(dir .. "/recipe.lua", baked:to_recipe())
    local journal <close> = require("moonreel.run").journal(dir)
    journal:append { kind = "start", update_s = 0.001,
      machine = { threads = 1, libraries = { device = device } },
      buckets = { { key = "k", bucket = "32px 6x32x32", seconds = 0.009 } } }
    for _ = 1, 9 do
      journal:append { kind = "step", batches = 1, bucket = "k", time_s = seconds, data_wait_s = 0 }
    end
    journal:sync()
  end

  it("of stages is planned stage by stage, each with its own rates", function()
    local dir = folder.new()
    finally(function() dir:remove() end)
    local recipe = dir:write("two.lua", 'return recipe.extend("tiny/demo") { stages = { '
      .. '{ name = "one", steps = 3 }, { name = "two", steps = 4 } } }')
    local path = dir.path .. "/run"
    base.make_dir(path)
    base.make_dir(path .. "/stages")
    base.replace_file(path .. "/settings.json", settings.bake(recipe, SMALL):to_json())
    write_run(path .. "/stages/one", settings.bake(recipe, SMALL, { stage = "one" }), 20, "cpu")
    write_run(path .. "/stages/two", settings.bake(recipe, SMALL, { stage = "two" }), 50, "cpu")
    local exit, text = run(path, "--json")
    assert.equal(0, exit, text)
    local p = json.decode(text)
    for i, seconds in ipairs { 20, 50 } do
      local row = p.stages[i].measured[1]
      assert.equal(seconds, row.measured_s)
      assert.is_true(math.abs(row.planned_s / seconds - 1) < 1e-9, row.planned_s)
      assert.equal(i + 2, p.stages[i].course.steps)
    end
    -- a journal of a million lines takes seconds
    local runs, reads = require "moonreel.run", 0
    local entries = runs.entries
    runs.entries = function(from)
      reads = reads + 1
      return entries(from)
    end
    text = require "spec.support.printed"(require("moonreel.cli.plan").run,
      { path, "--stage", "two" })
    runs.entries = entries
    assert.equal(1, reads, text)
    assert.matches("the whole run: 4 steps.*\n32px 6x32x32 +9 +10 ms +50%.00 s", text)
    -- on another machine nothing is compared with it
    exit, text = run(path, "--stage", "two", "--gpus", "H100")
    assert.equal(0, exit, text)
    assert.matches("\nbucket +steps +predicted +measured +bytes predicted +measured\n"
      .. "32px 6x32x32 +9 +10 ms +50%.00 s", text)
    -- proposals are computed from its own recipe
    exit, text = run(path, "--stage", "two", "--gpus", "2xH100", "--solve", "mesh")
    assert.equal(0, exit, text)
    assert.matches("plugin_config = { zero_stage = %d", text)
    fails("MR_E_USAGE", "%-%-stage three: stages of the run that have begun: one, two",
      require("moonreel.cli.plan").run, { path, "--stage", "three" })
    fails("MR_E_USAGE", "is a run, which is planned with its own settings",
      require("moonreel.cli.plan").run,
      { path, "steps=3" })
  end)

  it("is planned from its settings, next to the measurements of its journal", function()
    local dir = folder.new()
    local words = { "steps=9", "dataset.data_path=nowhere.mrx" }
    table.move(SMALL, 1, #SMALL, #words + 1, words)
    dir:write("settings.json", settings.bake("tiny/demo", words):to_json())
    dir:write("journal.jsonl", "")
    local journal <close> = require("moonreel.run").journal(dir.path)
    journal:append { kind = "start", update_s = 0.001,
      buckets = { { key = "k", bucket = "32px 6x32x32", seconds = 0.009 } } }
    for _ = 1, 9 do
      journal:append { kind = "step", batches = 1, bucket = "k", time_s = 0.015, data_wait_s = 0 }
    end
    journal:append { kind = "end", resident_bytes = 200000000 }
    journal:sync()
    local exit, text = run(dir.path)
    assert.equal(0, exit)
    -- planned again with the rates of the run: measured and planned times are equal
    assert.matches("\n32px 6x32x32 +9 +10 ms +15 ms +%+50 %% +15 ms +%- +%- +%d+ MB\n", text)
    assert.matches("the plan above uses the measured times of this run's steps", text)
    assert.matches("200.0 MB resident at most; the plan above has", text)
    assert.matches("the whole run: 9 steps", text)
    exit, text = run(dir.path, "--json")
    assert.equal(0, exit)
    local report = json.decode(text)
    expect_documented(report)
    assert.same({ 0.015, 200000000 }, { report.measured[1].measured_s, report.resident_bytes })
    assert.is_nil(report.busy)
    -- on a busy host it prints what `train` prints, and no percentage
    journal:append { kind = "end", busy = "9.0 processes wanted the host's 2 processors" }
    journal:sync()
    exit, text = run(dir.path)
    assert.equal(0, exit)
    assert.matches("\n32px 6x32x32 +9 +10 ms +15 ms +%- +15 ms [^\n]*\ntimes of "
      .. "steps are not compared with the prediction: 9.0 processes wanted the host's 2 "
      .. "processors\n", text)
    dir:remove()
  end)
end)
