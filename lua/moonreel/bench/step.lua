--- The fixed step: forward and backward of a cut of STDiT3-XL/2 on random latents, as the trainer
-- builds it, once with and once without `grad_checkpoint`.
-- Width 1152, 16 heads, 2 pairs, latent [2, 4, 5, 32, 32], text 64 x 512; bf16 where the processor
-- has it.
-- @module moonreel.bench.step
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local core = require "moonreel.core.bench"
local ops = require "moonreel.core.op"
local paired = require "moonreel.bench.paired"
local regions = require "moonreel.optim.regions"
local program = require "moonreel.trainer.program"
local stdit3 = require "moonreel.models.stdit3"
local work = require "moonreel.plan.work"

local step = {}

local SAMPLE_S = 0.25 -- of the peak, beside a step

step.model = {depth = 2, hidden_size = 1152, num_heads = 16, caption_channels = 512,
  model_max_length = 64}
step.latent = {2, 4, 5, 32, 32}

--- Normal numbers of a shape, the same in every run.
function step.normal(name, shape)
  local v = {}
  for i = 1, T.count(shape) do
    v[i] = base.random_normal(1, name, 0, 0, i - 1)
  end
  return T.from(shape, v)
end

-- the settings of a recipe that decide what a step keeps and what it does twice
step.settings = {{grad_checkpoint = false}, {grad_checkpoint = true}}

-- as many values as there are samples
local function each(samples, of)
  local values = {}
  for i = 1, samples do
    values[i] = of(i)
  end
  return T.from({samples}, values)
end

--- The graph from noised latents to gradients in region "grad", and inputs for it.
---@param params mr.Params
---@param net table       of step.open, as is the one before
---@param shape table     model, latent
---@param settings table  grad_checkpoint
---@return mr.Graph graph
---@return table<string, mr.Tensor> set
function step.graph(params, net, shape, settings)
  local options, recompute = program.recomputation(settings)
  local g = G.graph(params, options)
  local latent, config = shape.latent, shape.model
  local B, text = latent[1], {latent[1], config.model_max_length, config.caption_channels}
  local io = {height = 8 * latent[4], width = 8 * latent[5], recompute = recompute}
  local set = {x = step.normal("x", latent), x0 = step.normal("x0", latent),
    noise = step.normal("noise", latent), y = step.normal("y", text),
    t = each(B, function(i) return 731 * i % 1000 end), fps = each(B, function() return 24 end),
    weight = each(B, function() return 1 / B end)}
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
---@param model table   fields of STDiT3
---@param dtype string
---@return mr.Exec run, mr.Params params, table net
function step.open(device, model, dtype)
  local params = G.params(dtype)
  local net = stdit3.new(params, model)
  params:seal()
  local run = E.new(device, params, {regions = regions.gradients()})
  run:init(1)
  return run, params, net
end

--- One program of the step, ready to run.
---@param run mr.Exec
---@param params mr.Params
---@param net table       of step.open, as are the two before
---@param shape table     model, latent
---@param settings table  grad_checkpoint
---@return table one      prog, settings, flop (useful), run(), seconds() of a run
function step.compile(run, params, net, shape, settings)
  local g, set = step.graph(params, net, shape, settings)
  local prog = run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  local one = {prog = prog, settings = settings, flop = work.useful(prog:times())}
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

--- Measure: in each round the step under each of `step.settings`, the product peak around them.
---@param options table  threads, dtype (nil: the device's best), seconds, grad_checkpoint: of the
---   settings that come first
---@return table         isa, dtype, threads, flop (useful, of one step), rounds, peak_tflops,
---   peak_shape; of the first settings tflops, seconds, ratio, peak_bytes (resident), planned_bytes
---   (the same by its plan), arena_bytes, ops, loss; by_settings: of each settings, seconds,
---   ratio, arena_bytes
function step.measure(options)
  local began, device <close> = core.resident(), E.device("cpu", options.threads or 0)
  local facts = device:facts()
  local dtype = options.dtype or (facts.bf16 and "bf16" or "f32")
  local shape = {model = step.model, latent = step.latent}
  local run, params, net = step.open(device, step.model, dtype)
  local _ <close> = run
  local first, second = table.unpack(step.settings)
  if options.grad_checkpoint then
    first, second = second, first
  end
  local kept = step.compile(run, params, net, shape, first)
  -- before anything else takes memory: the second program, the buffers of the peak
  local resident, planned = core.max_resident(), began + kept.prog:plan().total
  local again = step.compile(run, params, net, shape, second)
  local peak = core.product_peak(dtype, facts.threads, options.seconds / 50)
  local rows
  kept.prog:time(true)
  -- Each step stands between two short samples of the peak, so that all three meet the same load;
  -- what is compared with a step is the mean of its neighbours.
  local function sample()
    return core.product_rate(dtype, facts.threads, peak.m, peak.n, peak.k, peak.own,
      math.min((kept.last or 0) / 4, SAMPLE_S))
  end
  local got = paired.rounds({sample, function()
    kept.last = kept.seconds()
    rows = keep_best(rows, kept.prog:times())
    return kept.last
  end, sample, again.seconds, sample}, options.seconds)
  local flop, by_settings = kept.flop, {}
  for i, one in ipairs{kept, again} do
    local took, rates, around = got[2 * i], {}, {}
    for round, seconds in ipairs(took) do
      -- what is done twice counts once
      rates[round] = flop / seconds * 1e-12
      around[round] = (got[2 * i - 1][round] + got[2 * i + 1][round]) / 2
    end
    by_settings[i] = {settings = one.settings, seconds = paired.median(took),
      ratio = paired.ratio(rates, around), arena_bytes = one.prog:memory().arena}
  end
  local one = by_settings[1]
  return {isa = facts.isa, dtype = dtype, threads = facts.threads, flop = flop, rounds = #got[1],
    peak_tflops = paired.median(got[1]),
    peak_shape = ("%d x %d x %d, %s"):format(peak.m, peak.n, peak.k, peak.how),
    tflops = flop / one.seconds * 1e-12, seconds = one.seconds, ratio = one.ratio,
    peak_bytes = resident, planned_bytes = planned,
    arena_bytes = one.arena_bytes, ops = step.by_op(rows),
    loss = kept.prog:get("loss"):item(), by_settings = by_settings}
end

return step
