--- Convolutions of the video autoencoders, at 144p and similar sizes, compared with the product
-- peak and with PyTorch, channels last in both.
-- @module moonreel.bench.conv
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local core = require "moonreel.core.bench"
local kernels = require "moonreel.bench.kernels"
local paired = require "moonreel.bench.paired"

local conv = {}

local PICTURE, CUBE, POINT = {1, 3, 3}, {3, 3, 3}, {1, 1, 1}
local FLAT, CAUSAL, SAME = {0, 0, 1, 1, 1, 1}, {2, 0, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}
local NONE = {0, 0, 0, 0, 0, 0}

local function pictures(x, filters)
  return {what = "pictures", x = x, filters = filters, kernel = PICTURE, pad = FLAT}
end
local function frames(x, filters)
  return {what = "frames", x = x, filters = filters, kernel = CUBE, pad = CAUSAL}
end
local function hunyuan(x, filters, stride)
  return {what = "hunyuan", x = x, filters = filters, kernel = CUBE, pad = CAUSAL, stride = stride}
end
local function dc_ae(x, filters, given)
  local row = {what = "dc_ae", x = x, filters = filters, kernel = CUBE, pad = SAME}
  for name, value in pairs(given or {}) do
    row[name] = value
  end
  return row
end

--- What is measured: x {B, T, H, W, C}, filters, kernel, stride, pad, groups. Pictures and frames
-- are those of the Open-Sora 1.2 autoencoder; for the Hunyuan autoencoder 17 frames, for DC-AE
-- four.
conv.rows = {
  pictures({4, 1, 144, 256, 3}, 128), pictures({4, 1, 144, 256, 128}, 3),
  pictures({4, 1, 144, 256, 128}, 128), pictures({4, 1, 72, 128, 256}, 256),
  pictures({4, 1, 18, 32, 512}, 512),
  frames({1, 20, 18, 32, 128}, 128), frames({1, 10, 18, 32, 256}, 256),
  frames({1, 5, 18, 32, 512}, 512),
  hunyuan({1, 5, 144, 256, 3}, 128), hunyuan({1, 5, 144, 256, 128}, 3),
  hunyuan({1, 5, 144, 256, 128}, 128), hunyuan({1, 5, 144, 256, 128}, 128, {1, 2, 2}),
  hunyuan({1, 5, 72, 128, 256}, 256), hunyuan({1, 5, 72, 128, 256}, 256, {2, 2, 2}),
  hunyuan({1, 5, 36, 64, 512}, 512), hunyuan({1, 5, 18, 32, 512}, 32),
  dc_ae({1, 4, 128, 256, 3}, 128), dc_ae({1, 4, 128, 256, 128}, 128),
  dc_ae({1, 4, 64, 128, 256}, 256), dc_ae({1, 4, 64, 128, 256}, 512, {stride = {1, 2, 2}}),
  dc_ae({1, 4, 32, 64, 512}, 512),
  -- a level with attention: neighbours of queries, keys and values, their heads, the wide branch
  dc_ae({1, 4, 16, 32, 1536}, 1536, {groups = 1536, kernel = {5, 5, 5},
    pad = {2, 2, 2, 2, 2, 2}}),
  dc_ae({1, 4, 16, 32, 1536}, 1536, {groups = 48, kernel = POINT, pad = NONE}),
  dc_ae({1, 4, 16, 32, 4096}, 4096, {groups = 4096}),
}

--- The name of a layer: "hunyuan 3x3x3 / 1x2x2 128 to 128", followed by the groups, if several.
---@param row table  row of `conv.rows`
---@return string
function conv.name(row)
  local by = table.concat(row.kernel, "x")
  if row.stride then
    by = by .. " / " .. table.concat(row.stride, "x")
  end
  return ("%s %s %d to %d"):format(row.what, by, row.x[5], row.filters)
    .. (row.groups and (" in %d groups"):format(row.groups) or "")
end

