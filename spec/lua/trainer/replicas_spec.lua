--- A flipped bit in a copy of data that several ranks hold is detected, and so is the rank.
-- Covers: lua/moonreel/trainer/replicas.lua
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

-- A run that compares replicas after every update. After a step, one rank flips the lowest bit of
-- an element.
local TRAIN = [[
local T = require "moonreel.core.tensor"
local loop, replicas = require "moonreel.trainer.loop", require "moonreel.trainer.replicas"
local rank, region, at, words = tonumber(arg[1]), arg[2], tonumber(arg[3]), {}
local step = loop.step
replicas.every = 1
function loop.step(r)
  local more = step(r)
  if r.step == 2 and r.team.rank == rank then
    local bits = r.exec:read(region, "i32", at, { 1 }):totable()[1]
    r.exec:write(region, at, T.from({ 1 }, { bits ~ 1 }, "i32"))
  end
  return more
end
table.move(arg, 4, #arg, 1, words)
local good, problem = pcall(require("moonreel.cli.train").run, words)
io.stderr:write(good and "" or (problem.reported and "" or problem.message) .. "\n")
os.exit(good and 0 or problem.exit)
]]

describe("replicas", function()
  local dir, script
  setup(function()
    dir = folder.new()
    script = dir:write("train.lua", TRAIN)
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  -- exit code and output of three steps, with a flipped bit on a rank
  local function train(size, rank, region, at, ...)
    local done = process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program(), "-n",
      tostring(size), script, tostring(rank), region, tostring(at), "tiny/demo",
      "dataset.data_path=" .. demo_data.path(), "outputs=" .. dir.path, "steps=3", "dtype=fp32",
      "warmup_steps=2", "threads=1", "num_workers=1", "model.depth=1", "model.hidden_size=32",
      "model.num_heads=2", "text_encoder.width=32", "text_encoder.rows=1024", "ckpt_every=1",
      "model.caption_channels=32", 'bucket_config={["32px"]={[6]={1.0,2}}}', "name=run", ... }, "",
      { deadline_s = 600, output_bytes = 1 << 20 })
    return done.exit, done.output
  end

  it("name the one of three ranks that differs, and its state is not saved", function()
    -- in the part that this rank owns: the two other ranks agree and count as right
    local exit, report = train(3, 1, "w", 50000, "plugin_config.zero_stage=0")
    assert.equal(6, exit, report)
    assert.matches("step 2: rank 1 has other bits of 'w' in bucket 1 than the others: [%w_. ]+\n"
      .. "  they were last equal after update 1; try: load a checkpoint from that time or earlier",
      report)
    local found = demo_data.run_dir(dir.path, "run")
    assert.same({ 1 }, require("moonreel.ckpt").steps(found))
    local seen, last
    for entry in run.entries(found) do
      seen, last = entry.kind == "replicas" and entry or seen, entry
    end
    assert.same({ 2, 1 }, { seen.step, seen.compared })
    -- the difference ended the run
    assert.equal("error", last.kind)
    assert.matches("rank 1 has other bits of 'w'", last.text)
  end)

  it("of two ranks count the owner's as right, and cover all that two ranks hold", function()
    local exit, report = train(2, 1, "adam_m", 100, "plugin_config.zero_stage=0")
    assert.equal(6, exit, report)
    assert.matches("rank 1 has other bits of 'adam_m'", report)
    exit, report = train(2, 0, "frozen", 3, "plugin_config.zero_stage=3")
    assert.equal(6, exit, report)
    assert.matches("rank 1 has other bits of 'frozen' than rank 0, and one of the two is right",
      report)
    -- only one rank holds its own part, so nothing is compared
    exit, report = train(2, 0, "w.1", 3, "plugin_config.zero_stage=3")
    assert.equal(0, exit, report)
  end)
end)
