--- Runs whose ranks share layers have the steps, losses, norms and checkpoints of one rank,
-- whatever else the ranks share, and resume with other ranks. MOONREEL_EVERY tests all ZeRO stages
-- over 50 steps.
-- Covers: lua/moonreel/comm/mesh.lua lua/moonreel/ckpt/cut.lua lua/moonreel/optim/ranks.lua
--   lua/moonreel/trainer/setup.lua lua/moonreel/trainer/state.lua
local E = require "moonreel.core.exec"
local ckpt = require "moonreel.ckpt"
local coded = require "moonreel.ckpt.coded"
local cut = require "moonreel.ckpt.cut"
local demo_data = require "spec.support.demo_data"
local json = require "moonreel.core.json"
local nn_split = require "moonreel.nn.split"
local ops = require "moonreel.core.op"
local pipeline = require "moonreel.models.pipeline"
local process = require "moonreel.core.process"
local regions = require "moonreel.optim.regions"
local settings = require "moonreel.settings"
local small_mmdit_run = require "spec.support.small_mmdit_run"
local state = require "moonreel.trainer.state"
local tensor = require "moonreel.core.tensor"

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

  it("train as one rank does: alone, with ZeRO, and when tokens are shared, too", function()
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
    -- the checkpoint holds whole parameters, in the shapes of one rank
    local a <close> = ckpt.newest(demo_data.run_dir(runs, "one"))
    local b <close> = ckpt.newest(demo_data.run_dir(runs, "ring"))
    assert.equal(#a:names(), #b:names())
    for _, name in ipairs(a:names()) do
      assert.same(a:info(name).shape, b:info(name).shape, name)
      local d = a:compare(b, name)
      -- where both moments are near zero an update is the learning rate with either sign
      assert.is_true(d.max_abs < 4e-3 and d.distance < 2e-3, name)
    end
  end)

  it("resume the runs of one rank, two groups of two, four, and one again", function()
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

  it("share layers of STDiT3, with averages", function()
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

  -- each rank has rows of 64 numbers, for which one scale of second moments stands
  local function in_8(n, name, ...)
    local done = start(n, name, "mmdit", words, "model.hidden_size=128",
      "model.axes_dim={16,24,24}", "model.depth_single_blocks=1", "optim.moment_bits=8",
      "ckpt_every=1000", ...)
    assert.equal(0, done.exit, done.output)
  end

  -- second moments of 8 bits as each of two ranks holds them, and as cut from those of one
  local function moments_of(rank, source)
    local split = nn_split.new { ranks = 2, at = rank }
    local s = settings.from_json(source.manifest.settings)
    local pipe = pipeline.of(s, "f32", nil, split)
    local run <close> = E.new(E.device("cpu", 1), pipe.params,
      { regions = regions.of(s, nil, "f32", nil, pipe.params) })
    state.load(run, pipe.params, source)
    local moment, count = regions.moments[2], 0
    local of = regions.coded[moment.name]
    for _, p in ipairs(pipe.params:list()) do
      if p.cut and not p.frozen then
        count = count + 1
        local block = of.how.block
        local codes = run:read(of.codes.name, "u8", p.offset, { p.count })
        local scale = run:read(of.scale.name, "f32", p.offset // block, { p.count // block })
        local whole = coded.decode(source, moment, p.name, 0, tensor.count(p.shape))
        assert.equal(cut.take(p, whole:reshape(p.shape)):bytes(),
          ops.decode_dynamic8(codes, scale, of.how):bytes(), p.name)
      end
    end
    return count
  end

  it("keep moments in 8 bits with the same numbers for any number of ranks", function()
    in_8(1, "in8")
    in_8(4, "in8by4", "plugin_config.tp_size=2", "plugin_config.zero_stage=1")
    near(steps "in8", steps "in8by4", 1, 3)
    for rank = 0, 1 do
      for _, name in ipairs { "in8", "in8by4" } do
        local source <close> = ckpt.newest(demo_data.run_dir(runs, name))
        assert.is_true(moments_of(rank, source) > 20)
      end
    end
    in_8(1, "in8parts", "steps=1")
    local load = "load=" .. demo_data.run_dir(runs, "in8parts")
    in_8(2, "in8parts", load, "steps=2", "plugin_config.tp_size=2")
    in_8(1, "in8parts", load, "plugin_config.tp_size=1")
    near(steps "in8", steps "in8parts", 1, 3)
  end)

  it("are refused when moments of 8 bits would share a scale with another rank", function()
    local done = start(4, "odd8", "mmdit", words, "model.hidden_size=128", "model.num_heads=4",
      "model.axes_dim={8,12,12}", "optim.moment_bits=8", "plugin_config.tp_size=4")
    assert.equal(3, done.exit, done.output)
    local form = "optim.moment_bits = 8: 64 numbers of a row have one scale, and with "
      .. "plugin_config.tp_size = 4 a rank has rows of 32 of 'double_blocks.0.img_mod.lin.bias'"
      .. "; try: plugin_config.tp_size = 2, or optim.moment_bits = 32"
    assert.is_truthy(done.output:find(form, 1, true), done.output)
  end)

  it("are refused when their number does not divide the heads", function()
    local done = start(3, "odd", "mmdit", words, "model.num_heads=4", "model.axes_dim={2,2,4}",
      "plugin_config.tp_size=3")
    assert.equal(2, done.exit, done.output)
    assert.matches("plugin_config%.tp_size=3: tp_size = 3: 3 ranks cannot share 4 attention heads "
      .. "%(num_heads%) of model%.type = flux; try: tp_size = 2 or 4\n", done.output)
  end)
end)
