--- A run of many ranks is the run of one rank: the same losses, order and weights. It resumes with
-- any number of ranks, and its ranks end together.
-- Covers: lua/moonreel/trainer/loop.lua lua/moonreel/trainer/setup.lua lua/moonreel/cli/train.lua
-- Covers: lua/moonreel/trainer/statistics.lua lua/moonreel/trainer/stages.lua
-- Covers: lua/moonreel/comm/mesh.lua
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

-- steps of three micro-batches for any number of ranks; a very small model
local SMALL = { "steps=4", "dtype=fp32", "virtual_ranks=3", "warmup_steps=2", "threads=1",
  "num_workers=1", "model.depth=1", "model.hidden_size=32", "model.num_heads=2",
  "text_encoder.width=32", "model.caption_channels=32", "log_every=1", "outputs=" .. out,
  'bucket_config={["32px"]={[1]={1.0,4},[6]={1.0,2}}}' }

-- the command line of a run with `n` ranks
local function words(ranks, name, ...)
  local list = { process.program(), "train", "tiny/demo",
    "dataset.data_path=" .. demo_data.path(), "name=" .. name, "-n", tostring(ranks),
    -- Muon amplifies the rounding of sums over ranks
    "optim.type=adamw", "optim.muon.lr=none" }
  table.move(SMALL, 1, #SMALL, #list + 1, list)
  return table.move({ ... }, 1, select("#", ...), #list + 1, list)
end

-- runs them; standard error is in the output
local function start(list)
  return process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', table.unpack(list) }, "",
    { deadline_s = 600, output_bytes = 1 << 20 })
end

local function train(ranks, name, ...)
  local done = start(words(ranks, name, ...))
  assert.equal(0, done.exit, done.output)
  return done.output
end

-- lines of one kind in a run's journal
local function lines(name, kind)
  local list = {}
  for entry in run.entries(demo_data.run_dir(out, name)) do
    list[#list + 1] = entry.kind == kind and entry or nil
  end
  return list
end

-- the run of one rank without -n; other specs compare with it
local alone
local function run_alone()
  if not alone then
    train(1, "alone")
    alone = lines("alone", "step")
  end
  return alone
end

local function newest(name) return demo_data.newest(out, name) end

-- the differences of the tensors of two checkpoints, which must have the same names
local function differences(a, b)
  local names, others, found = a:names(), b:names(), {}
  table.sort(names)
  table.sort(others)
  assert.same(names, others)
  for i, name in ipairs(names) do
    found[i] = a:compare(b, name)
    found[i].name = name
  end
  return found
end

describe("a run by many ranks", function()
  it("takes the steps of one rank: the same samples, losses, norms and weights", function()
    local want = run_alone()
    -- in the shell of a job of four tasks, none of which srun has started
    local done = start { "/usr/bin/env", "SLURM_PROCID=0", "SLURM_NTASKS=4",
      table.unpack(words(2, "by2", "ckpt_every=2")) }
    assert.equal(0, done.exit, done.output)
    assert.matches(" by 2 ranks\n", done.output)
    local got = lines("by2", "step")
    assert.equal(4, #got)
    for i, line in ipairs(got) do
      assert.same({ want[i].samples, want[i].batches, want[i].weight },
        { line.samples, line.batches, line.weight })
      assert.near(1, line.loss / want[i].loss, 1e-6)
      assert.near(1, line.grad_norm / want[i].grad_norm, 2e-6)
      assert.near(want[i].t, line.t, 1e-9)
    end
    local a <close> = newest "alone"
    local b <close> = newest "by2"
    assert.equal(2, b.manifest.world.ranks)
    assert.equal(a.manifest.sampler, b.manifest.sampler)
    for _, one in ipairs(differences(a, b)) do
      -- where both moments are near zero an update is the learning rate with either sign
      assert.is_true(one.max_abs < 2e-3, one.name)
    end
  end)

  it("takes the same steps when ranks share the tokens of a batch", function()
    local want = run_alone()
    for name, how in pairs { heads = { "--sp-size", "2", "ckpt_every=2" }, ring = { "sp_size=2",
        "plugin_config.sequence_parallelism_mode=ring_attn", "plugin_config.zero_stage=3" },
        both = { "sp_size=4", "plugin_config.ulysses_size=2", "grad_checkpoint=true" } } do
      train(4, name, table.unpack(how))
      local got = lines(name, "step")
      assert.equal(4, #got)
      for i, line in ipairs(got) do
        assert.same({ want[i].samples, want[i].batches, want[i].weight, want[i].bytes },
          { line.samples, line.batches, line.weight, line.bytes }, name)
        assert.near(1, line.loss / want[i].loss, 1e-6, name)
        assert.near(1, line.grad_norm / want[i].grad_norm, 2e-6, name)
        assert.near(want[i].t, line.t, 1e-9, name)
      end
    end
    -- ranks with batches of their own resume the run
    train(3, "apart", "load=" .. demo_data.run_dir(out, "heads") .. "@2", "sp_size=1")
    local got = lines("apart", "step")
    assert.equal(2, #got)
    for i, line in ipairs(got) do
      assert.near(1, line.loss / want[i + 2].loss, 1e-5)
    end
  end)

  it("refuses ranks that cannot share tokens, and proposes what can", function()
    for how, report in pairs {
        ["sp_size=3"] = "sp_size=3: 4 ranks cannot be divided into groups of 3 that "
          .. "share their tokens; try: sp_size = 2\n",
        ["sp_size=4"] = "4 ranks cannot share 2 attention heads; try: sp_size = 2, or "
          .. "sequence_parallelism_mode = \"ring_attn\"\n" } do
      local done = start(words(4, "refused", how))
      assert.equal(2, done.exit, done.output)
      assert.matches(report, done.output)
    end
  end)

  it("refuses a rank that has another recipe or index, and names the rank", function()
    local script = out .. "/other.lua"
    base.replace_file(script, [[
      local rank = os.getenv "MOONREEL_RANK"
      if arg[1] == "index" and rank == "1" then
        local data = require "moonreel.data"
        local open = data.open
        function data.open(...)
          local index = open(...)
          return setmetatable({ meta = { fp_order = "others", path = index.meta.path },
            close = function() index:close() end }, { __index = index })
        end
      end
      local words = table.move(arg, 2, #arg, 1, {})
      words[#words + 1] = arg[1] == "recipe" and rank == "1" and "optim.lr=0.5" or nil
      require("moonreel.cli.train").run(words)
    ]])
    for what, report in pairs {
        recipe = { 3, "the recipe has other values here %(%x+%) than on rank 0 %(%x+%); try: the "
          .. "same recipe files" },
        index = { 4, "demo%.mrx: the index holds other samples here %(others%) than on rank 0 %(" },
      } do
      local list = words(1, "other")
      table.remove(list, 2)
      local done = start { list[1], "-n", "2", script, what, table.unpack(list, 2) }
      assert.equal(report[1], done.exit, done.output)
      assert.matches("moonreel: rank 1: [^\n]*" .. report[2], done.output)
      assert.is_nil(demo_data.run_dir(out, "other"))
    end
  end)

  it("reports when a step has more micro-batches than an epoch", function()
    assert.matches("a step has 3 micro%-batches, but an epoch has only 1, so a step trains samples "
      .. "several times; try: fewer ranks", train(3, "several", "steps=1",
      'bucket_config={["32px"]={[1]={1.0,200},[6]={0.0,1}}}'))
  end)

  it("resumes bit for bit, whatever part of the state each rank keeps", function()
    -- all of it until step 2, then its part
    train(2, "halves", "plugin_config.zero_stage=0", "steps=2")
    assert.matches("ZeRO 1: a rank keeps %S+ %a+ of the state; it sends %S+ %a+ a step, in 1 ",
      train(2, "halves", "plugin_config.zero_stage=1", "load=latest"))
    local a <close> = newest "by2"
    local b <close> = newest "halves"
    for _, one in ipairs(differences(a, b)) do
      assert.equal(0, one.differing, one.name)
    end
  end)

  it("resumes on other ranks in step, and reports ranks without work", function()
    local want = run_alone()
    local report = train(4, "then4", "load=" .. demo_data.run_dir(out, "by2") .. "@2")
    assert.matches("1 of 4 ranks have nothing to do: a step has 3 micro%-batches "
      .. "%(made for 3 ranks, accumulate = 1%); try: virtual_ranks=4", report)
    local got = lines("then4", "step")
    assert.equal(2, #got)
    for i = 3, 4 do
      local line = got[i - 2]
      assert.equal(i, line.step)
      assert.near(1, line.loss / want[i].loss, 1e-5)
    end
  end)

  it("keeps the steps of the first ranks when the checkpoint does not record them", function()
    train(2, "two", "virtual_ranks=1", "steps=2")
    local report = train(3, "two", "virtual_ranks=1", "steps=3", "load=latest", "plugin=zero2")
    assert.matches("1 of 3 ranks have nothing to do: a step has 2 micro%-batches", report)
    assert.equal(2, lines("two", "step")[3].batches)
  end)

  it("continues past the end of an epoch inside a step", function()
    -- 7 micro-batches an epoch, 3 a step; with a rank for each they are reduced after backward
    local large = 'bucket_config={["32px"]={[1]={1.0,25},[6]={1.0,50}}}'
    train(1, "over1", large, "steps=6")
    train(3, "over3", large, "steps=6")
    local want, got = lines("over1", "step"), lines("over3", "step")
    assert.equal(6, #got)
    assert.same({ 0, 1, 2 }, { got[2].epoch, got[3].epoch, got[5].epoch })
    for i, line in ipairs(got) do
      assert.same({ want[i].samples, want[i].epoch }, { line.samples, line.epoch })
      assert.near(1, line.loss / want[i].loss, 1e-5)
    end
  end)

  it("saves on all ranks when it is asked to stop", function()
    local stopped = process.run({ "/bin/sh", "-c", [[
      : > "$0.log"
      "$@" >> "$0.log" 2>&1 & pid=$!
      until grep -q "  step 2/" "$0.log" || ! kill -0 $pid; do sleep 0.02; done
      kill -TERM $pid
      wait $pid
    ]], out .. "/stop", table.unpack(words(2, "stopped", "steps=100000")) }, "",
      { deadline_s = 600 })
    local report = base.read_file(out .. "/stop.log")
    assert.equal(143, stopped.exit, report)
    assert.matches("stop requested: saving step %d+", report)
    local stop = lines("stopped", "stop")[1]
    local c <close> = newest "stopped"
    assert.equal(stop.step, c.step)
    assert.equal(2, c.manifest.world.ranks)
  end)

  it("reports an error once", function()
    local done = start(words(2, "wrong", "model.depth=x"))
    assert.matches("^moonreel: [^\n]*model%.depth: [^\n]*\n", done.output)
    assert.is_nil(done.output:find("rank", 1, true))
    done = start(words(2, "wrong", "dataset.data_path=/nowhere.mrx"))
    assert.equal(4, done.exit)
    assert.matches("^moonreel: rank 0: [^\n]*/nowhere%.mrx[^\n]*\n.-moonreel: rank 0 ended with "
      .. "exit code 4; all 2 ranks have ended\n$", done.output)
    assert.is_nil(done.output:find("rank 1", 1, true), done.output)
    assert.is_nil(demo_data.run_dir(out, "wrong"))
  end)
end)
