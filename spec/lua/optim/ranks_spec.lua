--- Ranks that update together: with all state on each (ZeRO 0) and with their own part of it (ZeRO
-- 1) the same bits, and what one rank does with all samples.
-- Covers: core/comm/rows.c core/cpu/collective.c core/op/over_ranks.c
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- a model of two layers in one dtype, of 54,320 weights, so that chunks of 64 KiB belong to several
-- ranks, or one has nothing but the pad; trained on points that the ranks share out; prints a hash
-- of the weights, the last norm, bytes of state, bytes sent per step. In so many buckets, over
-- nodes of so many ranks; the gradients are reduced behind backward or by the update.
local TRAIN = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local nn, ops, optim = require "moonreel.nn", require "moonreel.core.op", require "moonreel.optim"
local ranks, regions = require "moonreel.optim.ranks", require "moonreel.optim.regions"
local world = require("moonreel.comm").world { deadline_s = 100 }
local zero, dtype, elements, node, behind = tonumber(arg[1]), arg[2], tonumber(arg[3]),
  tonumber(arg[4]), arg[5] == "behind"
local size, rank, steps, points = world:size(), world:rank(), 5, 12

local params = G.params(dtype)
local scope = nn.scope(params)
local first, second = nn.Linear(scope, "first", 4, 1024), nn.Linear(scope, "second", 1024, 48)
params:seal { ranks = size, elements = elements }
local team = ranks.new(params, world, { local_ranks = node > 0 and node or nil })

-- this rank's points
local mine = points // size
local g = G.graph(params)
local x, y = g:input("x", dtype, { mine, 4 }), g:input("y", "f32", { mine, 48 })
local off = ops.cast(second(g, (ops.silu(first(g, x)))), { dtype = "f32" }) - y
g:backward((ops.sum(off * off, { axes = { 0, 1 } })))
if behind then
  team:reduce(g)
end
g:finish()

local device <close> = E.device(os.getenv "MOONREEL_DEVICE" or "cpu", 1)
local exec <close> = E.new(device, params, { regions = regions.adamw { ema = true, dtype = dtype,
  parts = zero == 1 and team:owned() or nil } })
exec:init(1)
local program, update = exec:compile(g), optim.new(exec, params, team, behind)
local xs = T.new("f32", { points, 4 }):fill_normal(1, "x"):slice(0, rank * mine, (rank + 1) * mine)
local ys = T.new("f32", { points, 48 }):fill_normal(1, "y"):slice(0, rank * mine, (rank + 1) * mine)
program:set("x", xs:to(dtype))
program:set("y", ys:clone())
local norm
world:reset_counts()
for step = 1, steps do
  if behind and rank == size - 1 and step == steps then
    -- this one has nothing to add
    update:reduce()
  else
    program:run()
  end
  norm = update:step { lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1, ema_decay = 0.9, step = step, grad_scale = 1 / points }
end
local sent = 0
for _, one in pairs(world:counts()) do
  sent = sent + one.bytes
end
local state = 0
for _, row in ipairs(exec:regions()) do
  state = state + (row.prefix and row.prefix ~= "" and row.bytes or 0)
end
local bytes = exec:read("w", dtype, 0, { 54320 }):bytes()
for r = 0, size - 1 do
  if r == rank then
    print(require("moonreel.core.base").hash128(bytes), ("%.17g"):format(norm), state, sent // steps,
      params:elements() // size, ("%.9g"):format(exec:param("w", "second.bias"):totable()[1]))
    io.stdout:flush()
  end
  world:barrier()
end
]]

