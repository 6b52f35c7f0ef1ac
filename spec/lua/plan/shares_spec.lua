--- The bytes that ranks are planned to send are those that they send. State and ZeRO:
-- spec/lua/trainer/zero_spec.
-- Covers: lua/moonreel/trainer/encoders.lua
local clips = require "moonreel.comm.clips"
local compiled = require "moonreel.plan.compiled"
local folder = require "spec.support.folder"
local machine = require "moonreel.plan.machine"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local shares = require "moonreel.plan.shares"

-- Attention over tokens that four ranks share, forward, backward and gathered: the bytes that the
-- plan counts in the graph of the first rank, and those that it sent.
local RANKS = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local ops, sequence = require "moonreel.core.op", require "moonreel.nn.sequence"
local world = require("moonreel.comm").world { deadline_s = 100 }
local device, n = E.device("cpu", 1), 40
for _, dtype in ipairs { "bf16", "f32" } do
  for _, levels in ipairs { { 4, 1, 1 }, { 2, 2, 1 }, { 1, 4, 1 }, { 1, 2, 2 } } do
    local heads, inner, outer = table.unpack(levels)
    local seq = sequence.new { rank = world:rank(), heads = heads, inner = inner, outer = outer,
      comm = world }
    local g, x, from, to = G.graph(), {}, seq:share(n)
    for i, name in ipairs { "q", "k", "v" } do
      x[i] = g:input(name, dtype, { 2, 1, to - from, 4, 8 })
    end
    local o = seq:attend(g, x[1], x[2], x[3], n)
    g:output("all", seq:gather(g, o, 2, n))
    g:backward((ops.sum((ops.cast(o, { dtype = "f32" })), { axes = { 0, 1, 2, 3, 4 } })), x)
    local exec <close> = E.new(device, nil, {})
    local prog = exec:compile(g:finish())
    for _, name in ipairs { "q", "k", "v" } do
      prog:set(name, T.new(dtype, { 2, 1, to - from, 4, 8 }))
    end
    world:reset_counts()
    prog:run()
    exec:sync()
    local sent = 0
    for _, one in pairs(world:counts()) do
      sent = sent + one.bytes
    end
    if world:rank() == 0 then
      local said = require("moonreel.plan.shares").sent(prog:kinds())
      print(("case %s %d %d %d: %d %d"):format(dtype, heads, inner, outer, said, sent))
    end
    world:barrier()
  end
end
]]

describe("bytes of ranks that share tokens", function()
  it("are those that they send, for heads, in rings, and for both", function()
    local dir = folder.new()
    finally(function() dir:remove() end)
    local done = process.run({ process.program(), "-n", "4", dir:write("ranks.lua", RANKS) }, "",
      { deadline_s = 600 })
    assert.equal(0, done.exit, done.output)
    local seen = 0
    for how, said, sent in done.output:gmatch "case ([^:\n]+): (%d+) (%d+)" do
      assert.equal(tonumber(sent), tonumber(said), how)
      assert.is_true(tonumber(sent) > 0)
      seen = seen + 1
    end
    assert.equal(8, seen)
  end)

  it("are sent in parallel with compute", function()
    local rows = { { op = "linear" }, { op = "all_to_all" }, { op = "shift" }, { op = "attention" },
      { op = "gather_shares" } }
    assert.same({ { op = "linear" }, { op = "attention" } },
      require("moonreel.plan.shares").computed(rows))
  end)
end)

