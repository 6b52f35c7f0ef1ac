--- Single ops at the sizes of the fixed step, against the machine's limits.
-- A row is a graph of one node; its rate is bytes or FLOP of the op's own cost formula per second
-- of its best run.
-- @module moonreel.bench.kernels
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local core = require "moonreel.core.bench"
local step = require "moonreel.bench.step"

local kernels = {}

-- inputs: {dtype ("" = compute), dims...}; false = absent; limit: what bounds the op
local X, M, H = {"", 2, 5, 256, 1152}, {"", 2, 5, 1152}, {"", 2, 5, 256, 16, 72}
local SHORT, LSE = {"", 2, 256, 5, 16, 72}, {"f32", 2, 5, 16, 256}
kernels.rows = {
  {op = "linear", inputs = {X, {"", 3456, 1152}, {"", 3456}}, limit = "flop"},
  {op = "linear", inputs = {X, {"", 4608, 1152}, {"", 4608}}, limit = "flop"},
  {op = "linear_dx", inputs = {{"", 2, 5, 256, 4608}, {"", 4608, 1152}}, limit = "flop"},
  {op = "linear_dw", inputs = {{"", 2, 5, 256, 4608}, X, {"f32", 4608, 1152}}, limit = "flop"},
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
}

local function one(device, row, dtype, seconds)
  local g = G.graph()
  local args, set = {}, {}
  for i, spec in ipairs(row.inputs) do
    args[i] = false
    if spec then
      local dims = table.move(spec, 2, #spec, 1, {})
      local kind = spec[1] == "" and dtype or spec[1]
      args[i] = g:input("in" .. i, kind, dims)
      -- zeros but for a slope: values do not change the work
      set["in" .. i] = T.new(kind, dims)
    end
  end
  g:output("out", (G.op(row.op, args, {})))
  g:finish()
  local run <close> = E.new(device, nil, {})
  local prog = run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  local _, rows = step.best(function()
    prog:run()
    run:sync()
  end, seconds, prog)
  for _, t in ipairs(rows) do
    if t.op == row.op then
      return t
    end
  end
end

--- Measure every row.
---@param options table  threads, dtype, seconds
---@return table rows    op, shape, seconds, gb_per_s, tflops, of_limit (share of the limit that
---   bounds it)
---@return table limits  product_tflops, memory_gb_per_s
function kernels.measure(options)
  local device <close> = E.device("cpu", options.threads or 0)
  local facts = device:facts()
  local dtype = options.dtype or (facts.bf16 and "bf16" or "f32")
  local limits = {isa = facts.isa, dtype = dtype, threads = facts.threads,
    product_tflops = core.product_peak(dtype, facts.threads, options.seconds / 20).tflops,
    memory_gb_per_s = core.memory_rate(facts.threads, options.seconds / 20) * 1e-9}
  local out = {}
  for _, row in ipairs(kernels.rows) do
    local t = one(device, row, dtype, options.seconds / 20)
    local rate = {gb_per_s = t.bytes / t.seconds * 1e-9, tflops = t.flop / t.seconds * 1e-12}
    local shape = table.concat(row.inputs[1], ",", 2)
    out[#out + 1] = {op = row.op, shape = "[" .. shape .. "]", seconds = t.seconds,
      gb_per_s = rate.gb_per_s, tflops = rate.tflops,
      of_limit = row.limit == "flop" and rate.tflops / limits.product_tflops
        or rate.gb_per_s / limits.memory_gb_per_s, limit = row.limit}
  end
  return out, limits
end

return kernels
