--- linear and gelu_tanh become one node, and so do their gradients. The results have the same bits
-- as two nodes, and no value is lost that another node reads.
-- MOONREEL_DEVICE names the device.
-- Covers: core/graph/fuse.c
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"

-- ops of a printed graph in their order
local function names(text)
  local list = {}
  for op in text:gmatch "\n *%d+ ([%w_]+) +%%" do
    list[#list + 1] = op
  end
  return list
end

--- The loss of two layers over x [5, 8], its gradients and the graph's text.
local function run(options, again, head, dtype)
  dtype = dtype or "f32"
  local params <close> = G.params(dtype)
  params:add { name = "up", shape = { 16, 8 }, init = { kind = "xavier" } }
  params:add { name = "bias", shape = { 16 }, init = { kind = "uniform", scale = 1 } }
  params:add { name = "down", shape = { 8, 16 }, init = { kind = "xavier" } }
  params:seal()
  local dev <close> = E.device(device, 1)
  local exec <close> = E.new(dev, params, { regions = regions.adamw() })
  exec:init(3)
  local g <close> = G.graph(params, options)
  local x = g:input("x", dtype, { 5, 8 })
  local y = g:block("mlp", again, function()
    local h = ops.linear(x, g:param "up", g:param "bias")
    return ops.linear(head and head(h, g) or ops.gelu_tanh(h), g:param "down")
  end)
  local loss = ops.sum(ops.cast(ops.mul(y, y), { dtype = "f32" }), { axes = { 0, 1 } })
  g:output("loss", loss)
  g:backward(loss)
  g:finish()
  local prog <close> = exec:compile(g)
  local values = {}
  for i = 1, 40 do
    values[i] = math.sin(i)
  end
  prog:set("x", T.from({ 5, 8 }, values))
  prog:run()
  return { loss = prog:get("loss"):item(), names = names(g:print()), text = g:print(),
    grad = exec:read("grad", "f32", 0, { params:elements() }):totable() }
end

local function count(list, name)
  local n = 0
  for _, v in ipairs(list) do
    n = n + (v == name and 1 or 0)
  end
  return n
end

describe("linear and gelu_tanh", function()
  it("are one node, and so is their gradient", function()
    local kept = run({}, false)
    assert.are.equal(1, count(kept.names, "linear_gelu"))
    assert.are.equal(1, count(kept.names, "linear_dx_gelu"))
    assert.are.equal(1, count(kept.names, "gelu_tanh")) -- once more, from kept values
    assert.are.equal(0, count(kept.names, "gelu_tanh_grad"))
    assert.are.equal(0, count(kept.names, "linear_dx"))
    local again = run({}, true)
    assert.are.equal(2, count(again.names, "linear_gelu"))
    assert.are.equal(0, count(again.names, "gelu_tanh"))
    assert.are.equal(1, count(again.names, "linear_dx_gelu"))
  end)

  it("compute the bits of separate nodes on a CPU", function()
    for _, again in ipairs { false, true } do
      for _, dtype in ipairs { "f32", "bf16" } do
        local one = run({}, again, nil, dtype)
        local two = run({ no_fuse = true }, again, nil, dtype)
        assert.are.equal(0, count(two.names, "linear_gelu"))
        assert.is_true(count(two.names, "gelu_tanh_grad") == 1)
        if device == "cpu" then
          assert.are.same(two.loss, one.loss)
          assert.are.same(two.grad, one.grad)
        end
        local worst = 0
        for i, v in ipairs(two.grad) do
          worst = math.max(worst, math.abs(v - one.grad[i]))
        end
        assert.is_true(worst < 0.05, tostring(worst))
      end
    end
  end)

  it("keep the result of linear only when a node reads it", function()
    local function made(again)
      local _, n = run({}, again).text:match("linear_gelu +([^\n]*)<%-"):gsub("%%%d+", "")
      return n
    end
    assert.are.equal(1, made(true))
    assert.are.equal(2, made(false))
  end)

  it("stay separate when a node between them reads the sums", function()
    local out = run({}, false, function(h)
      local twice = h * h
      return ops.gelu_tanh(h) + twice
    end)
    assert.are.equal(0, count(out.names, "linear_gelu"))
  end)

  it("stay separate when gelu reads a part or another shape of the sums", function()
    local out = run({}, false, function(h)
      return ops.gelu_tanh(h:reshape { 5, 2, 8 }):reshape { 5, 16 }
    end)
    assert.are.equal(0, count(out.names, "linear_gelu"))
  end)

  it("keep sums that are an output", function()
    local g <close> = G.graph()
    local h = ops.linear(g:input("x", "f32", { 3, 4 }), g:input("w", "f32", { 2, 4 }))
    g:output("h", h)
    g:output("y", ops.gelu_tanh(h))
    g:finish()
    local dev <close> = E.device(device, 1)
    local exec <close> = E.new(dev)
    local prog <close> = exec:compile(g)
    prog:set("x", T.from({ 3, 4 }, { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 }))
    prog:set("w", T.from({ 2, 4 }, { 1, 2, 3, 4, 5, 6, 7, 8 }))
    prog:run()
    assert.are.same({ 1, 5, 2, 6, 3, 7 }, prog:get("h"):reshape({ 6 }):totable())
    assert.is_near(0.841192, prog:get("y"):reshape({ 6 }):totable()[1], 1e-5)
    assert.are.equal(1, count(names(g:print()), "linear_gelu"))
  end)

  it("are the node that a copy waits for in place of the sums", function()
    local g <close> = G.graph()
    local x = g:input("x", "f32", { 3, 4 })
    local h = ops.linear(x, g:input("w", "f32", { 2, 4 }))
    g:output("y", ops.gelu_tanh(h))
    g:output("back", g:move(g:move(ops.silu(x), "pinned"), "device", h))
    g:finish()
    local text = g:print()
    local made = text:match "linear_gelu +(%%%d+)@"
    assert.are.equal(made, text:match " copy [^\n]*  after (%%%d+)")
  end)
end)
