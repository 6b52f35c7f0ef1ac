--- A small network with views, a join, broadcasting, a shared weight and blocks, and its backward
-- pass. Returns outputs by name. Weights are read in place, or gathered first: each from a copy of
-- the 64 elements before it and those up to its end. With `offload` some values wait in host memory
-- for the backward pass.
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"

return function(options, recompute, micro_steps, gathered, offload)
  local dev <close> = E.device(device, 2)
  local params <close> = G.params("f32")
  params:add { name = "w1", shape = { 12, 6 }, init = { kind = "xavier" } }
  params:add { name = "b1", shape = { 12 }, init = { kind = "normal", scale = 0.1 } }
  params:add { name = "table", shape = { 2, 4 }, init = { kind = "normal", scale = 0.5 } }
  params:add { name = "w2", shape = { 4, 4 }, init = { kind = "xavier" } }
  params:add { name = "fixed", shape = { 4 }, init = { kind = "ones" }, frozen = true }
  params:seal()
  local g <close> = G.graph(params, options)
  local rows = {}
  for _, row in ipairs(params:list()) do
    rows[row.name] = row
  end
  local function weight(name)
    if not gathered then
      return g:param(name)
    end
    local first, stop = math.max(0, rows[name].offset - 64), rows[name].offset + rows[name].count
    return g:window(ops.copy(g:region("w", "f32", first, { stop - first })), first, name)
  end
  local x = g:input("x", "f32", { 2, 3, 6 })
  local y = g:block("first", recompute, function()
    local h = ops.linear(x, weight "w1", weight "b1")
    if offload then
      g:offload(h)
    end
    local qkv = h:reshape { 2, 3, 3, 4 }
    local q, k, v = qkv:split(2, 3)
    q, k, v = ops.silu(q:reshape { 2, 3, 4 }), k:reshape { 2, 3, 4 }:permute { 1, 0, 2 },
      v:reshape { 2, 3, 4 }
    local t = weight("table"):reshape { 2, 1, 4 }
    local mixed = q * t + ops.gelu_tanh(k:permute { 1, 0, 2 })
    return G.concat({ mixed, v }, 1)
  end)
  if offload then
    g:offload(y)
  end
  local z = g:block("second", recompute, function()
    local a = ops.linear(ops.silu(y), weight "w2")
    local b = ops.linear(a * g:param("fixed"), weight("w2"):slice(0, 0, 4))
    return a + b:slice(1, 0, 6) + y
  end)
  local loss = ops.sum(z * z, { axes = { 0, 1, 2 } })
  g:output("loss", loss)
  g:output("z", z)
  local dx = g:backward(loss, { x })
  g:output("dx", dx[1])
  g:finish()
  local exec <close> = E.new(dev, params, { regions = regions.adamw(), poison = true })
  exec:init(7)
  local prog <close> = exec:compile(g)
  prog:set("x", T.new("f32", { 2, 3, 6 }):fill_normal(1, "x"))
  for _ = 1, micro_steps or 1 do
    prog:run()
  end
  local out = { loss = prog:get("loss"):item(), z = prog:get("z"):bytes(),
    dx = prog:get("dx"):totable(), text = g:print() }
  out.grad = exec:read("grad", "f32", 0, { params:elements() }):totable()
  out.peak, out.pinned = prog:memory().arena, prog:memory().pinned
  return out
end
