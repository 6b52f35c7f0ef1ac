--- Gradients, joins and in-place decisions, run on a device.
-- MOONREEL_DEVICE names the device.
-- Covers: core/graph/backward.c core/graph/finish.c core/graph/read.c core/bind/graph.c
-- core/bind/op.c core/bind/value.c core/graph/store.c
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local fails = require "spec.support.fails"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"
local run = require "spec.support.small_graph"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"

describe("graph.backward", function()
  it("agrees with finite differences of the loss", function()
    local dev <close> = E.device(device, 1)
    local params <close> = G.params("f32")
    params:add { name = "w", shape = { 4, 3 }, init = { kind = "xavier" } }
    params:add { name = "s", shape = { 1, 4 }, init = { kind = "normal", scale = 1 } }
    params:seal()
    local g <close> = G.graph(params)
    local x = g:input("x", "f32", { 5, 3 })
    local h = ops.linear(x, g:param "w") * g:param("s")
    local left, right = h:split(1, 2)
    local y = G.concat({ ops.silu(right), left * left }, 1)
    local loss = ops.sum(ops.gelu_tanh(y) * y, { axes = { 0, 1 } })
    g:output("loss", loss)
    g:backward(loss)
    g:finish()
    local exec <close> = E.new(dev, params, { regions = regions.adamw() })
    exec:init(3)
    local prog <close> = exec:compile(g)
    prog:set("x", T.new("f32", { 5, 3 }):fill_normal(2, "x"))
    prog:run()
    local grad = exec:read("grad", "f32", 0, { params:elements() }):totable()
    for _, row in ipairs(params:list()) do
      local w = exec:param("w", row.name):to("f32"):clone()
      local flat = w:reshape { row.count }
      for i = 0, row.count - 1 do
        local keep, step = flat[i], 1e-2
        local function loss_at(value)
          flat:slice(0, i, i + 1):copy_from(T.from({ 1 }, { value }))
          exec:set_param("w", row.name, w)
          prog:run()
          return prog:get("loss"):item()
        end
        local numeric = (loss_at(keep + step) - loss_at(keep - step)) / (2 * step)
        loss_at(keep)
        assert.is_near(numeric, grad[row.offset + i + 1], 2e-3 * math.max(1, math.abs(numeric)))
      end
    end
  end)

  it("computes the gradient of a gathered weight over all its uses on request", function()
    local dev <close> = E.device(device, 1)
    local results = {}
    for _, gathered in ipairs { false, true } do
      local params <close> = G.params("bf16")
      params:add { name = "b", shape = { 3 }, init = { kind = "normal", scale = 1 } }
      params:add { name = "w", shape = { 6, 4 }, init = { kind = "xavier" } }
      params:seal()
      local g <close> = G.graph(params)
      local function weight()
        if not gathered then
          return g:param "w"
        end
        return g:window(ops.copy(g:region("w", "bf16", 0, { 128 })), 0, "w")
      end
      local x, w = g:input("x", "bf16", { 5, 4 }), weight()
      local y = ops.linear(x, w:slice(0, 2, 6)) + ops.linear(x, weight():slice(0, 0, 4))
      y = ops.cast(y, { dtype = "f32" })
      local loss = ops.sum(y * y, { axes = { 0, 1 } })
      g:output("dw", g:backward(loss, { w })[1])
      g:finish()
      local exec <close> = E.new(dev, params, { regions = regions.adamw() })
      exec:init(3)
      local prog <close> = exec:compile(g)
      prog:set("x", T.new("f32", { 5, 4 }):fill_normal(2, "x"))
      prog:run()
      assert.equal("f32", prog:get("dw").dtype)
      assert.same(prog:get("dw"):totable(), exec:param("grad", "w"):totable())
      results[#results + 1] = prog:get("dw"):totable()
    end
    assert.same(results[1], results[2])
  end)

  it("finds weights only where they are gathered", function()
    local params <close> = G.params("f32")
    params:add { name = "w", shape = { 4, 3 }, init = { kind = "ones" } }
    params:add { name = "v", shape = { 5 }, init = { kind = "ones" } }
    params:add { name = "still", shape = { 5 }, init = { kind = "ones" }, frozen = true }
    params:seal()
    local g <close> = G.graph(params)
    local flat = g:input("flat", "f32", { 70 })
    assert.same({ 5 }, g:window(flat, 0, "v"):slice(0, 0, 5).shape)
    fails("MR_E_RANGE", "'v' has elements 64 to 69, gathered are 70 from 65 on", g.window, g, flat,
      65, "v")
    fails("MR_E_RANGE", "'w' has elements 0 to 12, gathered are 70 from %-60 on", g.window, g, flat,
      -60, "w")
    fails("MR_E_SHAPE", "'w' in %[7, 10%] f32; expected a dense %[n%] of f32", g.window, g,
      flat:reshape { 7, 10 }, 0, "w")
    fails("MR_E_USAGE", "parameter 2 does not train", g.window, g, flat, 0, "still")
    fails("MR_E_USAGE", "no parameter 'u'", g.window, g, flat, 0, "u")
  end)

  it("adds micro-steps to the gradient", function()
    local once, twice = run({}, false, 1), run({}, false, 2)
    local worst = 0
    for i, v in ipairs(once.grad) do
      worst = math.max(worst, math.abs(2 * v - twice.grad[i]))
    end
    assert.is_true(worst < 1e-4)
  end)

  it("joins without a concat node", function()
    assert.is_nil(run({}, false).text:match("%d concat "))
  end)

  it("reports the op that has no gradient", function()
    local params <close> = G.params("f32")
    params:add { name = "w", shape = { 4 }, init = { kind = "ones" } }
    params:seal()
    local g <close> = G.graph(params)
    local s = ops.cast(ops.sum_squares(g:param "w"), { dtype = "f32" })
    local ok, err = pcall(g.backward, g, s)
    assert.is_false(ok)
    assert.matches("sum_squares", tostring(err))
    assert.matches("no gradient", tostring(err))
  end)

  it("refuses a loss that is no scalar, with its shape", function()
    local g <close> = G.graph()
    local ok, err = pcall(g.backward, g, g:input("x", "f32", { 2, 3 }))
    assert.is_false(ok)
    assert.matches("%[2, 3%] f32", tostring(err))
  end)
end)
