-- moonreel cuda/bench/sizes.lua DEVICE [small|large [PYTHON]]: times attention, forward and
-- backward, for lengths from 256 to 32768 with heads of 72 and 128, and convolutions of the
-- autoencoders with both gradients, all in bf16. Prints seconds by events (median of the runs),
-- operations per second, and the time of peers relative to ours: PyTorch's fused attention, cuDNN's
-- attention and cuDNN's convolutions, if PYTHON has PyTorch (cuda/bench/peer.py). cuDNN's
-- convolutions are also timed without PyTorch (cuda/bench/cudnn_peer.c), and the faster one counts.
-- `small`: short lengths and few channels, for the emulated GPU, where times have no meaning.
-- Inputs are drawn on the device. Exit 1 if a result is NaN.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local conv = require "moonreel.bench.conv"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local drawn = dofile "cuda/bench/drawn.lua"

local HEADS, TOKENS = 16, 32768

local name, small, python = ...
small = small == "small"
local device <close> = E.device(name or "cuda")
local RUNS = small and 1 or 10
local lengths = small and { 70 } or { 256, 512, 1024, 2048, 4096, 8192, 16384, 32768 }
local widths = small and { 72 } or { 72, 128 }
local convolutions = small and { { what = "frames", x = { 1, 2, 4, 5, 72 }, filters = 72 } }
  or conv.rows

local function attention(B, S, h, d)
  local one = drawn.graph()
  local q, k, v, up
  q, k, v, up = one.normal("bf16", { B, 1, S, h, d }), one.normal("bf16", { B, 1, S, h, d }),
    one.normal("bf16", { B, 1, S, h, d }), one.normal("bf16", { B, 1, S, h, d })
  local o, lse = G.op("attention", { q, k, v, false, false }, {})
  local dq, dk, dv = G.op("attention_grad", { q, k, v, false, o, lse, up, false, false }, {})
  for key, x in pairs { o = o, dq = dq, dk = dk, dv = dv } do
    one.see(key, x)
  end
  local found = drawn.measure(device, one, RUNS)
  local forward, backward = found.attention, found.attention_grad
  return forward.seconds + backward.seconds, forward.flop + backward.flop, forward, backward
end

local function convolution(row)
  local one, pictures = drawn.graph(), row.what == "pictures"
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
  return drawn.measure(device, one, RUNS)
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

-- time cuDNN's convolutions with cuDNN alone: a program next to the plug-in, or next to this one
local function cudnn_alone()
  local plugins = os.getenv "MOONREEL_PLUGINS" or process.program():match "^(.*)/"
  local words = { ("%s/cudnn_peer%s"):format(plugins, name == "cudaemu" and "_cudaemu" or ""),
    tostring(RUNS) }
  for _, row in ipairs(convolutions) do
    for _, number in ipairs { row.x[1], row.x[2], row.x[3], row.x[4], row.x[5], row.filters,
      row.what == "pictures" and 1 or 0 } do
      words[#words + 1] = tostring(number)
    end
  end
  if not base.exists(words[1]) then
    print(("cuDNN alone: left out, no program %s; try: make cuda"):format(words[1]))
    return {}
  end
  local result, rows = process.run(words, "", { deadline_s = 45 }), {}
  print("cuDNN alone: " .. (result.exit == 0 and result.output:match "^[^\n]*"
    or "left out, see what it said"))
  for y, dx, dw in result.output:gmatch "\n(%S+) (%S+) (%S+)" do
    rows[#rows + 1] = { y = tonumber(y), dx = tonumber(dx), dw = tonumber(dw) }
  end
  return rows
end
local alone = cudnn_alone()

-- the time of the faster peer; either may be missing
local function quicker(a, b)
  a, b = type(a) == "number" and a, type(b) == "number" and b
  return a and b and math.min(a, b) or a or b or nil
end

-- time relative to ours, as text
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
      one.flop / one.seconds / 1e12,
      times(quicker(peer[part[1]], (alone[i] or {})[part[1]]), one.seconds)))
  end
end
