--- Ranks that update together compute the same bits with all state on each (ZeRO 0) or a part of
-- the state (ZeRO 1), of the gradients (ZeRO 2) and of the weights (ZeRO 3), and what one rank
-- computes with all samples.
-- Covers: core/comm/op_group.c core/cpu/collective.c core/op/over_ranks.c core/graph/shards.c
local base = require "moonreel.core.base"
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- A model of two layers in one dtype, with 54,320 weights, so that chunks of 64 KiB belong to
-- several ranks, or one has only padding. Each ZeRO stage trains it on points that the ranks
-- divide. It prints a hash of the weights, the last norm, bytes of state, bytes sent per step, and
-- the op log of micro-steps. Some cases have several buckets, or hosts of some ranks; the gradients
-- are reduced after backward or by the update.
local TRAIN = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local nn, ops, optim = require "moonreel.nn", require "moonreel.core.op", require "moonreel.optim"
local ranks, regions = require "moonreel.optim.ranks", require "moonreel.optim.regions"
local world = require("moonreel.comm").world { deadline_s = 100 }
local dtype, elements, node, behind = arg[1], tonumber(arg[2]), tonumber(arg[3]),
  arg[4] == "behind"
local width, steps, granule = tonumber(arg[5]), tonumber(arg[6]), tonumber(arg[7])
local size, rank, points = world:size(), world:rank(), 24
local device <close> = E.device(os.getenv "MOONREEL_DEVICE" or "cpu", 1)

-- this rank's points
local mine = points // size
local xs = T.new("f32", { points, 4 }):fill_normal(1, "x"):slice(0, rank * mine, (rank + 1) * mine)
local ys = T.new("f32", { points, 48 }):fill_normal(1, "y"):slice(0, rank * mine, (rank + 1) * mine)

local function train(stage, behind)
  local params = G.params(dtype)
  local scope = nn.scope(params)
  local first, second = nn.Linear(scope, "first", 4, width), nn.Linear(scope, "second",
    width, 48)
  params:seal { ranks = size, elements = elements, granule = granule }
  local team = ranks.new(params, world, { local_ranks = node > 0 and node or nil, stage = stage })
  behind = behind or team.gradients
  local g = G.graph(params)
  local x, y = g:input("x", dtype, { mine, 4 }), g:input("y", "f32", { mine, 48 })
  local off = ops.cast(second(g, (ops.silu(first(g, x)))), { dtype = "f32" }) - y
  g:backward((ops.sum(off * off, { axes = { 0, 1 } })))
  if behind then
    team:reduce(g)
  end
  g:finish()
  local exec <close> = E.new(device, params, { regions = regions.adamw { ema = true, dtype = dtype,
    parts = stage > 0 and team:owned() or nil, gradients = team.gradients,
    weights = team.weights } })
  exec:init(1)
  local program, update = exec:compile(g), optim.new(exec, params, team, behind)
  local idle = exec:compile(team:echo(params, g, behind))
  program:set("x", xs:to(dtype))
  program:set("y", ys:clone())
  local norm
  world:reset_counts()
  for step = 1, steps do
    if arg[4] == "behind" and rank == size - 1 and step == steps then
      -- this one has nothing to add
      idle:run()
    else
      program:run()
    end
    norm = update:step { lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1,
      max_norm = 1, ema_decay = 0.9, step = step, grad_scale = 1 / points }
  end
  local sent, state = 0, 0
  for _, one in pairs(world:counts()) do
    sent = sent + one.bytes
  end
  for _, row in ipairs(exec:regions()) do
    state = state + (row.shared and 0 or row.bytes)
  end
  -- the weights as a graph sees them
  local see, bytes = G.graph(params), ""
  for _, p in ipairs(params:list()) do
    see:output(p.name, ops.copy(see:param(p.name)))
  end
  local seen = exec:compile(see:finish())
  seen:run()
  for _, p in ipairs(params:list()) do
    bytes = bytes .. seen:get(p.name):bytes()
  end
  for r = 0, size - 1 do
    if r == rank then
      print(stage, require("moonreel.core.base").hash128(bytes), ("%.17g"):format(norm), state,
        sent // steps, params:elements() // size,
        ("%.9g"):format(seen:get("second.bias"):totable()[1]),
        team:bytes(exec:regions(), g:op_log(), 1).sent, g:op_log())
      io.stdout:flush()
    end
    world:barrier()
  end
end
for stage = 0, 3 do
  train(stage, behind)
end
]]

