-- moonreel cuda/bench/kernels.lua DEVICE [small]: runs single ops on a device at the sizes of
-- `moonreel bench kernels`. Checks that all results are near the CPU's, on random inputs and with
-- poisoned outputs, and have the same bits in two runs. Then times the ops by events, at a batch so
-- large that an op reads at least 256 MB, which no cache holds, and compares them with the device's
-- own copies and products. Also times the optimizer. `small`: a sixteenth of the sizes, for the
-- emulated GPU, where times have no meaning. Exit 1 if a result is wrong.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local kernels = require "moonreel.bench.kernels"
local nn = require "moonreel.nn"
local optim = require "moonreel.optim"
local paired = require "moonreel.bench.paired"
local regions = require "moonreel.optim.regions"

local drawn = dofile "cuda/bench/drawn.lua"

local RUNS, TOLERANCE = 7, 1e-2 -- both sides round to bf16, with 8 bits
local READ_BYTES = 256e6 -- per timed run: several times the L2
local WIDTH = {f32 = 4, bf16 = 2, bool = 1}

local name, small = ...
small = small == "small"
local seed = math.tointeger(os.getenv("MOONREEL_SEED")) or base.wall_s() // 1 | 0
local cpu <close> = E.device("cpu")
local device <close> = E.device(name or "cuda")

-- compile a graph that `build` fills, and set its inputs
local function program(on, build, set)
  local g = G.graph()
  build(g)
  g:finish()
  local run = E.new(on, nil, {poison = true})
  local prog = run:compile(g)
  for key, tensor in pairs(set) do
    prog:set(key, tensor)
  end
  return prog, run, g:outputs()
end

-- run it and return all its results by name
local function results(on, build, set)
  local prog, run, names = program(on, build, set)
  local _ <close> = run
  prog:run()
  run:sync()
  local list = {}
  for _, key in ipairs(names) do
    list[key] = prog:get(key)
  end
  return list
end

