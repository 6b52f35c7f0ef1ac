--- A small model trained by hand: a graph with gradients, an executor that holds the parameters,
-- and one update after the other. It learns y = sin(3 x) from points in -1..1.
--
--   moonreel examples/train_by_hand.lua [steps]
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local optim = require "moonreel.optim"
local regions = require "moonreel.optim.regions"

local points, width = 64, 32
local steps = math.tointeger(tonumber(arg and arg[1] or 400))
if not steps or steps < 1 then
  io.stderr:write(("steps '%s': expected a whole number from 1 on; try: 400\n"):format(arg[1]))
  return 2
end

-- parameters: layers declare them, then the table is sealed
local params = G.params "f32"
local scope = nn.scope(params)
local first = nn.Linear(scope, "first", 1, width)
local second = nn.Mlp(scope, "second", width, width, 1)
params:seal()

-- the graph of one step: forward, loss, and the gradients of all parameters
local g = G.graph(params)
local x, y = g:input("x", "f32", { points, 1 }), g:input("y", "f32", { points, 1 })
local guess = second(g, (ops.silu(first(g, x))))
local off = guess - y
local loss = (ops.sum(off * off, { axes = { 0, 1 } })) * (1 / points)
g:output("guess", guess)
g:output("loss", loss)
g:backward(loss)
g:finish()

-- where it runs
local device <close> = E.device()
local exec <close> = E.new(device, params, { regions = regions.adamw() })
exec:init(1)
local program = exec:compile(g)
local update = optim.new(exec, params)

-- the points do not change, so they are given once
local xs, ys = {}, {}
for i = 1, points do
  xs[i] = 2 * (i - 1) / (points - 1) - 1
  ys[i] = math.sin(3 * xs[i])
end
program:set("x", T.from({ points, 1 }, xs))
program:set("y", T.from({ points, 1 }, ys))

local now
for step = 1, steps do
  program:run()
  now = program:get("loss"):item()
  update:step { lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0, step = step,
    grad_scale = 1 }
  if step == 1 or step % 100 == 0 then
    print(("step %4d  loss %.6f"):format(step, now))
  end
end
print(("sin(3 x) at x = %.3f: %.4f, the model says %.4f"):format(xs[50], ys[50],
  program:get("guess")["49, 0"]))
return now < 0.01
