--- The fixed step: forward and backward pass of a part of a released model on random latents, as
-- the trainer builds it, once with and once without `grad_checkpoint`; bf16 if the processor has
-- it.
-- @module moonreel.bench.step
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local core = require "moonreel.core.bench"
local cuts = require "moonreel.bench.cuts"
local ops = require "moonreel.core.op"
local paired = require "moonreel.bench.paired"
local regions = require "moonreel.optim.regions"
local program = require "moonreel.trainer.program"
local work = require "moonreel.plan.work"

local step = {}

local SAMPLE_S = 0.25 -- of the peak, next to a step
local TURNS = 5 -- of a step and of another program's

-- the settings of a recipe that decide what a step keeps and what it does twice
step.settings = {{grad_checkpoint = false}, {grad_checkpoint = true}}

--- The graph from noised latents to gradients in region "grad", and inputs for it.
---@param params mr.Params
---@param net table       of step.open, as is the one before
---@param shape table     of moonreel.bench.cuts
---@param settings table  grad_checkpoint
---@return mr.Graph graph
---@return table<string, mr.Tensor> set
function step.graph(params, net, shape, settings)
  local options, recompute = program.recomputation(settings)
  options.fresh_gradients = true -- as where a step has one micro-batch
  local g = G.graph(params, options)
  local set, io = cuts.inputs(shape)
  io.recompute = recompute
  for name, tensor in pairs(set) do
    io[name] = g:input(name, tensor.dtype, tensor.shape)
  end
  local loss = ops.flow_loss(net:forward(g, io), io.x0, io.noise, io.weight, false)
  g:output("loss", loss)
  g:backward(loss, {})
  g:finish()
  return g, set
end

--- Times of repeated runs: the best, after one to warm up.
---@param run function           one run, complete when it returns
---@param seconds number         to spend, at least four runs
---@param prog mr.Program|nil    timed node by node: of each its best, so that other programs' work
---   blames no op
---@return number seconds        of the best run
---@return table|nil rows        of prog:times()
function step.best(run, seconds, prog)
  if prog then
    prog:time(true)
  end
  run()
  local best, rows, start, n = math.huge, nil, base.now_s(), 0
  while n < 4 or base.now_s() - start < seconds do
    local from = base.now_s()
    run()
    best, n = math.min(best, base.now_s() - from), n + 1
    local new = prog and prog:times()
    for i, row in ipairs(rows or {}) do
      row.seconds = math.min(row.seconds, new[i].seconds)
    end
    rows = rows or new
  end
  return best, rows
end

