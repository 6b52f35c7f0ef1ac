--- A data-parallel step: gathers, forward, backward, reductions.
local collective = require "moonreel.plan.collective"
local folder = require "spec.support.folder"
local machine = require "moonreel.plan.machine"
local process = require "moonreel.core.process"
local schedule = require "moonreel.plan.schedule"
local simulate = require "moonreel.plan.simulate"

local MI = 2 ^ 20
-- collectives that slow nobody, as in the closed forms
local function quiet(name)
  return setmetatable({ communication_share = 0 }, { __index = machine.open(name) })
end

describe("a step", function()
  it("of one rank computes alone, from encoders to the update, a batch comes beside", function()
    local seconds, times, events = schedule.seconds(quiet "H100", { input_s = 0.5, encode_s = 1,
      forward_s = 2, backward_s = 4, update_s = 0.25, parameters = 1e6, bucket = 1e6,
      group = { gpus = 1, nodes = 1 }, gather = "hidden" })
    assert.equal(7.25, seconds)
    local names = {}
    for i, event in ipairs(events) do
      names[i] = event.name
    end
    assert.same({ "input", "encode", "forward", "backward", "update" }, names)
    assert.same({ 7.25, 0.5 }, { times.busy.compute, times.busy.h2d })
  end)

  it("that saves copies beside training, updates behind the copy, and writes on", function()
    local step = { forward_s = 1, backward_s = 2, update_s = 0.5, snapshot_s = 2, write_s = 30,
      parameters = 1e6, bucket = 1e6, group = { gpus = 1, nodes = 1 } }
    local seconds, times = schedule.seconds(quiet "H100", step)
    assert.same({ 32, 3.5, 2, 30 }, { seconds, times.busy.compute, times.busy.d2h,
      times.busy.disk })
    step.snapshot_s, step.write_s = 10, nil
    assert.equal(10.5, (schedule.seconds(quiet "H100", step)))
  end)

  it("of more ranks updates when all is reduced, and hides gathers behind encoders too", function()
    local mesh_of = { machine = quiet "H100", gpus = 8, nodes = 4, ranks = 32, zero = 2 }
    local work = { forward_s = 1e-4, backward_s = 1e-4, update_s = 1, parameters = 8e9,
      bucket = 128 << 20 }
    local bare = schedule.of(mesh_of, work)
    work.encode_s = 1
    local hidden = schedule.of(mesh_of, work)
    assert.is_true(bare.gather > 0.03 and bare.reduce > 0.03)
    assert.is_true(hidden.seconds - bare.seconds < 1 - 0.03)
    local last = #bare.events
    assert.equal("update", bare.events[last].name)
    for i, event in ipairs(bare.events) do
      assert.is_true(event.name ~= "reduce" or bare.times.finish[i] <= bare.times.start[last])
    end
  end)
end)

describe("the step of a mesh", function()
  it("sends what its stage sends, in f32 what are gradients", function()
    local work = { forward_s = 1e-3, backward_s = 2e-3, update_s = 1e-3, parameters = 1e9,
      bucket = 1e9, weight_bytes = 2 }
    local link = 370e9
    for zero, gathered in pairs { [0] = 4, 2, 2, 4 } do
      local how = schedule.of({ machine = quiet "H100", gpus = 8, nodes = 1, ranks = 8,
        zero = zero }, work)
      local function near(seconds, bytes)
        assert.is_true(math.abs(seconds / (bytes * 1e9 * 7 / 8 / link) - 1) < 0.02, zero)
      end
      near(how.reduce, 4)
      near(how.gather, gathered)
      -- sums go to all before anybody updates; weights behind the step before
      local last = #how.events
      assert.equal("update", how.events[last].name)
      local behind = false
      for i, event in ipairs(how.events) do
        behind = behind or event.name == "gather" and how.times.start[i] >= 3e-3
          and how.times.finish[i] == how.times.start[last]
      end
      assert.equal(zero == 0, behind)
    end
  end)
end)

