--- A step of the demo by several ranks of one thread each, compared with the same step by one rank:
-- the same number of micro-batches, then the update. The same processes measure all of it in turn,
-- so that other load affects all alike:
--
--     one        rank 0 runs the whole step with one thread, the others sleep
--     threads    the same with as many threads as there are ranks
--     apart      all ranks run their parts of the step at once, without communication
--     reported   all ranks do the communication of a step, and compute nothing
--     together   the step by all ranks
--
-- The cost of ranks is (together - reported) against one / ranks; a part of it, apart against one /
-- ranks, is what concurrent processors take from each other.
-- @module moonreel.bench.ranks
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local paired = require "moonreel.bench.paired"
local process = require "moonreel.core.process"

local ranks = {}

--- Largest allowed ratio to a rank's part of the step by one rank.
ranks.most = 1.25
ranks.recipe = "recipes/tiny/demo.lua"

local DEADLINE_S = 300

-- a world with the same number of ranks, in which no rank sends anything
local function silent(world)
  return {rank = function() return world:rank() end, size = function() return world:size() end,
    op_group = function() return 0 end}
end

-- the communication of a step without its work: that of the micro-step, then that of the update
local function told_alone(opened, dtype)
  local G = require "moonreel.core.graph"
  local owners, params, exec = opened.owners, opened.pipe.params, opened.exec
  local micro = exec:compile(owners:echo(params, opened.micro.graph, true))
  local g = G.graph(params)
  g:output("sum", owners:sum_squares(g, {g:input("own", "f32", {64})}))
  for i = 1, owners.weights and 0 or #owners.buckets do
    owners:gather(g, owners.stage == 0 and "grad" or "w", owners.stage == 0 and "f32" or dtype, i)
  end
  local update = exec:compile(g:finish())
  update:set("own", require("moonreel.core.tensor").new("f32", {64}))
  return function()
    micro:run()
    update:run()
    update:get "sum"
  end
end

-- the bytes that a rank sends in a step, by its counters
local function sent_in_step(world, opened)
  world:reset_counts()
  opened.run()
  local sent = 0
  for _, count in pairs(world:counts()) do
    sent = sent + count.bytes
  end
  return sent
end

-- what each stage of ZeRO keeps and sends: as counted, and as predicted before a run
local function stages(world, open)
  local rows = {}
  for stage = 0, 3 do
    local opened = open(stage)
    local reported = opened.owners:bytes(opened.exec:regions(), opened.micro.graph:op_log(), 1)
    local elements = opened.pipe.params:elements()
    local sent = sent_in_step(world, opened)
    rows[stage + 1] = {stage = stage, parameters = elements, state = reported.state,
      a_while = reported.buckets + reported.windows, reported = reported.sent, sent = sent,
      norm = sent - reported.sent}
    opened.exec:close()
  end
  return rows
end

--- The program of each rank of a measurement; rank 0 prints the results as JSON.
---@param seconds number  time to spend
---@param recipe string
---@param dtype string|nil
function ranks.rank(seconds, recipe, dtype)
  local E, T = require "moonreel.core.exec", require "moonreel.core.tensor"
  local demo, pipeline = require "moonreel.bench.demo", require "moonreel.models.pipeline"
  local world = require("moonreel.comm").world {deadline_s = DEADLINE_S}
  local size, leads = world:size(), world:rank() == 0
  local s = require("moonreel.settings").bake(recipe)
  local device <close> = E.device("cpu", 1)
  local wide <close> = E.device("cpu", size)
  local batch = demo.bucket(s)
  dtype = dtype or pipeline.dtype(s, device)
  local function open(on, among, stage)
    return demo.open(on, s, batch, dtype, among, stage, size)
  end
  local one, threads = leads and open(device), leads and open(wide)
  local apart, together = open(device, silent(world)), open(device, world)
  local runs = {one = one and function() one.run(size) end, apart = apart.run,
    threads = threads and function() threads.run(size) end, together = together.run,
    reported = told_alone(together, dtype)}
  local sent = sent_in_step(world, together)
  local kept = stages(world, function(stage) return open(device, world, stage) end)
  -- the seconds of the slowest rank, from the common start: by the clock, and of the processor
  local function measured(name)
    local run = runs[name]
    world:barrier()
    local from, used = base.now_s(), os.clock()
    if run then
      run()
    end
    local took = T.from({2}, {base.now_s() - from, os.clock() - used}, "f64")
    return table.unpack(world:all_reduce(took, "max"):totable())
  end
  local function round()
    local took = {}
    for _, name in ipairs(ranks.parts) do
      took[name], took[name .. "_cpu"] = measured(name)
    end
    return took
  end
  round()
  -- all ranks make the number of rounds for which rank 0 has time
  local rounds, from, go = {}, base.now_s(), true
  while go do
    rounds[#rounds + 1] = round()
    go = #rounds < paired.least_rounds or base.now_s() - from < seconds
    go = world:broadcast(T.from({1}, {go and 1 or 0}, "i32")):item() == 1
  end
  if leads then
    print(json.encode {rounds = #rounds, sent = sent, dtype = dtype, stages = json.array(kept),
      seconds = ranks.judge(rounds, size)})
  end
end

--- The parts, in the order of a round.
ranks.parts = {"one", "threads", "apart", "reported", "together"}

--- Judges seconds by part, round by round; `part .. "_cpu"` are processor seconds.
---@param rounds table[]
---@param size integer  number of ranks
---@return table  the median of each part; ratio: of together without communication, to a rank's
---   part of one; alone: the same for apart; ratio_cpu, alone_cpu: of processor seconds;
---   of_threads: together to threads
function ranks.judge(rounds, size)
  local function middle(of)
    local list = {}
    for i, round in ipairs(rounds) do
      list[i] = of(round)
    end
    return paired.median(list)
  end
  local out = {of_threads = middle(function(r) return r.together / r.threads end)}
  for _, by in ipairs {"", "_cpu"} do
    for _, name in ipairs(ranks.parts) do
      out[name .. by] = middle(function(r) return r[name .. by] end)
    end
    out["alone" .. by] = middle(function(r) return r["apart" .. by] / (r["one" .. by] / size) end)
    out["ratio" .. by] = middle(function(r)
      return (r["together" .. by] - r["reported" .. by]) / (r["one" .. by] / size)
    end)
  end
  return out
end

--- Measures.
---@param options table  seconds: time to spend; ranks (2); dtype
---@return table  ranks, dtype, rounds, sent: bytes of a rank in a step; seconds: result of judge;
---   stages: of ZeRO {stage, parameters, state, a_while, reported, sent, norm}, in bytes of a rank
function ranks.measure(options)
  local n = options.ranks or 2
  local done = process.run({process.program(), "-n", tostring(n), "-e",
    ("require('moonreel.bench.ranks').rank(%g, %q, %s)"):format(options.seconds, ranks.recipe,
    options.dtype and ("%q"):format(options.dtype) or "nil")}, "", {deadline_s = DEADLINE_S})
  local text = done.exit == 0 and done.output:match("{.*}")
  if not text then
    base.raise("MR_E_INTERNAL", ("bench ranks: moonreel -n %d ended with %s"):format(n,
      done.timed_out and "its deadline" or done.exit or done.signal))
  end
  local r = json.decode(text)
  r.ranks, r.met = n, r.seconds.ratio <= ranks.most
  return r
end

return ranks
