--- The fixed step: forward and backward pass of a part of a released model with random latents,
-- built as the trainer builds it, with and without `grad_checkpoint`; in bf16 if the processor
-- supports it.
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

local SAMPLE_S = 0.25 -- seconds of a sample of the peak, next to a step
local TURNS = 5 -- turns of a step and of the other program's step

-- the settings of a recipe that decide what a step keeps and what it computes twice
step.settings = {{grad_checkpoint = false}, {grad_checkpoint = true}}

--- The graph from noised latents to gradients in region "grad", and inputs for it.
---@param params mr.Params
---@param net table       from step.open, as is params
---@param shape table     shape of moonreel.bench.cuts
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

--- The best time of repeated runs, after a run to warm up.
---@param run function           one run; it has completed when it returns
---@param seconds number         time to spend, for at least four runs
---@param prog mr.Program|nil    timed node by node: the best time of each node counts, so that
---   other load is not attributed to an op
---@return number seconds        time of the best run
---@return table|nil rows        rows of prog:times()
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

--- The time per op: one row per op name, the largest time first.
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

--- Opens a model and an executor with its gradients.
---@param device mr.Device
---@param shape table   shape of moonreel.bench.cuts
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

--- Compiles one program of the step.
---@param run mr.Exec
---@param params mr.Params
---@param net table       from step.open, as are run and params
---@param shape table     shape of moonreel.bench.cuts
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
  -- run once, so that memory is allocated
  one.run()
  return one
end

-- the best time of each node over all rounds
local function keep_best(rows, new)
  for i, row in ipairs(rows or {}) do
    row.seconds = math.min(row.seconds, new[i].seconds)
  end
  return rows or new
end

-- the mean of the peaks before and after each step, with which it is compared
local function around(before, behind)
  local means = {}
  for round = 1, #before do
    means[round] = (before[round] + behind[round]) / 2
  end
  return means
end

-- the result of the rounds of a step: seconds, and the share of the peak measured around them; work
-- that is done twice counts once
local function of_peak(one, flop, took, before, behind)
  local rates = {}
  for round, seconds in ipairs(took) do
    rates[round] = flop / seconds * 1e-12
  end
  return {settings = one.settings, seconds = paired.median(took),
    ratio = paired.ratio(rates, around(before, behind)), arena_bytes = one.prog:memory().arena}
end

--- Runs a step alternately with the same step in another program. The other program is called once
-- before, to choose how it runs the step. Of each turn the best runs count.
---@param result table      of a measurement; receives peer: the answer of the median turn; speedup:
---   the median ratio of the peer's time to moonreel's; memory_share and memory_share_net: peak
---   memory relative to the peer's, the latter without its imports; or peer_missing: why there is
---   no peer
---@param run function      the step; it has completed when it returns
---@param prog mr.Program   program of the step; it is no longer timed
---@param ask function      ask(seconds): the other program's answer, with seconds, peak_bytes and
---   import_bytes, or nil and why there is no answer
---@param seconds number    time to spend on each of the two
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

-- Rounds of the peak and both steps: each step is between two short samples of the peak, so that
-- the same other load affects all three.
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

--- Measures in each round the step with each of `step.settings` and the product peak around them;
-- then the step alternately with another program's.
---@param options table  model: name in moonreel.bench.cuts ("stdit3"); threads, dtype (nil: the
---   device's best), seconds, grad_checkpoint: the settings that come first
---@param ask function|nil  ask(result): runs the same step in another program, as for step.in_turn
---@param say function|nil  say(result): receives the measurement before the other program runs
---@return table         isa, dtype, threads, flop (useful, of one step), rounds, peak_tflops,
---   peak_shape; of the first settings tflops, seconds, ratio, peak_bytes (resident), planned_bytes
---   (the same by its plan), arena_bytes, ops, loss; by_settings: for each settings: seconds,
---   ratio, arena_bytes; and what step.in_turn adds
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
  -- before other allocations: the second program and the buffers of the peak
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