describe("an update by ranks", function()
  local dir, script
  setup(function()
    dir = folder.new()
    script = dir:write("train.lua", TRAIN)
  end)
  teardown(function() dir:remove() end)

  -- what each rank printed: {hash, norm, state, sent, chunk, bias}; of runs made before as well
  local made = {}
  local function train(size, zero, dtype, how)
    how = how or {}
    local key = ("%d %d %s %d %d %s"):format(size, zero, dtype, how.elements or 0, how.node or 0,
      how.behind and "behind" or "")
    if made[key] then
      return made[key]
    end
    local done = process.run({ process.program(), "-n", tostring(size), script, tostring(zero),
      dtype, tostring(how.elements or 0), tostring(how.node or 0),
      how.behind and "behind" or "no" }, "", { deadline_s = 120 })
    assert.equal(0, done.exit, done.output)
    local out = {}
    for hash, norm, state, sent, chunk, bias in done.output:gmatch(
        "(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)\n") do
      out[#out + 1] = { hash = hash, norm = norm, state = tonumber(state), sent = tonumber(sent),
        chunk = tonumber(chunk), bias = tonumber(bias) }
    end
    assert.equal(size, #out)
    made[key] = out
    return out
  end

  -- the weights and norms of all ranks are the same, and those of the other run
  local function assert_same(all, part)
    for r = 1, #all do
      assert.equal(all[1].hash, all[r].hash)
      assert.equal(all[1].hash, part[r].hash)
      assert.equal(all[1].norm, part[r].norm)
    end
  end

  it("gives the same bits with all state everywhere as with a part on each", function()
    for _, case in ipairs { { 2, "bf16" }, { 3, "f32" }, { 4, "f32" } } do
      local size, dtype = table.unpack(case)
      assert_same(train(size, 0, dtype), train(size, 1, dtype))
    end
  end)

  it("gives them in several buckets too, behind backward, and in two hops", function()
    -- the first layer has 5,120 weights, the second 49,200
    for _, how in ipairs { { elements = 6000 }, { elements = 6000, node = 2 }, { node = 2 } } do
      local behind = { elements = how.elements, node = how.node, behind = true }
      local all, part = train(4, 0, "bf16", how), train(4, 1, "bf16", how)
      assert_same(all, part)
      assert_same(train(4, 0, "bf16", behind), train(4, 1, "bf16", behind))
      assert.near(tonumber(train(4, 0, "bf16")[1].norm), tonumber(all[1].norm), 1e-3)
    end
  end)

  it("keeps a part of the state and sends what the table of stages says", function()
    for _, how in ipairs { {}, { elements = 6000 } } do
      for _, size in ipairs { 2, 4 } do
        local all, part = train(size, 0, "bf16", how), train(size, 1, "bf16", how)
        local elements = all[1].chunk * size
        -- master, average, two moments of f32
        assert.equal(16 * elements, all[1].state)
        assert.equal(16 * elements // size, part[1].state)
        -- f32 gradients reduced, and for stage 1 bf16 weights gathered; 8 bytes of the norm, which
        -- goes to 1, then 2 more ranks
        assert.equal(2 * 4 * elements * (size - 1) // size + 8 * (size - 1), all[1].sent)
        assert.equal((4 + 2) * elements * (size - 1) // size + 8 * (size - 1), part[1].sent)
      end
    end
  end)

  it("refuses a table that is cut for other ranks, and state of something else", function()
    local E, G = require "moonreel.core.exec", require "moonreel.core.graph"
    local optim, ranks = require "moonreel.optim", require "moonreel.optim.ranks"
    local regions = require "moonreel.optim.regions"
    local params = G.params "f32"
    require("moonreel.nn").scope(params):add("w", { 40000 }, { kind = "zeros" })
    params:seal { ranks = 2 }
    fails("MR_E_USAGE", "has chunks of 32768: expected chunks for 1 ranks; try: "
      .. "params:seal{ranks = 1}", ranks.new, params, require("moonreel.comm").world())
    local two = { rank = function() return 0 end, size = function() return 2 end }
    fails("MR_E_USAGE", "nodes of 3 ranks among 2: expected a divisor of 2", ranks.new, params, two,
      { local_ranks = 3 })
    local team = ranks.new(params, two)
    assert.same({ { start = 0, stop = 32768 } }, team:owned())
    local device <close> = E.device("cpu", 1)
    local part <close> = E.new(device, params, { regions = regions.adamw {
      parts = { { start = 32768, stop = 65536 } } } })
    fails("MR_E_USAGE", "state of elements 32768 to 65536: expected all, or 0 to 32768, which rank "
      .. "0 owns first of 1 parts", optim.new, part, params, team)
  end)

  it("moves weights as one rank does with all samples", function()
    local alone, many = train(1, 0, "f32"), train(4, 1, "f32")
    assert.near(alone[1].bias, many[1].bias, 5e-6 * math.abs(alone[1].bias))
    assert.near(tonumber(alone[1].norm), tonumber(many[1].norm), 5e-6 * tonumber(alone[1].norm))
  end)
end)
