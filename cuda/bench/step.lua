-- moonreel cuda/bench/step.lua DEVICE [small|large [PYTHON]]: forward and backward of STDiT3-XL/2
-- in bf16, with recomputed blocks, on latents of four buckets of the Lambda stage 1. Prints
--   seconds, and the planner's forecast from this device's rates;
--   useful TFLOP/s, and their share of the fastest product measured here;
--   the share of launches in the step (from a captured run of almost empty launches);
--   the planned arena, and the memory that the device gave;
--   the time of a plain PyTorch model with fused attention relative to ours, if PYTHON has PyTorch.
-- `small`: one pair of narrow blocks on a small latent, for the emulated GPU. Captions are 512
-- wide; the update and the encoders are not included. A bucket that does not fit is reported. The
-- command fails if the device gave other memory than planned.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local paired = require "moonreel.bench.paired"
local peer = require "moonreel.bench.peer"
local regions = require "moonreel.optim.regions"
local step = require "moonreel.bench.step"

local drawn = dofile "cuda/bench/drawn.lua"

local RUNS, LAUNCHES = 5, 256

local name, small, python = ...
small = small == "small"
local device <close> = E.device(name or "cuda")
local XL = {depth = 28, hidden_size = 1152, num_heads = 16, caption_channels = 512,
  model_max_length = 300}
-- latents [batch, channels, frames, height, width]: 17 frames become 5, 8 pixels become one
local buckets = {
  {"144p x 51", {51, 4, 15, 19, 29}}, {"240p x 51", {20, 4, 15, 55, 29}},
  {"360p x 51", {8, 4, 15, 49, 73}}, {"480p image", {89, 4, 1, 63, 101}}}
if small then
  XL = {depth = 1, hidden_size = 32, num_heads = 2, caption_channels = 32, model_max_length = 8}
  buckets = {{"small", {1, 4, 2, 4, 6}}}
end

local function shape_of(latent) return {family = "stdit3", model = XL, latent = latent} end

-- operations per second of a square product in bf16: the best of the runs
local function product_rate()
  local n = small and 64 or 8192
  local one = drawn.graph()
  local x, w = one.normal("bf16", {n, n}), one.normal("bf16", {n, n})
  one.see("y", (G.op("linear", {x, w, false}, {})))
  local product = drawn.measure(device, one, RUNS).linear
  return product.flop / product.least
end

-- seconds of one launch in a captured run of almost empty launches
local function launch_seconds()
  local g = G.graph()
  local x = g:input("x", "f32", {1})
  for _ = 1, LAUNCHES do
    x = G.op("silu", {x})
  end
  g:output("x", x)
  g:finish()
  local run <close> = E.new(device, nil, {})
  local prog, took = run:compile(g), {}
  prog:set("x", T.from({1}, {1}))
  for i = 1, RUNS + 2 do
    local from = base.now_s()
    prog:run()
    run:sync()
    took[i] = base.now_s() - from
  end
  -- the first run enqueued the steps, the second captured them
  return paired.median(table.move(took, 3, #took, 1, {})) / LAUNCHES
end

-- the planner's forecast in seconds, from the rates of this device
local function predicted(params, net, latent)
  local dry <close> = E.plan(params, {regions = regions.gradients(true), facts = device:facts(),
    rates = device})
  return dry:compile((step.graph(params, net, shape_of(latent), {grad_checkpoint = true})))
    :plan().seconds
end

-- PyTorch's seconds, or nil
local function theirs(latent, flop)
  if not python or python == "" then
    return nil
  end
  local result, why = peer.run(python, "step", {device = name ~= "cudaemu" and "cuda" or nil,
    threads = 2, isa = "", seconds = 2, dtype = "bf16", family = "stdit3", latent = latent,
    model = XL, flop = flop,
    grad_checkpoint = true})
  if not result then
    print("  " .. why)
  end
  return result and result.seconds
end

local function measure(run, params, net, latent)
  local free = device:memory()
  local one = step.compile(run, params, net, shape_of(latent),
    {grad_checkpoint = true})
  local took = {}
  for i = 1, RUNS do
    took[i] = one.seconds()
  end
  local loss = one.prog:get("loss"):item()
  if loss ~= loss then
    error("the loss is NaN", 0)
  end
  return {seconds = paired.median(took), flop = one.flop, arena = one.prog:memory().arena,
    given = free - (device:memory()), launches = #one.prog:times()}
end

local peak, launch = product_rate(), launch_seconds()
print(("%s: products %.1f TFLOP/s, a launch %.2f us"):format(name or "cuda", peak / 1e12,
  launch * 1e6))
print(("%-12s %9s %9s %9s %6s %6s %10s %10s %9s"):format("bucket", "seconds", "planned s",
  "TFLOP/s", "share", "gaps", "planned GB", "given GB", "x PyTorch"))
local run <close>, params, net = step.open(device, shape_of(), "bf16")
-- bytes of the arena that exist already: at first those of gradients
local bad, had = 0, 0
for _, row in ipairs(run:regions()) do
  had = had + (row.transient and row.bytes or 0)
end
for _, bucket in ipairs(buckets) do
  local ok, got = pcall(measure, run, params, net, bucket[2])
  collectgarbage()
  if ok then
    local other = theirs(bucket[2], got.flop)
    -- the arena is one allocation, rounded up to pages; the rest of a program is small in
    -- comparison
    local all = got.given + had
    local as_planned = all >= got.arena and all <= math.max(got.arena, had) + (16 << 20)
    had = math.max(had, got.arena)
    bad = bad + (as_planned and 0 or 1)
    print(("%-12s %9.4f %9.2g %9.1f %5.0f%% %5.1f%% %10.3f %10.3f %9s%s"):format(bucket[1],
      got.seconds, predicted(params, net, bucket[2]), got.flop / got.seconds / 1e12,
      100 * got.flop / got.seconds / peak, 100 * got.launches * launch / got.seconds,
      got.arena / 1e9, all / 1e9, other and ("%.2f"):format(other / got.seconds) or "-",
      as_planned and "" or "  NOT AS PLANNED"))
  else
    bad = bad + ((type(got) ~= "table" or got.code ~= "MR_E_MEMORY") and 1 or 0)
    print(("%-12s %s"):format(bucket[1], (tostring(got):gsub("%s*\n%s*", " | "))))
  end
end
if bad > 0 then
  error(bad .. " buckets failed", 0)
end