local draws = 0
local function normal(dtype, dims)
  draws = draws + 1
  if #dims == 1 then
    local values = {}
    for i = 1, dims[1] do
      values[i] = base.random_normal(seed, "kernels", draws, 0, i - 1)
    end
    return T.from(dims, values, dtype)
  end
  local keys = {}
  for i = 1, dims[1] do
    keys[i] = i
  end
  return results(cpu, function(g)
    local x = G.op("random_normal", {g:input("seed", "i64", {1}), g:input("keys", "i64", {dims[1]}),
      g:input("epoch", "i32", {1})}, {dims = table.move(dims, 2, #dims, 1, {})})
    g:output("x", dtype == "f32" and x or (G.op("cast", {x}, {dtype = dtype})))
  end, {seed = T.from({1}, {seed}, "i64"), keys = T.from({dims[1]}, keys, "i64"),
    epoch = T.from({1}, {draws}, "i32")}).x
end

-- |a - b| / |b|, on the CPU
local function distance(a, b)
  local sums = results(cpu, function(g)
    local x, y = g:input("a", a.dtype, a.shape), g:input("b", b.dtype, b.shape)
    if a.dtype ~= "f32" then
      x, y = G.op("cast", {x}, {dtype = "f32"}), G.op("cast", {y}, {dtype = "f32"})
    end
    local d, axes = G.op("sub", {x, y}), {}
    for i = 1, #a.shape do
      axes[i] = i - 1
    end
    g:output("off", (G.op("sum", {(G.op("mul", {d, d}))}, {axes = axes})))
    g:output("size", (G.op("sum", {(G.op("mul", {y, y}))}, {axes = axes})))
  end, {a = a, b = b})
  return math.sqrt(sums.off:item() / sums.size:item())
end

-- the largest distance of all results
local function distances(a, b)
  local most = 0
  for key, want in pairs(b) do
    local off = distance(a[key], want)
    most = off <= most and most or off -- NaN stays
  end
  return most
end

local function shrunk(dims)
  for i = 1, small and #dims or 0 do
    dims[i] = dims[i] % 16 == 0 and dims[i] // 16 or dims[i]
  end
  return dims
end

local function of_row(row)
  local set, specs = {}, {}
  for i, spec in ipairs(row.inputs) do
    if spec then
      specs[i] = {spec[1] == "" and "bf16" or spec[1], shrunk(table.move(spec, 2, #spec, 1, {}))}
      set["in" .. i] = normal(table.unpack(specs[i]))
    end
  end
  return function(g)
    local args = {}
    for i = 1, #row.inputs do
      args[i] = specs[i] and g:input("in" .. i, table.unpack(specs[i])) or false
    end
    for i, y in ipairs{G.op(row.op, args, {})} do
      g:output("y" .. i, y)
    end
  end, set
end

-- The inputs of an op as {dtype, dims}, with the batch increased until they have READ_BYTES. The
-- batch is the first extent of the first input, and of all inputs whose first extent equals it.
local function large(row)
  local batch, bytes = row.inputs[1][2], 0
  local specs = {}
  for i, spec in ipairs(row.inputs) do
    specs[i] = spec and {spec[1] == "" and "bf16" or spec[1],
      shrunk(table.move(spec, 2, #spec, 1, {}))}
    if spec and spec[2] == batch then
      local size = WIDTH[specs[i][1]]
      for k = 2, #spec do
        size = size * spec[k]
      end
      bytes = bytes + size
    end
  end
  local times = small and 1 or math.ceil(READ_BYTES / bytes)
  for i, spec in ipairs(row.inputs) do
    if spec and spec[2] == batch then
      specs[i][2][1] = specs[i][2][1] * times
    end
  end
  return specs
end

-- cost of an op: seconds by events (median of the runs), flop and bytes
local function timed(row)
  local one, args = drawn.graph(), {}
  for i, spec in ipairs(large(row)) do
    args[i] = spec and one.normal(spec[1], spec[2])
  end
  for i, y in ipairs{G.op(row.op, args, {})} do
    one.see("y" .. i, y)
  end
  return drawn.measure(device, one, small and 1 or RUNS)[row.op]
end

-- bytes per second of a copy, or operations per second of a product
local function ceiling(op, inputs, what)
  local cost = timed{op = op, inputs = inputs}
  return cost[what] / cost.seconds
end

-- seconds and bytes of the optimizer's two passes over n parameters, with averages
local function optimizer(count)
  local params = G.params("bf16")
  nn.scope(params):add("all", {count}, {kind = "normal", scale = 1})
  params:seal()
  local run <close> = E.new(device, params, {regions = regions.adamw{ema = true}})
  run:init(1)
  local update, took, bytes = optim.new(run, params), {}, nil
  local gradient = T.new("f32", {count}):fill_normal(seed, "gradient", count)
  update.prog:time(true)
  for i = 1, small and 1 or RUNS do
    -- the previous update set the gradient to zero
    run:set_param("grad", "all", gradient)
    update:step{lr = 1e-4, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01,
      max_norm = 1, ema_decay = 0.99, step = i, grad_scale = 1}
    took[i], bytes = 0, 0
    for _, row in ipairs(update.prog:times()) do
      took[i], bytes = took[i] + row.seconds, bytes + row.bytes
    end
  end
  return paired.median(took), bytes
end

local bad = 0
local peak = {bytes = ceiling("copy", {{"", 4096, 16384}}, "bytes"),
  flop = ceiling("linear", {{"", 8192, 8192}, {"", 8192, 8192}}, "flop")}
print(("%s, seed %d: copies %.0f GB/s, products %.0f TFLOP/s"):format(name or "cuda", seed,
  peak.bytes / 1e9, peak.flop / 1e12))
print(("%-26s %-18s %9s %5s %9s %9s %9s %6s"):format("op", "first input", "error", "bits", "us",
  "GB/s", "TFLOP/s", "share"))
for _, row in ipairs(kernels.rows) do
  local build, set = of_row(row)
  local want, got = results(cpu, build, set), results(device, build, set)
  local off, same = distances(got, want), distances(results(device, build, set), got) == 0
  local good = off <= TOLERANCE and same
  local cost = timed(row)
  bad = bad + (good and 0 or 1)
  print(("%-26s %-18s %9.2g %5s %9.1f %9.0f %9.1f %5.0f%%%s"):format(row.op,
    table.concat(set.in1.shape, " "), off, same and "same" or "DIFF",
    cost.seconds * 1e6, cost.bytes / cost.seconds / 1e9, cost.flop / cost.seconds / 1e12,
    100 * cost[row.limit] / cost.seconds / peak[row.limit], good and "" or "  WRONG"))
end
local seconds, bytes = optimizer(small and 4096 or 1 << 26)
print(("%-26s %-18s %9s %5s %9.1f %9.0f %9s %5.0f%%"):format("clip, AdamW, averages",
  small and "4096 weights" or "2^26 weights", "", "", seconds * 1e6, bytes / seconds / 1e9, "",
  100 * bytes / seconds / peak.bytes))
if bad > 0 then
  error(("%d of %d rows are wrong"):format(bad, #kernels.rows), 0)
end