--- Time per op: one row per op name, largest first.
function step.by_op(rows)
  local by, list = {}, {}
  for _, row in ipairs(rows) do
    local key = row.op .. (row.naive and " (naive)" or "")
    local e = by[key]
    if not e then
      e = {op = key, calls = 0, seconds = 0, flop = 0, bytes = 0}
      by[key], list[#list + 1] = e, e
    end
    e.calls, e.seconds, e.flop, e.bytes = e.calls + 1, e.seconds + row.seconds,
      e.flop + row.flop, e.bytes + row.bytes
  end
  table.sort(list, function(a, b) return a.seconds > b.seconds end)
  return list
end

--- A model with an executor that has its gradients.
---@param device mr.Device
---@param shape table   of moonreel.bench.cuts
---@param dtype string
---@return mr.Exec run, mr.Params params, table net
function step.open(device, shape, dtype)
  local params = G.params(dtype)
  local net = cuts.model(params, shape)
  params:seal()
  local run = E.new(device, params, {regions = regions.gradients(true)})
  run:init(1)
  return run, params, net
end

--- One program of the step, ready to run.
---@param run mr.Exec
---@param params mr.Params
---@param net table       of step.open, as are the two before
---@param shape table     of moonreel.bench.cuts
---@param settings table  grad_checkpoint
---@return table one      prog, settings, flop (useful), run(), seconds() of a run
function step.compile(run, params, net, shape, settings)
  local g, set = step.graph(params, net, shape, settings)
  local prog = run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  local one = {prog = prog, settings = settings, flop = work.useful(prog:kinds())}
  function one.run()
    prog:run()
    run:sync()
  end
  function one.seconds()
    local from = base.now_s()
    one.run()
    return base.now_s() - from
  end
  -- memory is touched, what runs once has run
  one.run()
  return one
end

-- of each node its best time over all rounds
local function keep_best(rows, new)
  for i, row in ipairs(rows or {}) do
    row.seconds = math.min(row.seconds, new[i].seconds)
  end
  return rows or new
end

-- the mean of the peak before and behind each step: what is compared with it
local function around(before, behind)
  local means = {}
  for round = 1, #before do
    means[round] = (before[round] + behind[round]) / 2
  end
  return means
end

-- what rounds say of a step: seconds and the share of the peak around them; what is done twice
-- counts once
local function of_peak(one, flop, took, before, behind)
  local rates = {}
  for round, seconds in ipairs(took) do
    rates[round] = flop / seconds * 1e-12
  end
  return {settings = one.settings, seconds = paired.median(took),
    ratio = paired.ratio(rates, around(before, behind)), arena_bytes = one.prog:memory().arena}
end

--- A step in turn with the same step by another program, which is asked once before, to choose how
-- it runs the step: of each the best runs of a turn.
---@param result table      of a measurement: takes peer, the answer of the turn in the middle;
---   speedup, the median of how many times as fast ours is; of the largest resident size,
---   memory_share and memory_share_net, of the peer's without its import; or peer_missing, why
---   there is none
---@param run function      the step, complete when it returns
---@param prog mr.Program   of it; it is not timed any more
---@param ask function      ask(seconds): the other's answer, with seconds, peak_bytes and
---   import_bytes, or nil and why there is none
---@param seconds number    to spend on each of both
function step.in_turn(result, run, prog, ask, seconds)
  local ours, theirs, answers = {}, {}, {}
  prog:time(false)
  for turn = 0, TURNS do
    if turn > 0 then
      ours[turn] = step.best(run, seconds / TURNS)
    end
    local answer, reason = ask(seconds / TURNS)
    if not answer then
      result.peer_missing = reason
      return
    end
    if turn > 0 then
      theirs[turn], answers[turn] = answer.seconds, answer
    end
  end
  table.sort(answers, function(a, b) return a.seconds < b.seconds end)
  local middle = answers[(TURNS + 1) // 2]
  result.peer, result.speedup = middle, paired.ratio(theirs, ours)
  if result.peak_bytes then
    result.memory_share = result.peak_bytes / middle.peak_bytes
    result.memory_share_net = result.peak_bytes / (middle.peak_bytes - middle.import_bytes)
  end
end

-- Rounds of the peak and both steps: each step stands between two short samples of the peak, so
-- that all three meet the same load.
local function rounds_of(kept, again, facts, dtype, seconds)
  local peak, rows = core.product_peak(dtype, facts.threads, seconds / 50), nil
  kept.prog:time(true)
  local function sample()
    return core.product_rate(dtype, facts.threads, peak.m, peak.n, peak.k, peak.own,
      math.min((kept.last or 0) / 4, SAMPLE_S))
  end
  local got = paired.rounds({sample, function()
    kept.last = kept.seconds()
    rows = keep_best(rows, kept.prog:times())
    return kept.last
  end, sample, again.seconds, sample}, seconds)
  return got, rows, peak
end

--- Measure: in each round the step under each of `step.settings`, the product peak around them;
-- then the step in turn with another program's.
---@param options table  model: of moonreel.bench.cuts ("stdit3"); threads, dtype (nil: the
---   device's best), seconds, grad_checkpoint: of the settings that come first
---@param ask function|nil  ask(result): the same step by another program, as step.in_turn takes it
---@param say function|nil  say(result): what is measured before the other program runs
---@return table         isa, dtype, threads, flop (useful, of one step), rounds, peak_tflops,
---   peak_shape; of the first settings tflops, seconds, ratio, peak_bytes (resident), planned_bytes
---   (the same by its plan), arena_bytes, ops, loss; by_settings: of each settings, seconds,
---   ratio, arena_bytes; what step.in_turn adds
function step.measure(options, ask, say)
  local began, device <close> = core.resident(), E.device("cpu", options.threads or 0)
  local facts = device:facts()
  local dtype = options.dtype or (facts.bf16 and "bf16" or "f32")
  local shape = cuts.all[options.model or "stdit3"]
  local run <close>, params, net = step.open(device, shape, dtype)
  local first, second = table.unpack(step.settings)
  if options.grad_checkpoint then
    first, second = second, first
  end
  local kept = step.compile(run, params, net, shape, first)
  -- before anything else takes memory: the second program, the buffers of the peak
  local resident, planned = core.max_resident(), began + kept.prog:plan().total
  local again = step.compile(run, params, net, shape, second)
  local got, rows, peak = rounds_of(kept, again, facts, dtype, options.seconds)
  local flop = kept.flop
  local one = of_peak(kept, flop, got[2], got[1], got[3])
  local r = {isa = facts.isa, dtype = dtype, threads = facts.threads, flop = flop, rounds = #got[1],
    peak_tflops = paired.median(got[1]),
    peak_shape = ("%d x %d x %d, %s"):format(peak.m, peak.n, peak.k, peak.how),
    tflops = flop / one.seconds * 1e-12, seconds = one.seconds, ratio = one.ratio,
    peak_bytes = resident, planned_bytes = planned,
    arena_bytes = one.arena_bytes, ops = step.by_op(rows), loss = kept.prog:get("loss"):item(),
    by_settings = {one, of_peak(again, flop, got[4], got[3], got[5])}}
  if say then
    say(r)
  end
  if ask then
    step.in_turn(r, kept.run, kept.prog, ask(r), options.seconds)
  end
  return r
end

return step
