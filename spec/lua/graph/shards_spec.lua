--- Graphs over a table that ranks share: weights are gathered for each pass, two buckets at a time,
-- and gradients are reduced bucket by bucket. Here one rank shares with itself; with others:
-- spec/lua/optim/ranks_spec.lua.
-- Covers: core/graph/shards.c core/graph/rank_ops.c core/graph/recompute.c core/graph/finish.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local fails = dofile "spec/support/fails.lua"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local LAYERS <const>, WIDTH <const> = 5, 128
local BUCKET <const> = WIDTH * WIDTH

-- a chain of linear layers, each a bucket of 64 KiB, in blocks of their own
local function build(shares, recompute)
  local params = G.params "f32"
  for i = 1, LAYERS do
    params:add { name = "w" .. i, shape = { WIDTH, WIDTH }, init = { kind = "xavier" } }
  end
  params:seal { ranks = 1, elements = BUCKET }
  if shares then
    shares.hops = { { queue = "comm_intra", group = 0, ranks = 1, at = 0 } }
    params:share(shares)
  end
  local g = G.graph(params)
  local x = g:input("x", "f32", { 2, WIDTH })
  for i = 1, LAYERS do
    x = g:block("layer " .. i, recompute or false, function()
      return ops.silu((ops.linear(x, g:param("w" .. i))))
    end)
  end
  g:backward((ops.sum(x * x, { axes = { 0, 1 } })))
  return g:finish(), params
end

-- the gradients after two runs, and the bytes of the arena
local function run(device, shares, recompute)
  local dev <close> = E.device(device, 1)
  local g, params = build(shares, recompute)
  local parts = params:buckets()
  local exec <close> = E.new(dev, params, { poison = true, regions = regions.adamw { dtype = "f32",
    parts = shares and parts, gradients = shares and shares.gradients,
    weights = shares and shares.weights } })
  exec:init(3)
  local prog <close> = exec:compile(g)
  prog:set("x", T.new("f32", { 2, WIDTH }):fill_normal(1, "x"))
  prog:run()
  prog:run()
  local grads = {}
  for i = 1, LAYERS do
    local apart = shares and shares.gradients
    local name = apart and i > 1 and "grad." .. i or "grad"
    grads[i] = exec:read(name, "f32", apart and 0 or (i - 1) * BUCKET, { BUCKET }):bytes()
  end
  return grads, prog:memory().arena, g
end

describe("a table that ranks share", function()
  it("gives the gradients of a table that each rank holds whole", function()
    for _, device in ipairs { "cpu", "shadow" } do
      local want = run(device)
      for _, recompute in ipairs { false, true } do
        for _, shares in ipairs { { gradients = true }, { weights = true },
            { gradients = true, weights = true } } do
          assert.is_true(table.concat(want) == table.concat((run(device, shares, recompute))))
        end
      end
    end
  end)

  it("holds two buckets of gradients at a time, and two of weights", function()
    local bytes = 4 * BUCKET
    local _, none = run "cpu"
    for shared, most in pairs { gradients = 2, weights = 2, ["gradients weights"] = 4 } do
      local _, arena = run("cpu", { gradients = shared:find "gradients" ~= nil,
        weights = shared:find "weights" ~= nil })
      assert.is_true(arena > none + bytes and arena <= none + most * bytes, shared)
    end
  end)

  it("lists gathers forward, then backward, each before the reduction that follows it", function()
    local _, _, g = run("cpu", { gradients = true, weights = true })
    assert.equal("gather 1, gather 2, gather 3, gather 4, gather 5, gather 5, gather 4, reduce 5, "
      .. "gather 3, reduce 4, gather 2, reduce 3, reduce 2, reduce 1", g:op_log())
    local _, _, same = run("cpu", { gradients = true, weights = true }, true)
    assert.equal((g:op_log():gsub("reduce 2", "gather 1, %0")), same:op_log())
  end)

  it("also gathers unused buckets, because other ranks wait in the same call", function()
    local params = G.params "f32"
    for i = 1, 2 do
      params:add { name = "w" .. i, shape = { WIDTH, WIDTH }, init = { kind = "xavier" } }
    end
    params:seal { ranks = 1, elements = BUCKET }
    params:share { weights = true,
      hops = { { queue = "comm_intra", group = 0, ranks = 1, at = 0 } } }
    local g <close> = G.graph(params)
    local x = g:input("x", "f32", { 2, WIDTH })
    ops.linear(x, g:param "w1")
    g:output("y", (ops.linear(x, g:param "w2")))
    g:finish()
    local _, gathers = g:print():gsub("\n *%d+ gather ", "")
    assert.equal(2, gathers)
    assert.equal("gather 1, gather 2", g:op_log())
  end)

  it("lets the next gather run in parallel with the layer before it", function()
    local g = build { gradients = true, weights = true }
    local report = {}
    for line in g:schedule():gmatch "[^\n]+" do
      report[#report + 1] = line:match "(gather.* overlaps compute.*)" or line:match "(gather.*)$"
    end
    assert.equal(2 * LAYERS - 1, #report)
    assert.matches("overlaps compute", report[2])
  end)

  it("requires hops that make up its ranks", function()
    local _, params = build()
    fails("MR_E_RANGE", "the hops have 2 ranks; expected 1", params.share, params,
      { hops = { { queue = "comm_intra", ranks = 2 } } })
    fails("MR_E_RANGE", "hop 1: index 3 of 2 ranks", params.share, params,
      { hops = { { queue = "comm_intra", ranks = 2, at = 3 } } })
    fails("MR_E_USAGE", "hop 1: no queue 'side'", params.share, params,
      { hops = { { queue = "side" } } })
    fails("MR_E_USAGE", "hops: expected a list of one or two tables", params.share, params, {})
    fails("MR_E_USAGE", "the table is not sealed", params.share, G.params "f32",
      { hops = { { queue = "comm_intra" } } })
    local g, h = build(), G.graph(G.params "f32")
    fails("MR_E_USAGE", "echo: the graphs have different parameter tables", h.echo, h, g)
  end)
end)
