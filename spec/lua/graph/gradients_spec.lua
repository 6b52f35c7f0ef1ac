--- Gradients of values before the backward pass, and values that count as constants.
-- Covers: core/graph/backward.c core/graph/build.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local fails = require "spec.support.fails"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local NEAR = 1e-5 -- f32

local function sum(x) return (ops.sum(x)) end

-- a table with weights w [3] and frozen f [3]
local function params_of()
  local params = G.params "f32"
  params:add { name = "w", shape = { 3 }, init = { kind = "ones" } }
  params:add { name = "f", shape = { 3 }, init = { kind = "ones" }, frozen = true }
  return params:seal()
end

-- runs a graph over x and w; returns the program and the gradients of w
local function run(build, options)
  local params = params_of()
  local exec = E.new(E.device("cpu", 1), params, { regions = regions.gradients() })
  exec:set_param("w", "w", T.from({ 3 }, { 2, 3, 5 }))
  exec:set_param("frozen", "f", T.from({ 3 }, { 7, 11, 13 }))
  local g = G.graph(params, options)
  build(g, g:input("x", "f32", { 3 }))
  g:finish()
  local prog = exec:compile(g)
  prog:set("x", T.from({ 3 }, { 1, -1, 4 }))
  prog:run()
  return prog, exec:param("grad", "w"):totable()
end

local function near(want, got)
  for i, v in ipairs(want) do
    assert.near(v, got[i], NEAR * math.max(1, math.abs(v)))
  end
  assert.equal(#want, #got)
end

describe("g:gradients", function()
  for name, options in pairs { ["as they are"] = {}, fresh = { fresh_gradients = true } } do
    it("returns the gradients of backward, and changes no region: " .. name, function()
      local prog, grad = run(function(g, x)
        local w = g:param "w"
        local y = x * w * w
        local first = g:gradients(sum(y * y), { y, w, g:param "f" })
        local second = g:gradients(sum(y * x), { w, x })
        g:output("dy", first[1])
        g:output("dw", first[2])
        assert.is_false(first[3])
        g:output("dw2", second[1])
        g:output("dx2", second[2])
        g:backward(sum(x * w), {})
      end, options)
      -- y = x w^2
      near({ 8, -18, 200 }, prog:get("dy"):totable())
      near({ 32, 108, 200 * 40 }, prog:get("dw"):totable())
      near({ 4, 6, 160 }, prog:get("dw2"):totable())
      near({ 8, -18, 200 }, prog:get("dx2"):totable())
      near({ 1, -1, 4 }, grad)
    end)
  end

  it("weighs two losses against each other in one backward pass", function()
    local _, grad = run(function(g, x)
      local y = x * g:param "w"
      local out = g:detach(y)
      local a, b = sum(out * out), sum(out * g:param "f")
      local da, db = g:gradients(a, { out })[1], g:gradients(b, { out })[1]
      -- |da| / |db|
      local size = ops.sqrt(sum(da * da)) / ops.sqrt(sum(db * db))
      g:backward(sum(y * g:detach(da + db * size:expand { 3 })), {})
    end)
    local y, f, x = { 2, -3, 20 }, { 7, 11, 13 }, { 1, -1, 4 }
    local na, nb = 0, 0
    for i = 1, 3 do
      na, nb = na + 4 * y[i] ^ 2, nb + f[i] ^ 2
    end
    local want = {}
    for i = 1, 3 do
      want[i] = x[i] * (2 * y[i] + f[i] * (na / nb) ^ 0.5)
    end
    near(want, grad)
  end)

  it("ends at detached values, also behind views", function()
    local _, grad = run(function(g, x)
      local w = g:param "w"
      local still = g:detach((x * w):reshape { 3, 1 }):reshape { 3 }
      g:backward(sum(still * w), {})
    end)
    near({ 2, -3, 20 }, grad)
    _, grad = run(function(g, x)
      g:backward(sum(x * g:detach(g:param "w") + x * g:param "w"), {})
    end)
    near({ 1, -1, 4 }, grad)
  end)

  it("is NaN when the loss is not finite", function()
    local prog = run(function(g, x)
      local y = x * g:param "w"
      g:output("dy", g:gradients(sum(y) / sum(x - x), { y })[1])
      g:backward(sum(y), {})
    end)
    for _, v in ipairs(prog:get("dy"):totable()) do
      assert.is_true(v ~= v or math.abs(v) == math.huge)
    end
  end)

  it("must come before the backward pass, outside of blocks", function()
    local g = G.graph(params_of())
    local x = g:input("x", "f32", { 3 })
    g:block("inner", true, function()
      fails("MR_E_USAGE", "gradients inside block 'inner'", g.gradients, g, sum(x), { x })
    end)
    fails("MR_E_SHAPE", "gradients from .- expected a scalar f32 loss", g.gradients, g, x, { x })
    g:backward(sum(x * g:param "w"), {})
    fails("MR_E_USAGE", "one backward pass", g.gradients, g, sum(x), { x })
  end)
end)
