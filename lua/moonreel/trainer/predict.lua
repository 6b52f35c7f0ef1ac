--- What each bucket will cost, before the first step: peak memory exactly, step time from two measured speeds.
-- @module moonreel.trainer.predict
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"

local predict = {}

-- seconds of the fastest of a few runs
local function fastest(n, f)
  local best = math.huge
  for _ = 1, n do
    local start = base.now_s()
    f()
    best = math.min(best, base.now_s() - start)
  end
  return best
end

--- Speeds of this machine: FLOP per second of a product, bytes per second of a copy. Takes some 20 ms.
---@param dtype string
---@return table  flops, bandwidth
function predict.speeds(dtype)
  local n = 384
  local x, w = T.new(dtype, {n, n}), T.new(dtype, {n, n})
  local product = fastest(4, function() ops.linear(x, w, false) end)
  local size = 1 << 20
  local a = T.new("f32", {size})
  local moved = fastest(3, function() ops.affine(a, {scale = 1, shift = 0}) end)
  return {flops = 2 * n ^ 3 / product, bandwidth = 8 * size / moved}
end

--- Peak bytes of a program: everything that lives while it runs.
function predict.peak(prog)
  local m = prog:memory()
  return m.arena + m.params + m.state + m.inputs + m.consts + m.packed + m.library
end

--- Predicted seconds of one run.
function predict.seconds(prog, speeds)
  local cost = prog:cost()
  return cost.flop / speeds.flops + cost.bytes / speeds.bandwidth
end

return predict