describe("the bucket of a step", function()
  -- 1 ms to set out and 100 GB/s, whatever the ranks
  local m = { node = { link = 100e9, link_step_s = 1e-3 }, network = { step_s = 0 } }
  local group = { gpus = 2, nodes = 1 }
  local function bucket(parameters, backward_s, given, reduce_bytes)
    return schedule.bucket(given or m, { group = group, parameters = parameters,
      backward_s = backward_s, reduce_bytes = reduce_bytes })
  end

  it("is the smallest whose reductions hide", function()
    -- 2 GB take 10 ms; in 35 ms behind that there is room to set out 35 times: 28.6e6 elements each
    local elements = bucket(1e9, 0.05)
    assert.equal(32 << 20, elements)
    -- as many bytes are half as many elements of f32
    assert.equal(16 << 20, bucket(0.5e9, 0.05, m, 4))
    local function hidden(b) return 1e9 / b * 1.0084e-3 + 0.01 <= 0.9 * 0.05 end
    assert.is_true(hidden(elements) and not hidden(elements / 2))
  end)

  it("is the one that ends soonest where they cannot", function()
    -- 2 GB behind 1 ms: the root of 1 ms x 100 GB/s x 4 GB is 318e6 elements
    assert.equal(512 << 20, bucket(1e9, 1e-3))
  end)

  it("is no larger than all there is, nor smaller than the field can say", function()
    assert.equal(1 << 20, bucket(1e6, 1))
    assert.equal(1 << 20, bucket(1e5, 1e-9))
  end)
end)

