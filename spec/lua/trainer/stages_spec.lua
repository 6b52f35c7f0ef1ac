-- Recipes in sequence: killed before and after each boundary they end with the same bits
-- (recipes.md 8, reliability P3). MOONREEL_EVERY=1 also kills at all points of the second stage.
-- Covers: lua/moonreel/trainer/stages.lua lua/moonreel/trainer/rehearse.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local SEED = math.tointeger(os.getenv("MOONREEL_SEED")) or 20
local RANDOM_KILLS = 3
local EVERY = os.getenv("MOONREEL_EVERY") ~= nil

-- trains like the command; at MOONREEL_SPEC_AT = "stage: point" it gets the signal
-- MOONREEL_SPEC_SIGNAL
local KILLER = [[
local loop, trainer = require "moonreel.trainer.loop", require "moonreel.trainer"
local saves = require "moonreel.trainer.saves"
local function at(r, point)
  if r.stage.name .. ": " .. point == os.getenv("MOONREEL_SPEC_AT") then
    io.popen("kill -" .. os.getenv("MOONREEL_SPEC_SIGNAL") .. " $PPID"):close()  -- os.execute would keep INT from us
  end
end
local function around(t, key, name)
  local f = t[key]
  t[key] = function(r, ...)
    at(r, "before " .. name)
    local result = f(r, ...)
    at(r, "after " .. name)
    return result
  end
end
for _, step in ipairs(trainer.steps) do around(step, 2, step[1]) end
local save = saves.take
function saves.take(r, wait)
  at(r, wait and "before the last save" or "before a save")
  save(r, wait)
  at(r, wait and "after the last save" or "after a save")
end
local step = loop.step
function loop.step(r)
  local more = step(r)
  if more then at(r, "after step " .. r.step) end
  return more
end
return require("moonreel.cli.dispatch").run(arg)
]]

local RECIPE = [[return recipe {
  threads = 1, num_workers = 1, ckpt_every = 4, warmup_steps = 2, log_every = 1000,
  bucket_config = { ["32px"] = { [1] = { 0.2, 8 }, [6] = { 0.2, 6 } } },
  model = { depth = 1, hidden_size = 32, num_heads = 2, caption_channels = 32 }, text_encoder = { width = 32 },
  stages = {
    { name = "a", recipe = "tiny/demo", steps = 0, epochs = 1 },
    { name = "b", recipe = "tiny/demo", steps = 6, lr = 1e-3, ckpt_path = recipe.previous },
    { name = "c", recipe = "tiny/demo", steps = 12, lr = 1e-3, weight_decay = 0, load = recipe.previous },
  },
}]]
-- points around the boundary between two stages: of the first, of the second
local BEFORE = { "before the last save", "after the last save", "after train" }
local AFTER = { "before find what to start from", "after take the run directory",
  "before train", "after step %d", "after a save" }

