--- Convolutions at the sizes of the Open-Sora 1.2 autoencoder (144p), against the product peak and
-- beside PyTorch's, channels last in both.
-- @module moonreel.bench.conv
local E = require "moonreel.core.exec"
local core = require "moonreel.core.bench"
local kernels = require "moonreel.bench.kernels"
local paired = require "moonreel.bench.paired"

local conv = {}

local SAME, CAUSAL = {0, 0, 1, 1, 1, 1}, {2, 0, 1, 1, 1, 1}

--- What is measured: x {B, T, H, W, C}, filters; pictures have a kernel of 1 x 3 x 3, frames a
-- causal one of 3 x 3 x 3.
conv.rows = {
  {what = "pictures", x = {4, 1, 144, 256, 3}, filters = 128},
  {what = "pictures", x = {4, 1, 144, 256, 128}, filters = 3},
  {what = "pictures", x = {4, 1, 144, 256, 128}, filters = 128},
  {what = "pictures", x = {4, 1, 72, 128, 256}, filters = 256},
  {what = "pictures", x = {4, 1, 18, 32, 512}, filters = 512},
  {what = "frames", x = {1, 20, 18, 32, 128}, filters = 128},
  {what = "frames", x = {1, 10, 18, 32, 256}, filters = 256},
  {what = "frames", x = {1, 5, 18, 32, 512}, filters = 512},
}

local function kernel_row(row)
  local pictures, C = row.what == "pictures", row.x[5]
  return {op = "conv3d", attributes = {pad = pictures and SAME or CAUSAL},
    inputs = {{"", table.unpack(row.x)}, {"", row.filters, C, pictures and 1 or 3, 3, 3},
      {"", row.filters}}}
end

--- Measure every row.
---@param options table  threads, dtype, seconds
---@param ask function|nil  ask(row, dtype, machine) -> seconds of PyTorch or nil, called after each
---@return table rows    what, x, filters, dtype, seconds, tflops, of_peak; peer_seconds, ratio
---@return table machine isa, threads
function conv.measure(options, ask)
  local device <close> = E.device("cpu", options.threads or 0)
  local facts, out = device:facts(), {}
  local machine = {isa = facts.isa, threads = facts.threads}
  for _, dtype in ipairs(options.dtype and {options.dtype} or {"f32", "bf16"}) do
    local peak = core.product_peak(dtype, facts.threads, options.seconds / 50)
    for _, row in ipairs(conv.rows) do
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
        return {what = row.what, x = row.x, filters = row.filters, dtype = dtype,
          seconds = 1 / runs_per_s, tflops = cost.flop * runs_per_s * 1e-12,
          of_peak = cost.flop * 1e-12 * paired.ratio(got[2], got[1])}
      end)
      one.peer_seconds = ask and ask(one, machine)
      one.ratio = one.peer_seconds and one.peer_seconds / one.seconds
      out[#out + 1] = one
    end
  end
  return out, machine
end

return conv