describe("ranks that share clips", function()
  -- the cost of a batch of pictures, and its programs
  local function planned(ranks, batch)
    local graphs <close> = compiled.new(machine.open "H200")
    local s = settings.bake("opensora-2.0/train/stage2", { "model.depth=1",
      "model.depth_single_blocks=1", "load_text_features=true",
      "plugin_config_ae.sp_size=" .. ranks })
    local models, b = graphs:of(s, 8, 1, 4), { frames = 1, height = 544, width = 1088,
      batch = batch }
    local sent, calls = 0, 0
    for _, row in ipairs(models.encoders.codec:encoders(1, 544, 1088)) do
      local rows = row.prog:times()
      sent, calls = sent + row.runs * shares.sent(rows), calls + row.runs * shares.calls(rows)
    end
    local seconds, bytes, _, by, talk = models.encoders:batch(b)
    return { seconds = seconds / 4, bytes = bytes, by = by, talk = talk.clips, sent = sent,
      calls = calls }
  end

  it("compute a part of each clip, launch all of its kernels, and exchange all of it", function()
    local one, four = planned(1, 4), planned(4, 4)
    assert.same({ bytes = 0, calls = 0 }, one.talk)
    assert.same({ bytes = 4 * four.sent, calls = 4 * four.calls }, four.talk)
    assert.is_true(four.calls > 1000 and four.bytes < one.bytes)
    -- the same convolutions, each rank a quarter of all of them
    assert.near(1, four.by["rate.convolution"] / one.by["rate.convolution"], 0.1)
    -- each rank launches the kernels of one rank, and the small kernels that join moments: the only
    -- additional time
    assert.is_true(four.by.launch_s > 4 * one.by.launch_s)
    local launches = (four.by.launch_s - one.by.launch_s) / 4
    assert.near(one.seconds + launches, four.seconds, 0.05 * one.seconds)
  end)

  it("are planned from two ranks on, and share no tokens", function()
    local share, how = clips.share, nil
    finally(function() clips.share = share end)
    clips.share = function(_, _, _, given) how = given end
    local s = settings.bake("tiny/vae", {})
    local function shared(ranks, by)
      how = nil
      shares.clips(s, { sequence = ranks, clips = by })
      return how
    end
    assert.is_nil(shared(1, "rows"))
    assert.same({ ranks = 2, rank = 0, trains = true }, shared(2, "rows"))
    -- the second of three has neighbours on both sides
    assert.same({ ranks = 3, rank = 1, trains = true }, shared(3, "rows"))
    assert.is_nil(shared(2))
    assert.is_nil(shares.sequence(s, { sequence = 2, clips = "rows" }))
    assert.is_nil(shares.sequence(s, { sequence = 1 }))
  end)

  it("exchange rows separately from tokens, each message at its time", function()
    local mesh, b = require("moonreel.plan.mesh").parse "8xH200", { frames = 1, height = 544,
      width = 1088, batch = 4, resolution = "768px" }
    local function seconds(ranks)
      local graphs <close> = compiled.new(mesh.machine)
      local p = require("moonreel.plan").open(settings.bake("opensora-2.0/train/stage2", {
        "model.depth=1", "model.depth_single_blocks=1", "load_text_features=true",
        "plugin_config_ae.sp_size=" .. ranks }), { mesh = mesh, compiled = graphs })
      local step = p:step(b)
      return p:seconds(b, step), step.encode_talk.clips
    end
    local one, four, talk = seconds(1), seconds(4)
    assert.equal(one.exchange_bytes + talk.bytes, four.exchange_bytes)
    local node = mesh.machine.node
    assert.near(talk.calls * (8.4e-6 + node.link_step_s) + talk.bytes / node.link,
      four.exchange - one.exchange, 1e-9)
  end)
end)

describe("ranks that share layers", function()
  it("share those of a T5 that encodes captions: its weights, two sums a layer", function()
    local compiled_plans <close> = compiled.new(machine.open "H200")
    local s = settings.bake("opensora-2.0/train/stage1", { "model.depth=1",
      "model.depth_single_blocks=1" })
    local bucket = { frames = 1, height = 256, width = 256, batch = 4 }
    local one, two = compiled_plans:of(s, 8, 1), compiled_plans:of(s, 8, 2)
    local norms = (24 * 2 + 1) * 4096
    assert.equal((one.pipe.text:elements() - norms) * 2 // 2,
      one.encoders.weights - two.encoders.weights)
    local seconds, _, _, _, talk = one.encoders:batch(bucket)
    assert.equal(0, talk.text.bytes)
    local of_two
    of_two, _, _, _, talk = two.encoders:batch(bucket)
    assert.near(1, of_two / seconds, 0.2)
    -- half of 512 positions, to add up and to gather, and once more after the last layer
    assert.equal(4 * (24 * 2 * 2 + 1) * 256 * 4096 * 2, talk.text.bytes)
  end)

  it("have a plan that reports a T5 which does not divide among them, and stays whole", function()
    local graphs <close> = compiled.new(machine.open "H200")
    local s = settings.bake("opensora-2.0/train/stage1", { "model.depth=1",
      "model.depth_single_blocks=1" })
    local function notes(ranks)
      return table.concat(graphs:of(s, 6, ranks).encoders.notes, "\n")
    end
    assert.matches("the text encoder has 64 attention heads %(num_heads%), which 3 ranks do not "
      .. "divide: each rank has all of its layers; try: a plugin_config.tp_size", notes(3))
    assert.is_nil(notes(2):find("do not divide", 1, true))
  end)

  it("divide heads, and rows that do not split a block of moments of 8 bits", function()
    local plain = settings.bake("opensora-1.2/stage3", {})
    local in_8 = settings.bake("opensora-1.2/stage3", { "optim.moment_bits=8" })
    -- 16 heads; 1152 columns are 18 times 64
    for ranks, may in pairs { [1] = { true, true }, [2] = { true, true }, [3] = { false, false },
      [4] = { true, false } } do
      assert.same(may, { shares.layers(plain, ranks), shares.layers(in_8, ranks) })
    end
  end)
end)
