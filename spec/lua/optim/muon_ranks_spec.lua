--- Muon by ranks computes the same bits on any number of ranks and at each ZeRO stage, because a
-- block is whole on one rank and independent of the others.
-- Covers: lua/moonreel/optim/init.lua core/graph/params.c core/op/muon.c
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- Two layers whose gradients come from rank 0 alone: the others add zero. Prints a hash of the
-- weights after three updates of each stage.
local TRAIN = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local nn, ops, optim = require "moonreel.nn", require "moonreel.core.op", require "moonreel.optim"
local ranks, regions = require "moonreel.optim.ranks", require "moonreel.optim.regions"
local world = require("moonreel.comm").world { deadline_s = 100 }
local dtype, size, rank, points = arg[1], world:size(), world:rank(), 8
local device <close> = E.device("cpu", 1)

local function train(stage)
  local params = G.params(dtype)
  local scope = nn.scope(params)
  local first, second = nn.Linear(scope, "first", 16, 16), nn.Linear(scope, "second", 16, 48)
  params:seal { ranks = size, elements = 512, granule = 256, block = 256,
    matrices = { "first.weight", "second.weight" } }
  local team = ranks.new(params, world, { stage = stage })
  local g = G.graph(params)
  local x, y = g:input("x", dtype, { points, 16 }), g:input("y", "f32", { points, 48 })
  local off = ops.cast(second(g, (ops.silu(first(g, x)))), { dtype = "f32" }) - y
  g:backward((ops.sum(off * off, { axes = { 0, 1 } })))
  team:reduce(g)
  g:finish()
  local exec <close> = E.new(device, params, { regions = regions.adamw { ema = true, dtype = dtype,
    parts = stage > 0 and team:owned() or nil, gradients = team.gradients, weights = team.weights,
    matrices = params:matrices() } })
  exec:init(1)
  local program = exec:compile(g)
  local update = optim.new(exec, params, team, true,
    { rule = { scale = "match_rms", nesterov = true, bf16 = dtype == "bf16" } })
  local idle = exec:compile(team:echo(params, g, true))
  program:set("x", T.new("f32", { points, 16 }):fill_normal(1, "x"):to(dtype))
  program:set("y", T.new("f32", { points, 48 }):fill_normal(1, "y"))
  for step = 1, 3 do
    (rank == 0 and program or idle):run()
    update:step { lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1,
      ema_decay = 0.9, step = step, grad_scale = 1 / points,
      muon = { lr = 0.02, momentum = 0.9, weight_decay = 0.1 } }
  end
  -- the weights as a graph sees them
  local see, bytes = G.graph(params), ""
  for _, p in ipairs(params:list()) do
    see:output(p.name, ops.copy(see:param(p.name)))
  end
  local seen = exec:compile(see:finish())
  seen:run()
  for _, p in ipairs(params:list()) do
    bytes = bytes .. seen:get(p.name):bytes()
  end
  print(stage, require("moonreel.core.base").hash128(bytes))
end
for stage = 0, 3 do
  train(stage)
end
]]

describe("Muon by ranks", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  it("computes the same bits on 1, 2 and 8 ranks at each ZeRO stage", function()
    local script = dir:write("train.lua", TRAIN)
    for _, dtype in ipairs { "f32", "bf16" } do
      local want
      for _, size in ipairs { 1, 2, 8 } do
        local done = process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program(), "-n",
          tostring(size), script, dtype }, "", { deadline_s = 300, output_bytes = 1 << 20 })
        assert.equal(0, done.exit, done.output)
        local lines = 0
        for _, hash in done.output:gmatch "(%d)\t(%x+)\n" do
          want, lines = want or hash, lines + 1
          assert.equal(want, hash, done.output)
        end
        assert.equal(4 * size, lines, done.output)
      end
    end
  end)
end)
