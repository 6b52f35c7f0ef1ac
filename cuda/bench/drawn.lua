-- Shared by kernels.lua, sizes.lua and step.lua: graphs that draw their large inputs on the device
-- before the measured ops, and the seconds of these ops by the device's events.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local paired = require "moonreel.bench.paired"

local drawn = {}

--- Make a graph `g` with inputs `set`, to which normal() and see() add.
function drawn.graph()
  local g, count = G.graph(), 0
  local seed, epoch = g:input("seed", "i64", { 1 }), g:input("epoch", "i32", { 1 })
  local self = { g = g, set = { seed = T.from({ 1 }, { 7 }, "i64"),
    epoch = T.from({ 1 }, { 0 }, "i32") } }

  --- A tensor of standard normal numbers.
  function self.normal(dtype, dims)
    count = count + 1
    local keys, key = {}, "keys" .. count
    local first = #dims > 1 and dims[1] or 1 -- one key for a vector
    for i = 1, first do
      keys[i] = count * 65536 + i
    end
    self.set[key] = T.from({ first }, keys, "i64")
    local x = G.op("random_normal", { seed, g:input(key, "i64", { first }), epoch },
      { dims = table.move(dims, math.min(2, #dims), #dims, 1, {}) }):reshape(dims)
    return dtype == "f32" and x or (G.op("cast", { x }, { dtype = dtype }))
  end

  --- Use `x` as a result, through its sum.
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

--- Run `one` `runs` times after one warm-up run; fail if a result is NaN.
---@return table  by op: seconds (the median of runs), least seconds, flop, bytes
function drawn.measure(device, one, runs)
  one.g:finish()
  local run <close> = E.new(device, nil, {})
  local prog, took, cost = run:compile(one.g), {}, {}
  for key, tensor in pairs(one.set) do
    prog:set(key, tensor)
  end
  prog:time(true)
  for i = 1, runs + 1 do
    prog:run()
    run:sync()
    for _, row in ipairs(prog:times()) do
      took[row.op] = took[row.op] or {}
      took[row.op][i - 1], cost[row.op] = row.seconds, row
    end
  end
  for _, key in ipairs(one.g:outputs()) do
    local sum = prog:get(key):item()
    assert(sum == sum, key .. " is NaN")
  end
  local found = {}
  for op, list in pairs(took) do
    found[op] = { seconds = paired.median(list), least = math.min(table.unpack(list)),
      flop = cost[op].flop, bytes = cost[op].bytes }
  end
  return found
end

return drawn
