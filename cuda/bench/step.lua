-- moonreel cuda/bench/step.lua DEVICE [small]: forward and backward of STDiT3-XL/2 in bf16, blocks
-- done twice to keep less, on latents of four buckets of the Lambda stage 1: seconds, useful
-- TFLOP/s, their share of the best product that ran beside it, the arena that was planned and what
-- the device says it gave. `small`: one pair of narrow blocks on a small latent, for the emulated
-- GPU. Captions are 512 wide; the update and the encoders are left out. A bucket that does not fit
-- says so.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local paired = require "moonreel.bench.paired"
local step = require "moonreel.bench.step"

local RUNS = 5

local name, small = ...
local device <close> = E.device(name or "cuda")
local XL = {depth = 28, hidden_size = 1152, num_heads = 16, caption_channels = 512,
  model_max_length = 300}
-- latents [batch, channels, frames, height, width]: 17 frames are 5, 8 pixels are one
local buckets = {
  {"144p x 51", {51, 4, 15, 19, 29}}, {"240p x 51", {20, 4, 15, 55, 29}},
  {"360p x 51", {8, 4, 15, 49, 73}}, {"480p image", {89, 4, 1, 63, 101}}}
if small == "small" then
  XL = {depth = 1, hidden_size = 32, num_heads = 2, caption_channels = 32, model_max_length = 8}
  buckets = {{"small", {1, 4, 2, 4, 6}}}
end

-- operations a second of a square product, bf16
local function product_rate()
  local n = small == "small" and 64 or 8192
  local g = G.graph()
  g:output("y", (G.op("linear", {g:input("x", "bf16", {n, n}), g:input("w", "bf16", {n, n}), false},
    {})))
  g:finish()
  local run <close> = E.new(device, nil, {})
  local prog, values = run:compile(g), {}
  for i = 1, n * 64 do
    values[i] = base.random_normal(1, "product", 0, 0, i - 1)
  end
  for i = n * 64 + 1, n * n do
    values[i] = values[i - n * 64]
  end
  prog:set("x", T.from({n, n}, values, "bf16"))
  prog:set("w", T.from({n, n}, values, "bf16"))
  prog:time(true)
  local best
  for _ = 1, RUNS do
    prog:run()
    run:sync()
    for _, row in ipairs(prog:times()) do
      if row.op == "linear" and (not best or row.flop / row.seconds > best) then
        best = row.flop / row.seconds
      end
    end
  end
  return best
end

local function measure(run, params, net, latent)
  local free = device:memory()
  local one = step.compile(run, params, net, {model = XL, latent = latent},
    {grad_checkpoint = true})
  local took = {}
  for i = 1, RUNS do
    took[i] = one.seconds()
  end
  local loss = one.prog:get("loss"):item()
  if loss ~= loss then
    error("the loss is no number", 0)
  end
  return paired.median(took), one.flop, one.prog:memory().arena, free - (device:memory())
end

local peak = product_rate()
print(("%s: products %.1f TFLOP/s"):format(name or "cuda", peak / 1e12))
print(("%-12s %9s %9s %6s %11s %11s"):format("bucket", "seconds", "TFLOP/s", "share", "planned GB",
  "given GB"))
local run <close>, params, net = step.open(device, XL, "bf16")
local bad = 0
for _, bucket in ipairs(buckets) do
  local ok, seconds, flop, planned, given = pcall(measure, run, params, net, bucket[2])
  collectgarbage()
  if ok then
    print(("%-12s %9.4f %9.1f %5.0f%% %11.3f %11.3f"):format(bucket[1], seconds,
      flop / seconds / 1e12, 100 * flop / seconds / peak, planned / 1e9, given / 1e9))
  else
    bad = bad + ((type(seconds) ~= "table" or seconds.code ~= "MR_E_MEMORY") and 1 or 0)
    print(("%-12s %s"):format(bucket[1], (tostring(seconds):gsub("%s*\n%s*", " | "))))
  end
end
if bad > 0 then
  error(bad .. " buckets failed", 0)
end