describe("trainer.stages", function()
  local dir, recipe, out, killer
  setup(function()
    dir = folder.new()
    recipe, killer, out = dir:write("row.lua", RECIPE), dir:write("killer.lua", KILLER),
      dir.path .. "/out"
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  local function launch(name, options, ...)
    local words = { "/usr/bin/env", "MOONREEL_SPEC_AT=" .. (options.at or ""),
      "MOONREEL_SPEC_SIGNAL=" .. (options.signal or "KILL"),
      process.program(), killer, "train", options.recipe or recipe,
        "data_path=" .. demo_data.path(), "outputs=" .. out, "name=" .. name }
    for _, word in ipairs { ... } do
      words[#words + 1] = word
    end
    return process.run(words, "", { deadline_s = options.life or 600, output_bytes = 1 << 20 })
  end

  local function train(name, ...)
    local result = launch(name, {}, ...)
    assert.equal(0, result.exit, result.output)
    return result.output
  end

  local function run_dir(name) return demo_data.run_dir(out, name) end

  local function assert_same(a, b)
    for _, stage in ipairs { "a", "b", "c" } do
      assert.matches("equal: %d+ tensors, bit for bit",
        demo_data.moonreel("ckpt", "diff", run_dir(a) .. "/stages/" .. stage,
          run_dir(b) .. "/stages/" .. stage))
    end
  end

  local whole_s

  it("trains them in order, each as a run of its own that starts from the one before", function()
    local begin = base.now_s()
    local output = train("whole")
    whole_s = base.now_s() - begin
    local outer = run_dir("whole")
    local names = {}
    for i, stage in ipairs(run.stages(outer)) do
      names[i] = stage.name
    end
    assert.same({ "a", "b", "c" }, names)
    for _, line in ipairs { "stage a %(1 of 3%): begins in .-/stages/a\n",
        "stage b %(2 of 3%): follows .-/stages/a/ckpt/step%-%d+\n",
      "stage c %(3 of 3%): follows .-/stages/b/ckpt/step%-000000000006\n" } do
      assert.matches(line, output)
      assert.matches("%d%d:%d%d:%d%d  " .. line, base.read_file(outer .. "/log/rank-0.log"))
    end
    local settings = require "moonreel.settings"
    local whole = settings.load(outer .. "/settings.json")
    for i, name in ipairs(names) do
      local stage = outer .. "/stages/" .. name
      assert.equal(whole.stages[i].hash, settings.load(stage .. "/settings.json").hash)
      assert.is_true(base.exists(stage .. "/journal.jsonl"))
    end
    assert.equal(6, ckpt.steps(outer .. "/stages/b")[1])
    assert.equal(12, ckpt.steps(outer .. "/stages/c")[1])
    -- b took only weights, c everything
    local b <close> = ckpt.open(ckpt.dir(outer .. "/stages/b", 4))
    local c <close> = ckpt.open(ckpt.dir(outer .. "/stages/c", 8))
    assert.equal(4, b.manifest.run_state.updates)
    assert.equal(8, c.manifest.run_state.updates)
    assert.matches("stages/a/ckpt/step", b.manifest.parent)
    assert.matches("stages/b/ckpt/step", c.manifest.parent)
  end)

  it("ends with the same bits after kills before and after each boundary", function()
    local points = {}
    for _, stages in ipairs { { "a", "b", 1 }, { "b", "c", 7 } } do
      for _, point in ipairs(BEFORE) do
        points[#points + 1] = stages[1] .. ": " .. point
      end
      for _, point in ipairs(AFTER) do
        points[#points + 1] = stages[2] .. ": " .. point:format(stages[3])
      end
    end
    local first = #points // 2
    for i, point in ipairs(points) do
      if i > first and i % 2 == 1 and not EVERY then
        goto next
      end
      local result = launch("killed", { at = point }, "load=latest")
      assert.equal(9, result.signal, point .. "\n" .. result.output)
      ::next::
    end
    local output = train("killed", "load=latest")
    assert.is_nil(output:match("stage a"), "a finished stage is not repeated")
    assert_same("whole", "killed")
    local again = launch("killed", {}, "load=latest")
    assert.is_nil(again.output:match("stage b"), again.output)
  end)

  it("ends with the same bits after kills at random moments", function()
    print("stages_spec: seed " .. SEED .. " (MOONREEL_SEED)")
    for i = 1, RANDOM_KILLS do
      launch("random", { life = whole_s * (0.1 + 0.8 * base.random_uniform(SEED, "kill", i, 0)) },
        "load=latest")
    end
    train("random", "load=latest")
    assert_same("whole", "random")
  end)

  it("stops between stages on a signal, with a committed checkpoint, and resumes there",
    function()
    local result = launch("stopped", { at = "a: after train", signal = "TERM" })
    assert.equal(143, result.exit, result.output)
    result = launch("stopped", { at = "b: after step 2", signal = "INT" }, "load=latest")
    assert.equal(130, result.exit, result.output)
    assert.equal(2, ckpt.steps(run_dir("stopped") .. "/stages/b")[1])
    train("stopped", "load=latest")
    assert_same("whole", "stopped")
  end)

  it("passes options to all stages, and stages.NAME.key=value to one, which wins", function()
    local output = train("over", "steps=2", "epochs=1000", "stages.c.steps=4",
      "--stages.b.steps", "3", "--stages.c.no-grad_checkpoint")
    local steps = {}
    for step in output:gmatch("done: step (%d+)") do
      steps[#steps + 1] = step
    end
    assert.same({ "2", "3", "4" }, steps)
  end)

  -- the error message of a launch that fails
  local function fails(exit, words, with)
    local output, errors,
      code = folder.moonreel(("train '%s' data_path='%s' outputs='%s' %s"):format(with or recipe,
      demo_data.path(), out .. "/fails", words))
    assert.equal(exit, code, output .. errors)
    return errors:gsub("note: [^\n]*\n", "")
  end

  it("begins with --stage NAME in a run that has reached it, or from given weights",
    function()
    train("at", "stages.a.steps=2", "stages.b.steps=2", "stages.c.steps=4")
    local at = run_dir("at")
    assert.matches("ckpt_path = recipe.previous: no stage before this one has left a checkpoint",
      fails(2, "--stage b"))
    assert.matches("%-%-stage b: .-at has already begun 'c'; try: ",
      fails(2, "--stage b --load " .. at))
    assert.matches("%-%-stage x: there is no such stage; expected one of a, b, c", fails(2,
      "--stage x"))
    assert.matches("%-%-stage b: the recipe has no stages", fails(2, "--stage b", "tiny/demo"))
    -- b, although a has not ended
    local result = launch("early", { at = "a: after step 5", signal = "TERM" })
    assert.equal(143, result.exit, result.output)
    local _, begun = train("early", "load=latest", "--stage=b"):gsub("stage %a %(", "")
    assert.equal(2, begun)
    assert.equal(5, ckpt.steps(run_dir("early") .. "/stages/a")[1])
    -- a new run of the last two stages
    assert.matches("stage b %(2 of 3%): begins in",
      train("late", "--stage", "b", "stages.b.ckpt_path=" .. at .. "/stages/a"))
    assert.same({ "b", "c" }, { run.stages(run_dir("late"))[1].name,
      run.stages(run_dir("late"))[2].name })
  end)

  it("checks all stages before the first one begins, and leaves no files after an error", function()
    for words, want in pairs {
      ["stages.c.model.drop_path=0.5"] = { 3,
        "^moonreel: stage c: .*model.drop_path=0.5: model: drop_path = 0.5: "
          .. "stochastic depth is not supported" },
      ["stages.c.data_path=/nowhere.csv"] = { 4, "^moonreel: stage c: "
        .. "stages.c.data_path=/nowhere.csv: there is no such file or folder, and no index "
        .. "/nowhere.mrx" },
      ["stages.c.data_path=/nowhere.mrx"] = { 4,
        "^moonreel: stage c: stages.c.data_path=/nowhere.mrx: no such index" },
      ["stages.b.ckpt_path=/nowhere"] = { 2, "^moonreel: stage b: stages.b.ckpt_path=/nowhere: "
        .. "no such run" },
      ["stages.a.load=/nowhere"] = { 2, "^moonreel: stage a: stages.a.load=/nowhere: "
        .. "no such run" },
      ["stages.c.model.num_heads=3"] = { 3, "^moonreel: stage c: " },
      ["stages.c.bucket_config.32px.7='{1.0, 4}'"] = { 4, "^moonreel: stage c: " },
      ["stages.d.lr=1"] = { 2, "stages.d.lr=1: there is no stage 'd'" },
      ["--ckpt-path /x"] = { 2, "every stage would start from these weights; try: "
        .. "stages.a.ckpt_path=/x" },
      ["--load latest --start-from-scratch"] = { 2, "try: stages.NAME.start_from_scratch=true" },
    } do
      assert.matches(want[2], fails(want[1], words))
      assert.is_false(base.exists(out .. "/fails"), words)
    end
  end)

  it("checks at launch that a stage which keeps its position has the same samples", function()
    local clips = demo_data.path():gsub("demo%.mrx$", "clips")
    os.execute(("sed -n '1p;100,$p' '%s/demo.csv' >'%s/half.csv'"):format(clips, clips))
    local half = dir.path .. "/half.mrx"
    demo_data.moonreel("data", "ingest", clips .. "/half.csv", "-o", half)
    local swap = "stages.c.data_path=" .. half
    local text = fails(4, swap)
    assert.matches("^moonreel: stage c: stages%.c%.data_path=[^\n]*half%.mrx: dataset%.data_path = "
      .. "[^\n]* holds other samples than [^\n]* load = recipe%.previous %([^\n]*row%.lua:%d+%); "
      .. "try: start_from_scratch = true, data_change = \"carry\", or ckpt_path = "
      .. "recipe%.previous\n$", text)
    train("swapped", swap, "stages.c.start_from_scratch=true", "stages.a.steps=1",
      "stages.b.steps=1", "stages.c.steps=2")
  end)

  it("report that they begin when they take nothing from the stage before", function()
    local output = train("apart", "stages.a.steps=1", "stages.b.steps=1", "stages.c.steps=2",
      "stages.b.ckpt_path=none")
    assert.matches("stage b %(2 of 3%): begins in .-/stages/b\n", output)
    assert.matches("stage c %(3 of 3%): follows .-/stages/b/", output)
  end)

  it("without steps of their own pass on what they started from", function()
    local output = train("idle", "stages.a.steps=2", "stages.b.load=recipe.previous",
      "stages.b.ckpt_path=none", "stages.b.steps=2", "stages.c.steps=3")
    assert.matches("stage c %(3 of 3%): follows .-/stages/b/ckpt/step%-000000000002\n", output)
    assert.matches("equal: %d+ tensors, bit for bit", demo_data.moonreel("ckpt", "diff",
      run_dir("idle") .. "/stages/a", run_dir("idle") .. "/stages/b"))
  end)

  it("refuses to resume from a checkpoint that is not the newest of its run", function()
    local at = run_dir("at")
    assert.matches("/stages/a/ckpt/step%-000000000002 is not the newest checkpoint of .-at; try: ",
      fails(2, "--load " .. at .. "/stages/a"))
    assert.matches("done: step 4", train("plain", "--load", at .. "/stages/c", "stages.c.steps=4"))
    demo_data.moonreel("train", "tiny/demo", "steps=1", "name=flat", "model.depth=1",
      "data_path=" .. demo_data.path(), "outputs=" .. out)
    assert.matches("is not a run with stages; try: stages.NAME.load=",
      fails(2, "--load " .. run_dir("flat")))
    local fewer = dir:write("fewer.lua", (RECIPE:gsub('    { name = "c"[^\n]*\n', "")))
    assert.matches("/stages/c: the recipe has no stage 'c' any more",
      fails(3, "--load " .. at, fewer))
  end)

  it("names the stage that fails", function()
    local result, errors, code = folder.moonreel(("train '%s' data_path='%s' outputs='%s' "
      .. "name=torn stages.a.steps=2 stages.b.model.mlp_ratio=2 "
      .. "stages.b.ckpt_path=none stages.b.load='%s'"):format(recipe, demo_data.path(),
        out, run_dir("at") .. "/stages/a"))
    assert.equal(3, code, result)
    assert.matches("\nmoonreel: stage b: .*model.mlp_ratio", "\n" .. errors)
    assert.equal(1, #run.stages(run_dir("torn")))
  end)

  it("locks the whole run", function()
    local lock <close> = run.lock(run_dir("at"))
    assert.is_truthy(lock)
    assert.matches("^moonreel: ", fails(8, "--load " .. run_dir("at")))
  end)

  it("lets sample and ckpt take a run as its newest stage", function()
    local at = run_dir("at")
    for _, spec in ipairs { at, at .. "/stages/c" } do
      assert.matches("stages/c/ckpt/step", demo_data.moonreel("ckpt", "inspect", spec))
    end
    local listed = demo_data.moonreel("ckpt", "ls", at)
    assert.matches("stages/a/ckpt.*stages/b/ckpt.*stages/c/ckpt", listed)
    assert.is_nil(demo_data.moonreel("ckpt", "ls", at .. "/stages/b"):match("stages/a"))
    for _, spec in ipairs { at, at .. "/stages/a", recipe } do
      local output, errors, code = folder.moonreel(("sample '%s' %s --prompt x --frames 1 --size "
        .. "32x32 --steps 1 --out '%s' --json"):format(
        spec, spec == recipe and ("outputs='%s' name=at"):format(out) or "",
          dir.path .. "/samples" .. spec:gsub("%W", "")))
      assert.equal(0, code, errors)
      assert.matches(spec:match("stages/a") or "stages/c", output)
    end
  end)
end)