--- The layers whose names contain a text.
---@param text string|nil  absent: all layers
---@return table rows
function conv.named(text)
  local found = {}
  for _, row in ipairs(conv.rows) do
    if not text or conv.name(row):find(text, 1, true) then
      found[#found + 1] = row
    end
  end
  return found
end

local function kernel_row(row)
  local C, groups = row.x[5], row.groups or 1
  return {op = "conv3d", attributes = {pad = row.pad, stride = row.stride or POINT,
      groups = groups},
    inputs = {{"", table.unpack(row.x)}, {"", row.filters, C // groups,
      table.unpack(row.kernel)}, {"", row.filters}}}
end

-- the fastest of the runs in some seconds, after a first run: the speed of an idle machine
local function quickest(run, seconds)
  local least, start = math.huge, base.now_s()
  repeat
    local begin = base.now_s()
    run()
    local stop = base.now_s()
    least = math.min(least, stop - begin)
  until stop - start >= seconds
  return least
end

--- The aim of each layer: its speed relative to PyTorch in f32. A processor computes bf16 products
-- in half the time of f32 with AVX-512 BF16, and in an eighth with AMX; without either, bf16 is
-- computed in f32. PyTorch's own bf16 is no reference, because at the peak nothing can be faster.
---@param dtype string
---@param facts table  amx, bf16: properties of a device
---@return number|nil
function conv.aim(dtype, facts)
  if dtype == "f32" then
    return 1.3
  end
  return facts.amx and 3 or facts.bf16 and 1.5 or nil
end

--- The number of measured layers that reach the aim of their dtype, and the layers that do not.
---@param rows table[]  result of `conv.measure`
---@param facts table
---@return table[] verdicts  dtype, aim, layers, met, missed {name, ratio, peer_of_peak: PyTorch's
---   share of the product peak}; for bf16 own_met: layers that reach the aim compared with PyTorch
---   in bf16, too
function conv.verdicts(rows, facts)
  local list, of = {}, {}
  for _, row in ipairs(rows) do
    local f32_ratio = row.dtype == "f32" and row.ratio or row.f32_ratio
    local aim = conv.aim(row.dtype, facts)
    if f32_ratio and aim then
      local v = of[row.dtype]
      if not v then
        v = {dtype = row.dtype, aim = aim, layers = 0, met = 0, missed = {},
          own_met = row.dtype ~= "f32" and 0 or nil}
        of[row.dtype], list[#list + 1] = v, v
      end
      v.layers = v.layers + 1
      if f32_ratio >= aim then
        v.met = v.met + 1
      else
        v.missed[#v.missed + 1] = {name = row.name, ratio = f32_ratio,
          peer_of_peak = row.of_peak * row.seconds / row.peer_seconds}
      end
      v.own_met = v.own_met and v.own_met + (row.ratio >= aim and 1 or 0)
    end
  end
  return list
end

--- Measures every row.
---@param options table  threads, dtype, seconds, layer: of `conv.named`
---@param ask function|nil  ask(row, machine) -> seconds of PyTorch or nil; called after each row
---@return table rows    name, what, x, filters, dtype, flop, bytes, seconds, tflops, of_peak;
---   peer_seconds, and ratio: PyTorch's fastest run to moonreel's fastest before and after it; for
---   bf16 also f32_ratio: the same with PyTorch's f32
---@return table machine isa, threads
---@return table[] verdicts  result of `conv.verdicts`
function conv.measure(options, ask)
  local device <close> = E.device("cpu", options.threads or 0)
  local facts, out, f32_seconds = device:facts(), {}, {}
  local machine = {isa = facts.isa, threads = facts.threads}
  for _, dtype in ipairs(options.dtype and {options.dtype} or {"f32", "bf16"}) do
    local peak = core.product_peak(dtype, facts.threads, options.seconds / 50)
    for _, row in ipairs(conv.named(options.layer)) do
      local one = kernels.with_program(device, kernel_row(row), dtype, function(run, cost)
        local window = options.seconds / 100
        run()
        local got = paired.rounds({
          function()
            return core.product_rate(dtype, facts.threads, peak.m, peak.n, peak.k, peak.own, window)
          end,
          function() return paired.rate(run, window) end,
        }, options.seconds / 10)
        local runs_per_s = paired.median(got[2])
        local measured = {name = conv.name(row), what = row.what,
          x = row.x, filters = row.filters, kernel = row.kernel,
          pad = row.pad, stride = row.stride, groups = row.groups, dtype = dtype,
          flop = cost.flop, bytes = cost.bytes, seconds = 1 / runs_per_s,
          tflops = cost.flop * runs_per_s * 1e-12,
          of_peak = cost.flop * 1e-12 * paired.ratio(got[2], got[1])}
        local least = quickest(run, options.seconds / 20)
        measured.peer_seconds = ask and ask(measured, machine)
        if measured.peer_seconds then
          least = math.min(least, quickest(run, options.seconds / 20))
          measured.ratio = measured.peer_seconds / least
          if dtype == "f32" then
            f32_seconds[row] = measured.peer_seconds
          else
            local f32 = f32_seconds[row]
              or ask(setmetatable({dtype = "f32"}, {__index = measured}), machine)
            measured.f32_ratio = f32 and f32 / least
          end
        end
        return measured
      end)
      out[#out + 1] = one
    end
  end
  return out, machine, conv.verdicts(out, facts)
end

return conv
