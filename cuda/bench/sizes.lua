-- moonreel cuda/bench/sizes.lua DEVICE [small|large [PYTHON]]: attention, forward and backward,
-- over lengths from 256 to 32768 with heads of 72 and 128, and convolutions of the autoencoders
-- with both gradients, bf16: seconds by events, the median of runs, operations a second, and how
-- many times as long PyTorch's fused attention, cuDNN's attention and cuDNN's convolutions take
-- where PYTHON has PyTorch (cuda/bench/peer.py). `small`: short lengths and few channels, for the
-- emulated GPU, where times say nothing. Values are drawn on the device. Exit 1 when a result is no
-- number.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local conv = require "moonreel.bench.conv"
local json = require "moonreel.core.json"
local paired = require "moonreel.bench.paired"
local process = require "moonreel.core.process"

local HEADS, TOKENS = 16, 32768

local name, small, python = ...
small = small == "small"
local device <close> = E.device(name or "cuda")
local RUNS = small and 1 or 10
local lengths = small and { 70 } or { 256, 512, 1024, 2048, 4096, 8192, 16384, 32768 }
local widths = small and { 72 } or { 72, 128 }
local convolutions = small and { { what = "frames", x = { 1, 2, 4, 5, 72 }, filters = 72 } }
  or conv.rows

-- what is measured: graphs whose inputs are drawn by rows before the measured ones
local function graph()
  local g, drawn = G.graph(), 0
  local seed, epoch = g:input("seed", "i64", { 1 }), g:input("epoch", "i32", { 1 })
  local self = { g = g, set = { seed = T.from({ 1 }, { 7 }, "i64"),
    epoch = T.from({ 1 }, { 0 }, "i32") } }

  function self.normal(dtype, dims)
    drawn = drawn + 1
    local keys, key = {}, "keys" .. drawn
    for i = 1, dims[1] do
      keys[i] = drawn * 65536 + i
    end
    self.set[key] = T.from({ dims[1] }, keys, "i64")
    local x = G.op("random_normal", { seed, g:input(key, "i64", { dims[1] }), epoch },
      { dims = table.move(dims, 2, #dims, 1, {}) })
    return dtype == "f32" and x or (G.op("cast", { x }, { dtype = dtype }))
  end

  -- a result that is looked at: its sum
  function self.see(key, x)
    local axes = {}
    for i = 1, #x.shape do
      axes[i] = i - 1
    end
    local wide = x.dtype == "f32" and x or (G.op("cast", { x }, { dtype = "f32" }))
    g:output(key, (G.op("sum", { wide }, { axes = axes })))
  end
  return self
end

-- by op: seconds, flop
local function measure(one)
  one.g:finish()
  local run <close> = E.new(device, nil, {})
  local prog, took, flop = run:compile(one.g), {}, {}
  for key, tensor in pairs(one.set) do
    prog:set(key, tensor)
  end
  prog:time(true)
  for i = 1, RUNS + 1 do
    prog:run()
    run:sync()
    for _, row in ipairs(prog:times()) do
      took[row.op] = took[row.op] or {}
      took[row.op][i - 1], flop[row.op] = row.seconds, row.flop
    end
  end
  for _, key in ipairs(one.g:outputs()) do
    local sum = prog:get(key):item()
    assert(sum == sum, key .. " is no number")
  end
  local found = {}
  for op, list in pairs(took) do
    found[op] = { seconds = paired.median(list), flop = flop[op] }
  end
  return found
end

local function attention(B, S, h, d)
  local one = graph()
  local q, k, v, up
  q, k, v, up = one.normal("bf16", { B, 1, S, h, d }), one.normal("bf16", { B, 1, S, h, d }),
    one.normal("bf16", { B, 1, S, h, d }), one.normal("bf16", { B, 1, S, h, d })
  local o, lse = G.op("attention", { q, k, v, false, false }, {})
  local dq, dk, dv = G.op("attention_grad", { q, k, v, false, o, lse, up, false, false }, {})
  for key, x in pairs { o = o, dq = dq, dk = dk, dv = dv } do
    one.see(key, x)
  end
  local found = measure(one)
  local forward, backward = found.attention, found.attention_grad
  return forward.seconds + backward.seconds, forward.flop + backward.flop, forward, backward
end

local function convolution(row)
  local one, pictures = graph(), row.what == "pictures"
  local pad = pictures and { 0, 0, 1, 1, 1, 1 } or { 2, 0, 1, 1, 1, 1 }
  local C, kernel = row.x[5], pictures and 1 or 3
  local x, w = one.normal("bf16", row.x), one.normal("bf16", { row.filters, C, kernel, 3, 3 })
  local y = G.op("conv3d", { x, w, one.normal("bf16", { row.filters }) }, { pad = pad })
  local up = one.normal("bf16", { row.x[1], row.x[2], row.x[3], row.x[4], row.filters })
  one.see("y", y)
  one.see("dx", (G.op("conv3d_dx", { up, w }, { pad = pad,
    dims = table.move(row.x, 2, 4, 1, {}) })))
  one.see("dw", (G.op("conv3d_dw", { up, x, one.normal("f32",
    { row.filters, C, kernel, 3, 3 }) }, { pad = pad })))
  return measure(one)
end

local request = { device = name == "cudaemu" and "cpu" or "cuda", runs = RUNS, attention = {},
  conv = {} }
for _, d in ipairs(widths) do
  for _, S in ipairs(lengths) do
    table.insert(request.attention, { small and 1 or math.max(1, TOKENS // S), S,
      small and 1 or HEADS, d })
  end
end
for _, row in ipairs(convolutions) do
  table.insert(request.conv, { row.x, row.filters, row.what == "pictures" })
end

local theirs
if python and python ~= "" then
  local result = process.run({ python, "cuda/bench/peer.py", json.encode(request) }, "",
    { deadline_s = 120 })
  local line = result.output:match("({[^\n]*})%s*$")
  assert(line, "the peer failed: " .. result.output)
  theirs = json.decode(line)
  print(("PyTorch %s, cuDNN %s"):format(theirs.version, theirs.cudnn))
else
  print("peers: left out, no python with PyTorch was named")
end

-- how many times as long as ours
local function times(seconds, ours)
  return type(seconds) == "number" and ("%.2f"):format(seconds / ours) or "-"
end

print(("\n%-24s %10s %11s %9s %9s %9s"):format("attention B S h d", "forward us", "backward us",
  "TFLOP/s", "x flash", "x cuDNN"))
for i, row in ipairs(request.attention) do
  local all, flop, forward, backward = attention(table.unpack(row))
  local peer = theirs and theirs.attention[i] or {}
  print(("%-24s %10.1f %11.1f %9.1f %9s %9s"):format(table.concat(row, " "),
    forward.seconds * 1e6, backward.seconds * 1e6, flop / all / 1e12, times(peer.flash, all),
    times(peer.cudnn, all)))
end

print(("\n%-34s %-4s %10s %9s %9s"):format("convolution of x, filters", "", "us", "TFLOP/s",
  "x cuDNN"))
for i, row in ipairs(convolutions) do
  local found, peer = convolution(row), theirs and theirs.conv[i] or {}
  for _, part in ipairs { { "y", "conv3d" }, { "dx", "conv3d_dx" }, { "dw", "conv3d_dw" } } do
    local one = found[part[2]]
    print(("%-34s %-4s %10.1f %9.1f %9s"):format(("%s %s, %d"):format(row.what,
      table.concat(row.x, " "), row.filters), part[1], one.seconds * 1e6,
      one.flop / one.seconds / 1e12, times(peer[part[1]], one.seconds)))
  end
end
