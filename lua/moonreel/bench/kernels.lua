--- Single ops at the sizes of the fixed step, against the machine's limits.
-- A case is a graph of one node. Its rate is the bytes or FLOP of the op's own cost formula per
-- second. The limit is measured alternately with it: the product peak, or a plain pass over memory
-- of the same size, so that it uses the same caches.
-- @module moonreel.bench.kernels
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local core = require "moonreel.core.bench"
local paired = require "moonreel.bench.paired"

local kernels = {}

-- inputs: {dtype ("" = compute dtype), dims...}; false = absent; limit: what bounds the op
local X, M, H = {"", 2, 5, 256, 1152}, {"", 2, 5, 1152}, {"", 2, 5, 256, 16, 72}
local SHORT, LSE = {"", 2, 256, 5, 16, 72}, {"f32", 2, 5, 16, 256}
kernels.rows = {
  {op = "linear", inputs = {X, {"", 3456, 1152}, {"", 3456}}, limit = "flop"},
  {op = "linear", inputs = {X, {"", 4608, 1152}, {"", 4608}}, limit = "flop"},
  {op = "linear_dx", inputs = {{"", 2, 5, 256, 4608}, {"", 4608, 1152}}, limit = "flop"},
  {op = "linear_dw", inputs = {{"", 2, 5, 256, 4608}, X, {"f32", 4608, 1152}}, limit = "flop"},
  -- with the gradient of a bias, which is useful if it is faster than the two ops separately
  {op = "linear_dw", inputs = {{"", 2, 5, 256, 4608}, X, {"f32", 4608, 1152}, {"f32", 4608}},
    limit = "flop"},
  {op = "linear_db", inputs = {{"", 2, 5, 256, 4608}, {"f32", 4608}}, limit = "bytes"},
  {op = "attention", inputs = {H, H, H, false}, limit = "flop"},
  {op = "attention_grad", inputs = {H, H, H, false, H, LSE, H, false}, limit = "flop"},
  {op = "attention", inputs = {SHORT, SHORT, SHORT, false}, limit = "bytes"},
  {op = "attention_grad", inputs = {SHORT, SHORT, SHORT, false, SHORT, {"f32", 2, 256, 16, 5},
    SHORT, false}, limit = "bytes"},
  {op = "layer_norm_modulate", inputs = {X, M, M}, limit = "bytes"},
  {op = "layer_norm_modulate_grad", inputs = {X, M, X}, limit = "bytes"},
  {op = "qk_norm", inputs = {H, {"", 72}, false, false}, limit = "bytes"},
  {op = "qk_norm_grad", inputs = {H, {"", 72}, false, false, H, {"f32", 72}}, limit = "bytes"},
  {op = "gated_residual", inputs = {X, M, X}, limit = "bytes"},
  {op = "gated_residual_grad", inputs = {M, X, X}, limit = "bytes"},
  {op = "gelu_tanh", inputs = {{"", 2, 5, 256, 4608}}, limit = "bytes"},
  {op = "gelu_tanh_grad", inputs = {{"", 2, 5, 256, 4608}, {"", 2, 5, 256, 4608}}, limit = "bytes"},
  {op = "add", inputs = {X, X}, limit = "bytes"},
  {op = "where", inputs = {{"bool", 2, 5, 256, 1152}, X, X}, limit = "bytes"},
  {op = "sum_squares", inputs = {{"f32", 2 * 5 * 256 * 1152}}, limit = "bytes"},
}

--- Calls use(run, cost) with a function that runs a row once and the cost of its op, while its
-- program exists.
---@param device mr.Device
---@param row table     op, inputs as in `rows`, attributes or nil
---@param dtype string  "f32" or "bf16"
---@param use function
---@return any          result of use
function kernels.with_program(device, row, dtype, use)
  local g = G.graph()
  local args, set = {}, {}
  for i, spec in ipairs(row.inputs) do
    args[i] = false
    if spec then
      local dims = table.move(spec, 2, #spec, 1, {})
      local kind = spec[1] == "" and dtype or spec[1]
      args[i] = g:input("in" .. i, kind, dims)
      -- zeros: values do not change the work
      set["in" .. i] = T.new(kind, dims)
    end
  end
  -- only one element, because a program copies its outputs, which is not part of the op
  local out = G.op(row.op, args, row.attributes or {})
  for axis = 0, #out.shape - 1 do
    out = out:slice(axis, 0, 1)
  end
  g:output("out", out)
  g:finish()
  local run <close> = E.new(device, nil, {})
  local prog = run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  for _, cost in ipairs(prog:times()) do
    if cost.op == row.op then
      return use(function()
        prog:run()
        run:sync()
      end, cost)
    end
  end
end

-- the limit of a row, measured for `window` seconds: FLOP or bytes per second
local function limit_of(row, cost, peak, dtype, threads, window)
  if row.limit == "flop" then
    return core.product_rate(dtype, threads, peak.m, peak.n, peak.k, peak.own, window) * 1e12
  end
  return core.memory_rate(math.ceil(cost.bytes), threads, window)
end

--- Measures every row.
---@param options table  threads, dtype, seconds
---@return table rows    op, shape, seconds, gb_per_s, tflops, limit (what bounds it), limit_rate
---   (FLOP or bytes per second), of_limit (median of the share of the limit)
---@return table machine isa, dtype, threads
function kernels.measure(options)
  local device <close> = E.device("cpu", options.threads or 0)
  local facts = device:facts()
  local dtype = options.dtype or (facts.bf16 and "bf16" or "f32")
  local peak = core.product_peak(dtype, facts.threads, options.seconds / 50)
  local out = {}
  for _, row in ipairs(kernels.rows) do
    out[#out + 1] = kernels.with_program(device, row, dtype, function(run, cost)
      local window = options.seconds / 100
      run()
      local got = paired.rounds({
        function() return limit_of(row, cost, peak, dtype, facts.threads, window) end,
        function() return paired.rate(run, window) end,
      }, options.seconds / 20)
      local runs_per_s = paired.median(got[2])
      return {op = row.op, shape = "[" .. table.concat(row.inputs[1], ",", 2) .. "]",
        seconds = 1 / runs_per_s, gb_per_s = cost.bytes * runs_per_s * 1e-9,
        tflops = cost.flop * runs_per_s * 1e-12, limit = row.limit,
        limit_rate = paired.median(got[1]),
        of_limit = cost[row.limit] * paired.ratio(got[2], got[1])}
    end)
  end
  return out, {isa = facts.isa, dtype = dtype, threads = facts.threads}
end

return kernels