describe("an update by ranks", function()
  local dir, script
  setup(function()
    dir = folder.new()
    script = dir:write("train.lua", TRAIN)
  end)
  teardown(function() dir:remove() end)

  -- the output of each rank for each stage: {hash, norm, state, sent, chunk, bias, op_log}; also of
  -- earlier runs
  local made = {}
  local function train(size, dtype, how)
    how = how or {}
    local key = ("%d %s %d %d %s %s"):format(size, dtype, how.elements or 0, how.node or 0,
      how.behind and "behind" or "", how.device or "")
    if made[key] then
      return made[key]
    end
    local small = how.device ~= nil
    local done = process.run({ "/usr/bin/env", "MOONREEL_DEVICE=" .. (how.device or "cpu"),
      process.program(), "-n", tostring(size), script, dtype, tostring(how.elements or 0),
      tostring(how.node or 0), how.behind and "behind" or "no", small and "256" or "1024",
      small and "2" or "5",
      small and "4096" or nil }, "", { deadline_s = 600 })
    assert.equal(0, done.exit, done.output)
    local out = { [0] = {}, {}, {}, {} }
    for stage, hash, norm, state, sent, chunk, bias, report, op_log in done.output:gmatch(
        "(%d)\t(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)\t([^\n]*)\n") do
      table.insert(out[tonumber(stage)], { hash = hash, norm = norm, state = tonumber(state),
        sent = tonumber(sent), reported = tonumber(report), chunk = tonumber(chunk),
        bias = tonumber(bias), op_log = op_log })
    end
    made[key] = out
    return out
  end

  -- the weights and norms of all ranks, and all of these stages, are the same
  local function assert_same(runs, first, last)
    for stage = first, last do
      for _, one in ipairs(runs[stage]) do
        assert.equal(runs[first][1].hash, one.hash, "ZeRO " .. stage)
        assert.equal(runs[first][1].norm, one.norm)
      end
    end
  end

  it("computes the same bits for any part of the state on each rank", function()
    for _, case in ipairs { { 2, "bf16" }, { 3, "f32" }, { 4, "f32" }, { 8, "bf16" } } do
      local runs = train(case[1], case[2], { behind = true })
      assert.equal(case[1], #runs[3])
      assert_same(runs, 0, 3)
    end
    assert_same(train(2, "f32"), 0, 1)
  end)

  it("computes them in several buckets too, and in two hops", function()
    -- the first layer has 5,120 weights, the second 49,200 with its bias
    for _, how in ipairs { { elements = 49216 }, { elements = 49216, node = 2 }, { node = 2 } } do
      how.behind = true
      local runs = train(4, "bf16", how)
      assert_same(runs, 0, 3)
      for stage = 0, 3 do
        assert.equal(runs[stage][1].sent, runs[stage][1].reported + 8 * 3, "ZeRO " .. stage)
      end
      assert.near(tonumber(train(4, "bf16", { behind = true })[1][1].norm),
        tonumber(runs[3][1].norm), 1e-2)
    end
    assert_same(train(4, "bf16", { elements = 49216 }), 0, 1)
  end)

  -- builds with sanitizers have no emulated GPU
  local on_gpus = base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so"))) and it
    or pending
  for hops, case in pairs { one = { ranks = 2 }, two = { ranks = 4, node = 2 } } do
    on_gpus("gives them on emulated GPUs, hops: " .. hops .. ", and sends as much", function()
      local how = { elements = 8192, node = case.node, behind = true, device = "cudaemu" }
      local runs = train(case.ranks, "f32", how)
      assert.equal(case.ranks, #runs[3])
      assert_same(runs, 0, 3)
      how.device = "cpu"
      local cpu = train(case.ranks, "f32", how)
      for stage = 0, 3 do
        assert.equal(cpu[stage][1].sent, runs[stage][1].sent, "ZeRO " .. stage)
        assert.near(tonumber(cpu[stage][1].norm), tonumber(runs[stage][1].norm), 1e-6)
      end
    end)
  end

  it("keeps a part of the state and sends the bytes of the table of stages", function()
    for _, how in ipairs { { behind = true }, { behind = true, elements = 49216 } } do
      for _, size in ipairs { 2, 4 } do
        local runs = train(size, "bf16", how)
        local elements = runs[0][1].chunk * size
        -- bf16 weights, gradients, and master, average, two moments of f32
        local whole = { [0] = 22, 6, 2, 0 }
        -- f32 gradients reduced and gathered, or bf16 weights gathered, for ZeRO 3 twice, except
        -- those of the first layer, which backward does not read: half of all, when they have a
        -- bucket of their own; 8 bytes of the norm, which goes to 1, then 2 more ranks
        local sent = { [0] = 8, 6, 6, how.elements and 7 or 8 }
        for stage = 0, 3 do
          for _, one in ipairs(runs[stage]) do
            assert.equal(whole[stage] * elements + (22 - whole[stage]) * elements // size,
              one.state)
            assert.equal(sent[stage] * elements * (size - 1) // size + 8 * (size - 1), one.sent)
            assert.equal(one.sent, one.reported + 8 * (size - 1))
          end
        end
      end
    end
  end)

  it("has the same op log in all micro-steps: buckets forward, backward, and reduced", function()
    local runs = train(4, "bf16", { behind = true, elements = 49216 })
    assert.equal("", runs[1][1].op_log)
    assert.equal("reduce 2, reduce 1", runs[2][1].op_log)
    -- backward reads no weights of the first layer
    assert.equal("gather 1, gather 2, gather 2, reduce 2, reduce 1", runs[3][1].op_log)
  end)

  it("refuses a table that is divided for other ranks, and state of another part", function()
    local E, G = require "moonreel.core.exec", require "moonreel.core.graph"
    local optim, ranks = require "moonreel.optim", require "moonreel.optim.ranks"
    local regions = require "moonreel.optim.regions"
    local params = G.params "f32"
    require("moonreel.nn").scope(params):add("w", { 40000 }, { kind = "zeros" })
    params:seal { ranks = 2 }
    fails("MR_E_USAGE", "has chunks of 32768 elements; expected chunks for 1 ranks; try: "
      .. "params:seal{ranks = 1}", ranks.new, params, require("moonreel.comm").world())
    local two = { rank = function() return 0 end, size = function() return 2 end }
    fails("MR_E_USAGE", "3 ranks per node with 2 ranks in all; expected a divisor of 2", ranks.new,
      params, two,
      { local_ranks = 3 })
    local team = ranks.new(params, two)
    assert.same({ { start = 0, stop = 32768 } }, team:owned())
    local device <close> = E.device("cpu", 1)
    local part <close> = E.new(device, params, { regions = regions.adamw {
      parts = { { start = 32768, stop = 65536 } } } })
    fails("MR_E_USAGE", "the state covers elements 32768 to 65536; expected all, or 0 to 32768, "
      .. "which rank 0 owns first of 1 parts", optim.new, part, params, team)
  end)

  it("knows the owner of each chunk, in one hop and in two", function()
    local G, ranks = require "moonreel.core.graph", require "moonreel.optim.ranks"
    local size, comm = 6, { op_group = function() return 1 end }
    local params = G.params "f32"
    require("moonreel.nn").scope(params):add("w", { 6000 }, { kind = "zeros" })
    params:seal { ranks = size }
    -- hosts of two, of three, and all ranks on one: no two of these numbers are equal
    for _, here in ipairs { 2, 3, 6 } do
      local owned = {}
      for rank = 0, size - 1 do
        local team = ranks.new(params, { rank = function() return rank end,
          size = function() return size end, op_group = comm.op_group,
          split = function() return comm end }, { local_ranks = here })
        local part = team:owned()[1]
        local chunk = part.start // (part.stop - part.start)
        assert.is_nil(owned[chunk])
        owned[chunk] = rank
        assert.equal(rank, team:owner_of(chunk), here .. " ranks on each host")
      end
      assert.equal(5, #owned)
    end
  end)

  it("reports the bytes of temporary buffers: two buckets, or the only one", function()
    local G, ranks = require "moonreel.core.graph", require "moonreel.optim.ranks"
    local lanes = {}
    local world = { rank = function() return 1 end, size = function() return 4 end,
      split = function(_, _, how)
        lanes[#lanes + 1] = how.lane
        return { op_group = function() return 1 end }
      end, op_group = function() return 1 end }
    local regions = { { bytes = 100, dtype = "bf16" } }
    for buckets, there in ipairs { 1, 2, 2 } do
      local params = G.params "bf16"
      local scope = require("moonreel.nn").scope(params)
      for i = 1, buckets do
        scope:add("w" .. i, { 1024 }, { kind = "zeros" })
      end
      params:seal { ranks = 4, elements = 1024, granule = 512 }
      assert.equal(buckets, #params:buckets())
      for stage, each in pairs { [0] = { 0, 0 }, { 0, 0 }, { 4, 0 }, { 4, 2 } } do
        local bytes = ranks.new(params, world, { stage = stage }):bytes(regions, "", 1)
        assert.same({ 1024 * there * each[1], 1024 * there * each[2] },
          { bytes.buckets, bytes.windows })
      end
      ranks.new(params, world, { local_ranks = 2 })
    end
    -- two hops, whose two buckets each take a lane at the same time
    assert.same({ 0, 1, 0, 1, 0, 1 }, lanes)
  end)

  it("refuses dtypes that messages do not support", function()
    local E, G = require "moonreel.core.exec", require "moonreel.core.graph"
    local ops, T = require "moonreel.core.op", require "moonreel.core.tensor"
    local group <close> = require("moonreel.comm").world {}
    local g <close> = G.graph()
    g:output("y", (ops.all_gather(g:input("x", "f64", { 4 }), { group = group:op_group() })))
    g:finish()
    local exec <close> = E.new(E.device("cpu", 1))
    local program <close> = exec:compile(g)
    program:set("x", T.new("f64", { 4 }))
    fails("MR_E_UNSUPPORTED", "ranks do not exchange f64 tensors", function()
      program:run()
      program:get "y"
    end)
  end)

  it("changes weights as one rank does with all samples", function()
    local alone, many = train(1, "f32")[0], train(4, "f32")[3]
    assert.near(alone[1].bias, many[1].bias, 5e-6 * math.abs(alone[1].bias))
    assert.near(tonumber(alone[1].norm), tonumber(many[1].norm), 5e-6 * tonumber(alone[1].norm))
  end)
end)
