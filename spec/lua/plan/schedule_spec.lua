--- A data-parallel step: gathers, forward, backward, reductions.
local collective = require "moonreel.plan.collective"
local feed = require "moonreel.trainer.feed"
local folder = require "spec.support.folder"
local machine = require "moonreel.plan.machine"
local mesh = require "moonreel.plan.mesh"
local pipeline = require "moonreel.models.pipeline"
local process = require "moonreel.core.process"
local program = require "moonreel.trainer.program"
local ranks = require "moonreel.optim.ranks"
local schedule = require "moonreel.plan.schedule"
local settings = require "moonreel.settings"
local simulate = require "moonreel.plan.simulate"
local timeline = require "moonreel.plan.timeline"

local MI = 2 ^ 20
-- collectives that do not slow compute, as in the closed formulas
local function quiet(name)
  return setmetatable({ communication_share = 0 }, { __index = machine.open(name) })
end

describe("a step", function()
  it("of one rank runs from encoders to the update, while the next batch arrives", function()
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

  it("that saves copies its state during the passes, then updates, and writes later", function()
    local step = { forward_s = 1, backward_s = 2, update_s = 0.5, snapshot_s = 2, write_s = 30,
      parameters = 1e6, bucket = 1e6, group = { gpus = 1, nodes = 1 } }
    local seconds, times = schedule.seconds(quiet "H100", step)
    assert.same({ 32, 3.5, 2, 30 }, { seconds, times.busy.compute, times.busy.d2h,
      times.busy.disk })
    step.snapshot_s, step.write_s = 10, nil
    assert.equal(10.5, (schedule.seconds(quiet "H100", step)))
  end)

  it("of more ranks updates when the norm of all is known, and gathers weights after it", function()
    local mesh_of = { machine = quiet "H100", gpus = 8, nodes = 4, layers = 1, ranks = 32,
      zero = 2 }
    local how = schedule.of(mesh_of, { forward_s = 1e-4, backward_s = 1e-4, update_s = 1,
      encode_s = 1, parameters = 8e9, bucket = 4e9 })
    assert.is_true(how.gather > 0.03 and how.reduce > 0.03)
    local rows, names, reduced = how.times, {}, 0
    for i, event in ipairs(how.events) do
      reduced = event.name == "reduce" and math.max(reduced, rows.finish[i]) or reduced
      assert.is_true(event.name ~= "norm" or rows.start[i] >= reduced)
      if event.stream ~= "comm_inter" then
        names[#names + 1] = ("%s %s"):format(event.name, event.bucket)
      end
      local before = event.name == "update" and how.events[event.after[1]].name
      assert.is_true(not before or before == "norm"
        and rows.start[i] >= rows.finish[event.after[1]])
    end
    assert.equal("encode nil, forward 1, forward 2, backward 2, reduce 2, backward 1, reduce 1, "
      .. "norm nil, update 1, gather 1, update 2, gather 2", table.concat(names, ", "))
    -- half of the gathers overlaps the other half of the update
    local last
    for i, event in ipairs(how.events) do
      last = event.name == "update" and rows.finish[i] or last
    end
    assert.is_true(math.abs((how.seconds - last) / (how.gather / 2) - 1) < 1e-9)
  end)

  it("reduces gradients in each micro-step, in the last one, or in none", function()
    local function order(reduce)
      local _, times, events = schedule.seconds(quiet "H100", { forward_s = 1, backward_s = 2,
        parameters = 2e9, bucket = 1e9, group = { gpus = 8, nodes = 1 }, gather = "none",
        reduce = reduce })
      local list = {}
      for i, event in ipairs(events) do
        list[#list + 1] = event.name == "reduce" and ("%d at %.1f"):format(event.bucket,
          times.start[i]) or nil
      end
      return list
    end
    assert.same({ "2 at 2.0", "1 at 3.0" }, order "each")
    assert.same({ "2 at 3.0", "1 at 3.0" }, order "last")
    assert.same({}, order "none")
  end)
end)

describe("the step of a mesh", function()
  it("sends the messages of its ZeRO stage, with gradients in f32", function()
    local work = { forward_s = 1e-3, backward_s = 2e-3, update_s = 1e-3, parameters = 1e9,
      bucket = 1e9, weight_bytes = 2 }
    local link = 370e9
    for zero, gathered in pairs { [0] = 4, 2, 2, 4 } do
      local how = schedule.of({ machine = quiet "H100", gpus = 8, nodes = 1, layers = 1, ranks = 8,
        zero = zero }, work)
      local function near(seconds, bytes)
        assert.is_true(math.abs(seconds / (bytes * 1e9 * 7 / 8 / link) - 1) < 0.02, zero)
      end
      near(how.reduce, 4)
      near(how.gather, gathered)
      -- sums reach all ranks before any update, new weights after it
      local at = {}
      for i, event in ipairs(how.events) do
        at[event.name] = i
      end
      assert.same({ zero == 0, zero == 1 or zero == 2 },
        { at.reduce < at.gather and at.gather < at.update, at.update < at.gather }, zero)
    end
  end)
end)

describe("a step over many ranks", function()
  it("has its events in the order of a real run of four ranks, whatever they share", function()
    local dir = folder.new()
    finally(function() dir:remove() end)
    local script = dir:write("four.lua", [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local nn, ops, optim = require "moonreel.nn", require "moonreel.core.op", require "moonreel.optim"
local ranks, regions = require "moonreel.optim.ranks", require "moonreel.optim.regions"
local world = require("moonreel.comm").world()
local named = { reduce_scatter = "reduce", adamw = "update", all_gather = "gather",
  gather = "gather", total = "norm" }
for stage = 0, 3 do
  local params, layers = G.params("bf16"), {}
  for i = 1, 6 do
    layers[i] = nn.Linear(nn.scope(params), "layer" .. i, 256, 256, { bias = false })
  end
  -- a bucket for two layers, so large that every rank owns a part
  params:seal { ranks = world:size(), elements = 2 << 16 }
  local team = ranks.new(params, world, { stage = stage })
  local g = G.graph(params)
  local y = g:input("x", "bf16", { 2, 256 })
  for _, layer in ipairs(layers) do
    y = layer(g, y)
  end
  y = ops.cast(y, { dtype = "f32" })
  g:backward((ops.sum(y * y, { axes = { 0, 1 } })))
  team:reduce(g)
  g:finish()
  local run = E.new(E.device("cpu", 1), params, { regions = regions.of({ optim = {} }, team,
    "bf16") })
  run:init(1)
  local prog, update = run:compile(g), optim.new(run, params, team, true)
  prog:time(true)
  update.prog:time(true)
  prog:set("x", T.new("bf16", { 2, 256 }))
  prog:run()
  update:step { lr = 1e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0, step = 1,
    grad_scale = 1 }
  -- what has run: what ranks reported each other, and what they computed meanwhile
  local reported, computed = {}, {}
  for _, rows in ipairs { prog:times(), update.prog:times() } do
    for _, row in ipairs(rows) do
      local name = row.op:find "^linear" and (row.backward and "backward" or "forward")
        or row.op == "adamw" and "update"
      if not name then
        reported[#reported + 1] = named[row.op]
      elseif computed[#computed] ~= name then
        computed[#computed + 1] = name
      end
    end
  end
  print(stage, table.concat(reported, " "), table.concat(computed, " "), g:op_log())
end
]])
    local done = process.run({ process.program(), "-n", "4", script }, "", { deadline_s = 600 })
    local lines = {}
    for stage = 0, 3 do
      local how = schedule.of({ machine = quiet "H100", gpus = 4, nodes = 1, layers = 1,
          zero = stage },
        { forward_s = 1, backward_s = 2, update_s = 1, parameters = 3 << 16, bucket = 1 << 16 })
      local report, computed, op_log = {}, {}, {}
      for _, row in ipairs(timeline.rows(how)) do
        local name = row.what:match "%a+"
        if row.stream ~= "compute" then
          report[#report + 1], op_log[#op_log + 1] = name, row.what:match "^%a+ %d$"
        elseif computed[#computed] ~= name then
          computed[#computed + 1] = name
        end
      end
      -- graphs record these calls only if gradients or weights are shared
      lines[#lines + 1] = table.concat({ stage, table.concat(report, " "),
        table.concat(computed, " "), stage < 2 and ""
          or table.concat(op_log, ", ", 1, stage == 2 and 3 or #op_log) }, "\t") .. "\n"
    end
    local seen = {}
    for line in done.output:gmatch "[^\n]*\n" do
      seen[line] = (seen[line] or 0) + 1
    end
    for _, line in ipairs(lines) do
      assert.equal(4, seen[line], line .. done.output)
    end
  end)

  it("has the calls of a released model's graph, in that order", function()
    local s = settings.bake("opensora-1.2/lambda/stage1", { "plugin_config.zero_stage=3",
      "model.depth=3", "plugin_config.reduce_bucket_size_in_m=32" })
    local pipe = pipeline.of(s, "bf16", ranks.cut(s, 8))
    local comm = {}
    function comm.rank() return 0 end
    function comm.size() return 8 end
    function comm.op_group() return 0 end
    local team = ranks.new(pipe.params, comm, { stage = 3 })
    local shape = feed.new(s, pipe):shape { frames = 51, height = 144, width = 256, batch = 1 }
    local graph <close> = program.graph(pipe, shape, program.config(s, team))
    local n, last = #pipe.params:buckets(), pipe.params:buckets()[1]
    local how = schedule.of({ machine = quiet "H100", gpus = 8, nodes = 1, zero = 3, layers = 1 },
      { forward_s = 1, backward_s = 2, bucket = last.stop - last.start,
        parameters = n * (last.stop - last.start) })
    local op_log = {}
    for _, event in ipairs(how.events) do
      op_log[#op_log + 1] = event.stream ~= "compute" and event.name .. " " .. event.bucket or nil
    end
    assert.is_true(n >= 4)
    assert.equal(table.concat(op_log, ", "), graph:op_log())
  end)

  it("communicates only with ranks that have the same slices of layers", function()
    local m = quiet "H100"
    local work = { forward_s = 1, backward_s = 2, parameters = 4e9, bucket = 1e9 }
    local function reduced(nodes, layers)
      return schedule.of(mesh.new(m, 8, nodes):with { zero = 1, layers = layers }, work).reduce
    end
    local bytes = 4 * work.bucket
    for layers = 1, 4, 3 do
      local group = { gpus = 8 // layers, nodes = 1 }
      assert.near(4 * collective.flat(m, group, bytes), reduced(1, layers), 1e-9)
      -- all ranks of a node share its cards
      local _, inter = collective.two_hops(m, { gpus = group.gpus, nodes = 2, parallel = layers },
        bytes)
      assert.near(4 * (collective.flat(m, group, bytes) + inter), reduced(2, layers), 1e-9)
      assert.near(bytes / group.gpus / 2 / (m.network.card * m.network.cards / 8), inter,
        0.01 * inter)
    end
    assert.is_true(reduced(1, 4) < reduced(1, 1))
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

  it("agrees with the closed formula of bucketed reduction in 50 random cases", function()
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

  it("overlaps gathers with both passes when they come one by one", function()
    local function seconds(gather)
      return (schedule.seconds(quiet "H100", { forward_s = 2, backward_s = 4, parameters = 1e10,
        bucket = 128 * MI, group = { gpus = 8, nodes = 4 }, gather = gather }))
    end
    assert.is_true(seconds "exposed" > 6.04 and seconds "twice" < 6.02)
  end)

  it("has weights of two buckets at a time: a gather waits for the pass before the last", function()
    local _, times, events = schedule.seconds(quiet "H100", { forward_s = 4, backward_s = 8,
      parameters = 4e9, bucket = 1e9, group = { gpus = 8, nodes = 1 }, gather = "twice" })
    local ends, gathers = {}, 0
    for i, event in ipairs(events) do
      if event.stream == "compute" then
        ends[#ends + 1] = times.finish[i]
      elseif event.name == "gather" then
        gathers = gathers + 1
        assert.is_true(times.start[i] >= (ends[gathers - 2] or 0), gathers)
      end
    end
    assert.equal(8, gathers)
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
        -- within the nodes first, then the hop between them
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
