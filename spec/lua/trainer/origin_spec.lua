--- Where a run begins in its data (start_epoch and start_step), and its log.
-- Covers: lua/moonreel/trainer/origin.lua lua/moonreel/trainer/samples.lua
-- lua/moonreel/data/place.lua lua/moonreel/trainer/progress.lua
local base = require "moonreel.core.base"
local demo_data = require "spec.support.demo_data"
local fails = require "spec.support.fails"
local place = require "moonreel.data.place"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

-- an epoch has six batches, which are three steps
local SMALL <const> = { "threads=1", "num_workers=1", "warmup_steps=2", "model.depth=1",
  "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
  "model.caption_channels=32", "accumulate=2", "steps=8",
  "bucket_config={32px: {1: (1.0, 50), 6: (1.0, 50)}}" }

describe("a run that begins at another place of its data", function()
  local out
  local function words(...)
    local list = table.move(SMALL, 1, #SMALL, 1, {})
    return table.move({ "outputs=" .. out, "data_path=" .. demo_data.path(), ... }, 1,
      2 + select("#", ...), #list + 1, list)
  end
  local function train(name, ...)
    trainer.run(settings.bake("tiny/demo", words("name=" .. name, ...)), { write = function() end })
  end
  -- by step: epoch, digest of the samples
  local function taken(name)
    local steps = {}
    for entry in run.entries(demo_data.run_dir(out, name)) do
      if entry.kind == "step" then
        steps[entry.step] = entry.epoch .. " " .. entry.keys
      end
    end
    return steps
  end

  setup(function()
    out = demo_data.scratch()
    train("whole", "ckpt_every=2", "keep_n_latest=-1")
  end)
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("takes the samples that a run from the beginning has there", function()
    local whole = taken "whole"
    for name, case in pairs { epoch = { 4, "@2", "start_epoch=1" },
        both = { 6, "@2", "start_epoch=1", "start_step=2" },
        step = { 5, "@4", "start_step=1" }, first = { 1, "@4", "start_epoch=0" },
        further = { 8, "@2", "start_epoch=1", "start_step=4" } } do
      local first = case[1]
      train(name, "load=" .. out .. "/001-whole" .. case[2], table.unpack(case, 3))
      local steps = taken(name)
      assert.is_nil(steps[first - 1], name)
      for n = first, 8 do
        assert.equal(whole[n], steps[n], name)
      end
    end
    assert.matches("^1 ", whole[4])
    assert.matches("^0 ", whole[3])
  end)

  it("is refused when there is no such place", function()
    local function refused(text, ...)
      local good, problem = pcall(train, "refused", "load=" .. out .. "/001-whole@2", ...)
      assert.is_false(good)
      assert.is_truthy(tostring(problem):find(text, 1, true), tostring(problem))
    end
    refused("start_epoch = 2, but the run has epochs 0 to 1; try: epochs = 3", "start_epoch=2",
      "epochs=2")
    refused("step 5 of epoch 1 is step 8 of the run, which has 8; try: a larger steps or epochs",
      "start_epoch=1", "start_step=5")
    refused("start_step = 1 contradicts start_from_scratch", "start_step=1",
      "start_from_scratch=true")
    assert.is_nil(demo_data.run_dir(out, "refused"))
    fails("MR_E_USAGE", "several sources, .*; try: start_epoch", place.epoch,
      "moonreel blend 1\nsource a\nmoonreel order 1\nepoch 1\n")
  end)

  it("writes each line with the time, and keeps a log for each rank", function()
    local said = demo_data.moonreel("train", "tiny/demo", "-n", "2",
      table.unpack(words("name=said", "steps=2", "log_every=1")))
    local kept = base.read_file(demo_data.run_dir(out, "said") .. "/log/rank-0.log")
    local lines = 0
    for line in kept:gmatch "[^\n]+" do
      assert.matches("^%d%d%d%d%-%d%d%-%d%d %d%d:%d%d:%d%d  %S", line)
      assert.is_truthy(said:find(line .. "\n", 1, true), line)
      lines = lines + 1
    end
    assert.matches("  run .*  step 1/2 .*  step 2/2 .*  done: step 2", kept)
    assert.equal(lines, select(2, said:gsub("\n%d+%-%d+%-%d+ ", "")) + 1)
    local other = base.read_file(demo_data.run_dir(out, "said") .. "/log/rank-1.log")
    assert.matches("  step 2/2 ", other)
  end)

  it("appends to its log, which also holds the error that ended it", function()
    train("ended", "steps=1")
    local dir = demo_data.run_dir(out, "ended")
    local good = pcall(train, "ended", "load=" .. dir, "model.mlp_ratio=2")
    assert.is_false(good)
    assert.matches("done: step 1, .*mlp_ratio: 4.* when the checkpoint was made, 2",
      base.read_file(dir .. "/log/rank-0.log"))
  end)
end)
