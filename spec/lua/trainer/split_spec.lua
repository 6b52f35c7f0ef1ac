--- Runs whose ranks share layers: the steps, losses, norms and checkpoints of one rank, whatever
-- else they share; a run that goes on with other ranks. MOONREEL_EVERY: with every stage of ZeRO,
-- and over 50 steps.
-- Covers: lua/moonreel/comm/mesh.lua lua/moonreel/ckpt/cut.lua lua/moonreel/optim/ranks.lua
--   lua/moonreel/trainer/setup.lua lua/moonreel/trainer/state.lua
local ckpt = require "moonreel.ckpt"
local demo_data = require "spec.support.demo_data"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local small_mmdit_run = require "spec.support.small_mmdit_run"

local EVERY <const> = os.getenv "MOONREEL_EVERY" ~= nil
-- f32 sums in another order, over few steps
local LOSS <const>, NORM <const> = 1e-6, 1e-5

describe("ranks that share layers", function()
  local dir, words, runs
  setup(function()
    dir, words = small_mmdit_run.new()
    runs = dir.path .. "/runs"
  end)
  teardown(function() dir:remove() end)

  local function start(n, name, recipe, given, ...)
    local list = { "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program() }
    if n > 1 then
      table.move({ "-n", tostring(n) }, 1, 2, #list + 1, list)
    end
    for _, word in ipairs { "train", ("%s/%s.lua"):format(dir.path, recipe), "name=" .. name,
      "virtual_ranks=4", "steps=3", ... } do
      list[#list + 1] = word
    end
    table.move(given, 1, #given, #list + 1, list)
    return process.run(list, "", { deadline_s = 300 })
  end

  -- four heads; 3 steps of 4 micro-batches
  local function train(n, name, ...)
    local done = start(n, name, "mmdit", words, "model.num_heads=4", "model.axes_dim={2,2,4}", ...)
    assert.equal(0, done.exit, done.output)
  end

  local function steps(name)
    local list = {}
    for line in io.lines(demo_data.run_dir(runs, name) .. "/journal.jsonl") do
      local row = json.decode(line)
      if row.kind == "step" then
        list[row.step] = row
      end
    end
    return list
  end

  local function near(want, got, first, last)
    for i = first, last do
      assert.same(want[i].samples, got[i].samples)
      assert.near(1, got[i].loss / want[i].loss, LOSS)
      assert.near(1, got[i].grad_norm / want[i].grad_norm, NORM)
    end
  end

  it("train as one rank does: alone, with ZeRO, and where tokens are shared, too", function()
    train(1, "one")
    local ways = { by4 = { 4, "tp_size=4" }, zero1 = { 4, "tp_size=2", "zero_stage=1" },
      zero3 = { 4, "tp_size=2", "zero_stage=3" }, heads = { 4, "tp_size=2", "sp_size=2",
        "zero_stage=2" }, ring = { 4, "tp_size=2", "sp_size=2",
        "sequence_parallelism_mode=ring_attn", "zero_stage=3" } }
    if EVERY then
      ways.by2, ways.zero0 = { 2, "tp_size=2" }, { 4, "tp_size=2", "zero_stage=0" }
      ways.zero2 = { 4, "tp_size=2", "zero_stage=2" }
    end
    for name, way in pairs(ways) do
      local list = { name == "ring" and "grad_checkpoint=true" or nil }
      for i = 2, #way do
        list[#list + 1] = "plugin_config." .. way[i]
      end
      train(way[1], name, table.unpack(list))
      near(steps "one", steps(name), 1, 3)
    end
    -- its checkpoint holds whole parameters, in the shapes of one rank's
    local a <close> = ckpt.newest(demo_data.run_dir(runs, "one"))
    local b <close> = ckpt.newest(demo_data.run_dir(runs, "ring"))
    assert.equal(#a:names(), #b:names())
    for _, name in ipairs(a:names()) do
      assert.same(a:info(name).shape, b:info(name).shape, name)
      local d = a:compare(b, name)
      -- where both moments are next to nothing an update is the learning rate, either way
      assert.is_true(d.max_abs < 4e-3 and d.distance < 2e-3, name)
    end
  end)

  it("go on where others have stopped: one rank, two groups of two, four, one", function()
    local each = EVERY and 12 or 1
    local last = 4 * each + (EVERY and 2 or 0)
    train(1, "whole", "steps=" .. last, "epochs=100")
    train(1, "parts", "steps=" .. each, "epochs=100", "ckpt_every=1000")
    local load = "load=" .. demo_data.run_dir(runs, "parts")
    local function go_on(n, to, ...)
      train(n, "parts", load, "epochs=100", "steps=" .. to, ...)
    end
    go_on(4, 2 * each, "plugin_config.tp_size=2")
    go_on(4, 3 * each, "plugin_config.tp_size=4", "plugin_config.zero_stage=2")
    go_on(1, last, "plugin_config.tp_size=1")
    local want, got = steps "whole", steps "parts"
    for i = 1, last do
      assert.same(want[i].samples, got[i].samples)
      assert.near(1, got[i].loss / want[i].loss, 1e-5)
    end
  end)

  it("share those of STDiT3, with averages", function()
    local given = table.move(words, 1, #words - 1, 1, {})
    local function small(n, name, ...)
      local done = start(n, name, "small", given, "dtype=fp32", "model.num_heads=4",
        "optim.ema_decay=0.9", ...)
      assert.equal(0, done.exit, done.output)
    end
    small(1, "stdit")
    small(4, "stdit4", "plugin_config.tp_size=2", "plugin_config.zero_stage=2")
    near(steps "stdit", steps "stdit4", 1, 3)
  end)

  it("are refused where they do not divide the heads", function()
    local done = start(3, "odd", "mmdit", words, "model.num_heads=4", "model.axes_dim={2,2,4}",
      "plugin_config.tp_size=3")
    assert.equal(2, done.exit, done.output)
    assert.matches("plugin_config%.tp_size=3: tp_size = 3: 3 ranks cannot share 4 attention heads "
      .. "%(num_heads%) of model%.type = flux; try: tp_size = 2 or 4\n", done.output)
  end)
end)
