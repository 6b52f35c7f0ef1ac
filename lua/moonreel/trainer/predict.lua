--- What each bucket will cost, before the first step: peak memory exactly, step time from two measured speeds.
-- @module moonreel.trainer.predict
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"
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

-- seconds of one run of a small graph, compiled
local function seconds_of(run, dims, build)
  local g = G.graph()
  g:output("y", build(g, g:input("x", "f32", dims)))
  g:finish()
  local prog = run:compile(g)
  prog:set("x", T.new("f32", dims))
  return fastest(5, function()
    prog:run()
    run:sync()
  end)
end

--- Speeds of a device: FLOP per second of a product, bytes per second of a pass over memory. Takes some 20 ms.
---@param device mr.Device
---@param dtype string
---@return table  flops, bandwidth
function predict.speeds(device, dtype)
  local run <close> = E.new(device, nil, {})
  local n, size = 512, 1 << 20
  local product = seconds_of(run, {n, n}, function(g, x)
    local w = g:const(T.new(dtype, {n, n}))
    return (ops.linear(nn.cast(x, dtype), w, false))
  end)
  local pass = seconds_of(run, {size}, function(_, x) return (ops.affine(x, {scale = 1, shift = 1})) end)
  return {flops = 2 * n ^ 3 / product, bandwidth = 8 * size / pass}
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
