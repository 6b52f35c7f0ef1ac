--- The fixed step: forward and backward of a cut of STDiT3-XL/2 on random latents.
-- Width 1152, 16 heads, 2 pairs, latent [2, 4, 5, 32, 32], text 64 x 512; bf16 where the processor
-- has it.
-- @module moonreel.bench.step
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local core = require "moonreel.core.bench"
local ops = require "moonreel.core.op"
local stdit3 = require "moonreel.models.stdit3"

local step = {}

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

-- graph from noised latents to gradients in region "grad"
local function build(params, net, config)
  local g = G.graph(params)
  local B, text = step.latent[1], {step.latent[1], config.model_max_length, config.caption_channels}
  local io = {height = 8 * step.latent[4], width = 8 * step.latent[5]}
  local set = {x = step.normal("x", step.latent), x0 = step.normal("x0", step.latent),
    noise = step.normal("noise", step.latent),
    y = step.normal("y", text), t = T.from({B}, {731, 250}), fps = T.from({B}, {24, 24}),
      weight = T.from({B}, {1 / B, 1 / B})}
  for name, tensor in pairs(set) do
    io[name] = g:input(name, tensor.dtype, tensor.shape)
  end
  local loss = ops.flow_loss(net:forward(g, io), io.x0, io.noise, io.weight, false)
  g:output("loss", loss)
  g:backward(loss, {})
  g:finish()
  return g, set
end

--- FLOP of one run that count: products and attention; what attention does twice in its gradient
-- counts once.
---@param rows table  of mr.Program times()
---@return number
function step.useful_flop(rows)
  local flop = 0
  for _, row in ipairs(rows) do
    if row.op == "linear" or row.op == "linear_dx" or row.op == "linear_dw"
        or row.op == "matmul" or row.op == "attention" then
      flop = flop + row.flop
    elseif row.op == "attention_grad" then
      flop = flop + row.flop * 4 / 5
    end
  end
  return flop
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

--- Measure.
---@param options table  threads, dtype (nil: the device's best), seconds
---@return table         isa, dtype, threads, tflops, peak_tflops, ratio, seconds, peak_bytes,
---   arena_bytes, flop, peak_shape, ops
function step.measure(options)
  local device <close> = E.device("cpu", options.threads or 0)
  local facts = device:facts()
  local dtype = options.dtype or (facts.bf16 and "bf16" or "f32")
  local config = step.model
  local params = G.params(dtype)
  local net = stdit3.new(params, config)
  params:seal()
  local g, set = build(params, net, config)
  local run <close> = E.new(device, params, {training = true, no_moments = true})
  run:init(1)
  local prog = run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  local seconds, rows = step.best(function()
    prog:run()
    run:sync()
  end, options.seconds, prog)
  -- before the peak is measured: its buffers are not the step's
  local resident = core.max_resident()
  local flop = step.useful_flop(rows)
  local peak = core.product_peak(dtype, facts.threads, options.seconds / 20)
  local tflops = flop / seconds * 1e-12
  return {isa = facts.isa, dtype = dtype, threads = facts.threads, tflops = tflops,
    peak_tflops = peak.tflops,
    ratio = tflops / peak.tflops, seconds = seconds, peak_bytes = resident,
      arena_bytes = prog:memory().arena, flop = flop,
    peak_shape = ("%d x %d x %d, %s"):format(peak.m, peak.n, peak.k, peak.how),
      ops = step.by_op(rows),
    loss = prog:get("loss"):item()}
end

return step
