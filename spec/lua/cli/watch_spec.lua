--- moonreel watch, run as by a user.
-- Covers: lua/moonreel/cli/watch.lua lua/moonreel/sample/presets.lua lua/moonreel/watch/render.lua
-- lua/moonreel/watch/sets.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local run = require "moonreel.run"

describe("moonreel watch", function()
  local dir = folder.new()
  setup(function()
    dir:write("a.lua", ([[return recipe.extend "tiny/demo" { model = { depth = 1,
      hidden_size = 32, num_heads = 2, caption_channels = 32 }, text_encoder = { width = 32 },
      bucket_config = recipe.replace { ["32px"] = { [6] = { 1.0, 20 } } }, threads = 1,
      num_workers = 1, steps = 30, log_every = 100, ckpt_every = 6, keep_n_latest = 0,
      dataset = { data_path = %q }, sampling = { seeds = { 1 }, prompts = { "a", "b" } },
      resolutions = { ["360p"] = recipe.replace { pixels = 512, aspects = { { 0.5, 16, 32 } } },
        ["720p"] = recipe.replace { pixels = 512, aspects = { { 0.5, 8, 8 } } } } }]]):format(
      demo_data.path()))
    local _, err, code = folder.moonreel("train ./a", ("cd '%s' &&"):format(dir.path))
    assert.equal(0, code, err)
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)
  local RUN <const> = dir.path .. "/outputs/001-a"

  -- its output, errors and exit code
  local function watch(words)
    return folder.moonreel("watch " .. words, ("cd '%s' && NO_COLOR=1"):format(dir.path))
  end
  local function rows(words)
    local out, err, code = watch(words .. " --steps 2 --json")
    assert.equal(0, code, err)
    local list = {}
    for line in out:gmatch "[^\n]+" do
      list[#list + 1] = json.decode(line, "line")
    end
    return list, err
  end
  local function steps(list)
    local found = {}
    for i, row in ipairs(list) do
      found[i] = row.step
    end
    return found
  end

  it("renders what a recipe asks for, once, and adds a line to the journal", function()
    local list = rows "a"
    assert.same({ 6, 12, 18, 24, 30 }, steps(list))
    assert.same({}, rows "001")
    local report = {}
    for line in run.entries(RUN) do
      if line.kind == "samples" then
        report[#report + 1] = line
      end
    end
    assert.equal(5, #report)
    assert.same({ 6, "recipe", { caption = "a", name = "recipe/sample_0000",
      path = "samples/step6/recipe/sample_0000.mp4" } }, { report[1].step, report[1].set,
      report[1].files[1] })
    local out = folder.moonreel("log " .. RUN)
    assert.matches("samples of step 6, recipe: 2 files in [%d.]+ s, samples/step6/recipe\n", out)
    -- other prompts are another set of the same name
    assert.equal("outputs/001-a/samples/step30/recipe.2",
      rows("a --last-step 24 --prompt c")[1].path)
  end)

  it("renders presets, sizes and other weights", function()
    local list = rows "a --preset low4s,high4s --last-step 24"
    assert.same({ "low4s", "high4s" }, { list[1].set, list[2].set })
    local about = json.decode(base.read_file(RUN .. "/samples/step30/low4s/rendering.json"), "a")
    assert.same({ 102, 16, 32 }, { about.clips[1].frames, about.clips[1].height,
      about.clips[1].width })
    assert.equal("2x16x16", rows("a --last-step 24 --frames 2 --size 16x16 --raw")[1].set)
    assert.equal("2x16x16", rows("a --last-step 24 --frames 2 --size 16x16 --ema")[1].set)
    assert.same({}, rows "a --last-step 24 --frames 2 --size 16x16 --ema")
  end)

  it("renders a selection of checkpoints", function()
    assert.same({ 12, 24 }, steps(rows "a --every 12 --prompt d"))
    -- an epoch has 15 steps
    assert.same({ 6, 18, 30 }, steps(rows "a --only-first-of-epoch --prompt e"))
  end)

  it("writes to another folder, or adds nothing to the journal", function()
    local lines = select(2, base.read_file(RUN .. "/journal.jsonl"):gsub("\n", ""))
    local list = rows "a --save-to there --last-step 24"
    assert.equal("there/samples/step30/recipe", list[1].path)
    assert.is_true(base.exists(dir.path .. "/there/samples/step30/recipe/sample_0001.mp4"))
    rows "a --compute-only --last-step 24 --prompt f"
    assert.equal(lines, select(2, base.read_file(RUN .. "/journal.jsonl"):gsub("\n", "")))
  end)

  it("measures, and continues after a metric that raises", function()
    local metric = dir:write("m.lua", [[watch.metric("n", function(frames, prompt)
      if prompt == "b" then error "no b" end
      return { frames = frames.shape[1] }
    end)]])
    local list, err = rows("a --last-step 24 --prompt a --prompt b --seed 3 --metric " .. metric)
    assert.equal(6, list[1].scalars["samples/recipe/frames"])
    assert.matches("note: step 30: a metric function failed: [^\n]*m.lua:2: no b\n", err)
  end)

  it("reports incomplete checkpoints and failed renderings", function()
    os.execute(("cp -r '%s' '%s/half'"):format(RUN, dir.path))
    local path = ckpt.dir(dir.path .. "/half", 12)
    os.remove(path .. "/" .. base.list_dir(path)[2])
    base.remove_dir(dir.path .. "/half/samples")
    local out, err, code = watch "half --steps 2"
    assert.equal(8, code)
    assert.equal(4, select(2, out:gsub("step %d+  recipe  ", "")))
    assert.matches("note: step 12 is not complete yet: ", err)
    assert.matches("incomplete checkpoints: 12; try: moonreel ckpt verify", err)
    out, err, code = watch "a --last-step 24 --frames 100000 --size 8192x8192"
    assert.equal(1, code, out .. err)
    assert.matches("^step 30  100000x8192x8192  failed: .*need about", out)
  end)

  it("refuses requests that it cannot serve, with a proposal", function()
    for words, message in pairs { [""] = "watch: expected a run", ["nowhere"] = "is not a run",
      ["a --preset low8s"] = "expected low4s, high4s or low16s, got 'low8s'",
      ["--expnums 3"] = "expected a run; try: moonreel watch 3",
      ["a --save-to new"] = "try: without it, then moonreel log RUN --export wandb",
      ["a --raw --ema"] = "exclude each other", ["a --size 3"] = "expected HxW",
      ["a --preset low4s --size 8x8"] = "expected either it or --size",
      ["a --metric none.lua"] = "none.lua",
      ["a --once --prompt 'a {b}'"] = "prompt 'a {b}': its {...} is not a JSON object",
      ["a --once --prompt \xFF"] = "prompt '\\xff' is not UTF-8" } do
      local out, err, code = watch(words)
      assert.same({ "", 2 }, { out, code }, words)
      assert.matches(message, err, 1, true)
    end
  end)
end)
