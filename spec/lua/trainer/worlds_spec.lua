--- A run that resumes with any other number of ranks, whatever part of the state each keeps, is the
-- same run. Each number of ranks is left and taken once. MOONREEL_EVERY=1 takes all pairs,
-- MOONREEL_STEPS=50 longer runs.
-- Covers: lua/moonreel/trainer/state.lua lua/moonreel/trainer/setup.lua
-- lua/moonreel/trainer/samples.lua
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local program = require "spec.support.program"
local run = require "moonreel.run"

local STEPS = math.tointeger(os.getenv("MOONREEL_STEPS")) or 4
local EVERY = os.getenv("MOONREEL_EVERY") ~= nil
local SIZES = { 1, 2, 3, 4, 8 }
-- the part of the state that each rank keeps: at the beginning, and after the resume
local BEGUN = { 0, 1, 2, 3, [8] = 3 }
local RESUMED = { 3, 2, 3, 0, [8] = 1 }
-- which runs that many ranks resume
local FROM = { { 2 }, { 2, 4 }, { 8 }, { 4, 3 }, [8] = { 1 } }

-- runs one after another by the same ranks
local TRAIN = [[
for i = 1, #arg do
  local words = {}
  for word in arg[i]:gmatch "[^\t]+" do
    words[#words + 1] = word
  end
  assert(require("moonreel.cli.train").run(words) == 0)
end
]]

describe("a run by 1, 2, 3, 4 or 8 ranks", function()
  local dir = folder.new()
  local script = dir:write("train.lua", TRAIN)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  -- runs of these words with `n` ranks: four micro-batches a step for any number of ranks
  local function train(size, runs)
    local list = { process.program(), "-n", tostring(size), script }
    for _, words in ipairs(runs) do
      list[#list + 1] = table.concat({ "tiny/demo", "dtype=fp32", "threads=1",
        "dataset.data_path=" .. demo_data.path(), "warmup_steps=1", "num_workers=1",
        "model.depth=1", "model.hidden_size=16", "model.num_heads=1", "text_encoder.width=16",
        "text_encoder.num_heads=1", "text_encoder.rows=64", "model.caption_channels=16",
        "outputs=" .. dir.path,
        'bucket_config={["32px"]={[1]={0.0,1},[6]={1.0,1}}}', "log_every=1000",
        "virtual_ranks=4", "plugin_config.reduce_each=false", "steps=" .. STEPS,
        table.unpack(words) }, "\t")
    end
    program.output(list)
  end

  -- losses of the second half of a run, by step
  local function losses(name)
    local found = {}
    for entry in run.entries(demo_data.run_dir(dir.path, name)) do
      if entry.kind == "step" and entry.step > STEPS // 2 then
        found[entry.step] = entry.loss
      end
    end
    return found
  end

  it("resumes with any of these numbers, in step", function()
    local begun = {}
    for _, size in ipairs(SIZES) do
      train(size, { { "name=of" .. size, "ckpt_every=" .. STEPS // 2,
        "plugin_config.zero_stage=" .. BEGUN[size] } })
      begun[size] = demo_data.run_dir(dir.path, "of" .. size)
    end
    local want = losses "of1"
    for _, size in ipairs(SIZES) do
      local runs, taken = {}, EVERY and SIZES or FROM[size]
      for k, from in ipairs(taken) do
        runs[k] = { ("name=%d-%d"):format(from, size),
          ("load=%s@%d"):format(begun[from], STEPS // 2),
          "plugin_config.zero_stage=" .. RESUMED[size] }
      end
      train(size, runs)
      for _, from in ipairs(taken) do
        local got = losses(("%d-%d"):format(from, size))
        for step = STEPS // 2 + 1, STEPS do
          assert.near(1, got[step] / want[step], 1e-5, ("%d to %d"):format(from, size))
        end
        if from == size then
          -- bit for bit
          assert.same(losses("of" .. size), got)
        end
      end
    end
  end)
end)

describe("the micro-batches of a step", function()
  -- of a run with these ranks; `before`: of the checkpoint that it resumes from
  local function counted(ranks, settings, before, scratch)
    local r = { settings = settings, mesh = { data = ranks }, notes = {}, found = before and {},
      scratch = scratch, source = { manifest = { run_state = before } } }
    require("moonreel.trainer.samples").count_micros(r)
    return { r.step_ranks, r.micros, #r.notes }
  end
  local plain, virtual = { virtual_ranks = 1, accumulate = 3 },
    { virtual_ranks = 8, accumulate = 1 }

  it("are those of the ranks with which the run began", function()
    assert.same({ 2, 6, 0 }, counted(2, plain))
    assert.same({ 2, 6, 0 }, counted(4, plain, { step_ranks = 2 }))
    -- a checkpoint of one rank recorded no ranks
    assert.same({ 1, 3, 1 }, counted(4, plain, {}))
    assert.same({ 4, 12, 0 }, counted(4, plain, { step_ranks = 2 }, true))
    assert.same({ 8, 8, 0 }, counted(3, virtual, { step_ranks = 2 }))
    assert.same({ 8, 8, 1 }, counted(9, virtual))
  end)
end)