describe("a step over many ranks", function()
  it("has its events in the order of a real run of four ranks", function()
    local dir = folder.new()
    finally(function() dir:remove() end)
    local script = dir:write("four.lua", [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local nn, ops, optim = require "moonreel.nn", require "moonreel.core.op", require "moonreel.optim"
local ranks, regions = require "moonreel.optim.ranks", require "moonreel.optim.regions"
local world = require("moonreel.comm").world()
local params = G.params("bf16")
-- large enough that every rank owns a part
local layer = nn.Linear(nn.scope(params), "layer", 1024, 768)
params:seal { ranks = world:size() }
local team = ranks.new(params, world)
local g = G.graph(params)
local y = ops.cast(layer(g, g:input("x", "bf16", { 2, 1024 })), { dtype = "f32" })
g:backward((ops.sum(y * y, { axes = { 0, 1 } })))
team:reduce(g)
g:finish()
local run = E.new(E.device("cpu", 1), params, { regions = regions.adamw { dtype = "bf16",
  parts = team:owned() } })
run:init(1)
local prog, update = run:compile(g), optim.new(run, params, team, true)
prog:time(true)
update.prog:time(true)
local told, named = {}, { reduce_scatter = "reduce", adamw = "update", all_gather = "gather" }
-- what has run, with the names that a schedule gives it
local function tell(p, otherwise)
  for _, row in ipairs(p:times()) do
    local name = row.seconds > 0 and (named[row.op] or otherwise
      and (row.backward and "backward" or "forward"))
    told[#told + 1] = name and told[#told] ~= name and name or nil
  end
end
for step = 1, 2 do
  prog:set("x", T.new("bf16", { 2, 1024 }))
  prog:run()
  update:step { lr = 1e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0, step = step,
    grad_scale = 1 }
  tell(prog, true)
  tell(update.prog)
end
-- one step, from its gather on
print(table.concat(told, " ", 5, 9))
]])
    local done = process.run({ process.program(), "-n", "4", script }, "", { deadline_s = 600 })
    local _, times, events = schedule.seconds(quiet "H100", { forward_s = 1, backward_s = 2,
      update_s = 1, parameters = 4096, bucket = 4096, group = { gpus = 4, nodes = 1 },
      gather = "hidden" })
    local order = {}
    for i, event in ipairs(events) do
      order[i] = { event.name, times.start[i] }
    end
    table.sort(order, function(a, b) return a[2] < b[2] end)
    for i, one in ipairs(order) do
      order[i] = one[1]
    end
    local want = table.concat(order, " ")
    assert.equal((want .. "\n"):rep(4), done.output)
    assert.equal("gather forward backward reduce update", want)
  end)

  it("keeps the shares of its speed that are modelled for 11.9 G parameters", function()
    local m = quiet "H200"
    local want = {
      [64] = { 94.6, 97.8, 98.3, 98.5 }, [192] = { 87.7, 96.6, 97.9, 98.3 },
      [224] = { 86.1, 96.3, 97.9, 98.3 }, [512] = { 74.1, 93.6, 97.1, 98.0 },
      [1024] = { 59.4, 89.2, 95.9, 97.6 },
    }
    for gpus, shares in pairs(want) do
      for i, bucket in ipairs { 20, 128, 512, 128 } do
        local seconds = schedule.seconds(m, { forward_s = 4.1 / 3, backward_s = 4.1 * 2 / 3,
          parameters = 11.888e9, bucket = bucket * MI, two_hops = i == 4,
          group = { gpus = 8, nodes = gpus // 8 } })
        local got = 410 / seconds
        -- at 1,024 ranks the smallest buckets outlast the backward pass, which the model leaves out
        assert.is_true(math.abs(got - shares[i]) <= (shares[i] < 60 and 1 or 0.2),
          ("%d GPUs, %d Mi: %.2f, expected %.1f"):format(gpus, bucket, got, shares[i]))
      end
    end
  end)

  it("agrees with the closed form of bucketed reduction in 50 random cases", function()
    math.randomseed(20, 24)
    for _ = 1, 50 do
      local m, nodes = quiet "H100", math.random(2, 64)
      local group, parameters = { gpus = 8, nodes = nodes }, math.random() * 2e10 + 1e9
      local buckets, backward = math.random(60, 400), 0.2 + 3 * math.random()
      local bucket = parameters / buckets
      local one = collective.flat(m, group, 2 * bucket)
      -- exposed(b) = max(0, (G / b) (a + b / W) - T) + a + b / W
      local exposed = math.max(0, buckets * one - backward) + one
      local gathers = collective.flat(m, group, 2 * bucket) * buckets
      local seconds = schedule.seconds(m, { forward_s = 0, backward_s = backward,
        parameters = parameters, bucket = bucket, group = group })
      local want = gathers + backward + exposed
      assert.is_true(math.abs(seconds - want) <= 0.02 * want,
        ("%d buckets, %d nodes: %.4f s, expected %.4f"):format(buckets, nodes, seconds, want))
    end
  end)

  it("hides gathers behind the forward pass where they may come one by one", function()
    local function seconds(gather)
      return (schedule.seconds(quiet "H100", { forward_s = 2, backward_s = 4, parameters = 1e10,
        bucket = 128 * MI, group = { gpus = 8, nodes = 4 }, gather = gather }))
    end
    assert.is_true(seconds("hidden") < seconds("exposed") - 0.03)
    assert.is_true(seconds("hidden") < 6.01)
    -- gathering again for the backward pass hides there as well
    assert.is_true(seconds("twice") - seconds("hidden") < 0.01)
  end)

  it("gathers before it computes, and reduces what the backward pass has written", function()
    local step = { forward_s = 0.1, backward_s = 4, parameters = 1e11, bucket = 3e10,
      group = { gpus = 8, nodes = 2 }, gather = "twice", two_hops = true }
    local events = schedule.events(machine.open "H100", step)
    local times = simulate.run(events)
    local forward_end, gathers, forwards, seconds = 0, 0, 0, { forward = 0, backward = 0 }
    for i, e in ipairs(events) do
      if e.name == "forward" then
        -- its own bucket was gathered by the events 2 k - 1 and 2 k
        forwards, forward_end = forwards + 1, times.finish[i]
        assert.is_true(times.start[i] >= times.finish[2 * forwards])
      end
      seconds[e.name] = seconds[e.name] and seconds[e.name] + e.seconds
      gathers = gathers + (e.name == "gather" and 1 or 0)
      if e.name == "reduce" then
        assert.is_true(times.start[i] >= forward_end)
        -- inside the nodes first; what follows it is the hop between them
        assert.equal(events[i - 1].name == "reduce" and "comm_inter" or "comm_intra", e.stream)
      end
    end
    assert.same({ "comm_inter", "comm_intra" }, { events[1].stream, events[2].stream })
    assert.equal(4 * 2 * 2, gathers)   -- 4 buckets, 2 hops, twice
    assert.is_true(math.abs(seconds.forward - 0.1) < 1e-12)
    assert.is_true(math.abs(seconds.backward - 4) < 1e-12)
  end)

  it("waits for the slowest rank", function()
    local step = { forward_s = 1, backward_s = 2, parameters = 1e9, bucket = 128 * MI,
      group = { gpus = 8, nodes = 16 } }
    local m = quiet "H100"
    local added = schedule.seconds(m, step, 0.01) - schedule.seconds(m, step)
    assert.is_true(math.abs(added - 3 * (simulate.slowest(128, 0.01) - 1)) < 2e-3, added)
  end)
end)
