--- The gradient with respect to a parameter, frozen or not.
-- MOONREEL_DEVICE names the device.
-- Covers: core/graph/backward.c
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"

--- A loss of trainable and frozen parameters in `dtype`; `wrt(g, used)` lists the requested values.
-- Returns their gradients, region "grad", slopes, the table and the printed graph.
local function asked(dtype, wrt)
  local dev <close> = E.device(device, 1)
  local params <close> = G.params(dtype)
  params:add { name = "w", shape = { 4, 3 }, init = { kind = "xavier" } }
  params:add { name = "b", shape = { 4 }, init = { kind = "normal", scale = 1 } }
  params:add { name = "rows", shape = { 3, 4 }, init = { kind = "normal", scale = 1 } }
  params:add { name = "fixed", shape = { 4 }, init = { kind = "normal", scale = 1 }, frozen = true }
  params:add { name = "turn", shape = { 4, 4 }, init = { kind = "xavier" }, frozen = true }
  params:seal()
  local g <close> = G.graph(params)
  local used = {}
  for _, row in ipairs(params:list()) do
    used[row.name] = g:param(row.name)
  end
  local h = ops.linear(g:input("x", dtype, { 5, 3 }), used.w, used.b)
  h = ops.linear(h + used.rows:slice(0, 1, 2), used.turn) * used.fixed
  h = h + used.rows:slice(0, 0, 1) + ops.linear(h, used.turn) * used.fixed
  local loss = ops.sum(ops.cast(h * h, { dtype = "f32" }), { axes = { 0, 1 } })
  g:output("loss", loss)
  local list = wrt(g, used)
  local grads = g:backward(loss, list)
  for i, grad in ipairs(grads) do
    if grad then
      g:output("d" .. i, grad)
    end
  end
  g:finish()
  local exec <close> = E.new(dev, params, { regions = regions.adamw(), poison = true })
  exec:init(5)
  local prog <close> = exec:compile(g)
  prog:set("x", T.new("f32", { 5, 3 }):fill_normal(2, "x"))
  prog:run()
  local out = { region = exec:read("grad", "f32", 0, { params:elements() }):totable(),
    text = g:print(), dtype = {} }
  for i, grad in ipairs(grads) do
    out[i] = grad and prog:get("d" .. i):totable()
    out.dtype[i] = grad and grad.dtype
  end
  -- the change of the loss after a small step of each value
  local slopes = {}
  for _, row in ipairs(dtype == "f32" and params:list() or {}) do
    local value = exec:param("w", row.name):clone()
    local flat = value:reshape { row.count }
    local function loss_at(i, v)
      flat:slice(0, i, i + 1):copy_from(T.from({ 1 }, { v }))
      exec:set_param("w", row.name, value)
      prog:run()
      return prog:get("loss"):item()
    end
    local slope = {}
    for i = 0, row.count - 1 do
      local keep = flat[i]
      slope[i + 1] = (loss_at(i, keep + 1e-2) - loss_at(i, keep - 1e-2)) / 2e-2
      loss_at(i, keep)
    end
    slopes[row.name] = slope
  end
  out.slopes, out.list = slopes, params:list()
  return out
end

local function near(want, got)
  assert.are.equal(#want, #got)
  for i, v in ipairs(want) do
    assert.is_near(v, got[i], 5e-3 * math.max(1, math.abs(v)))
  end
end

describe("graph.backward with respect to a parameter", function()
  it("computes its gradient, and adds it to the region as usual", function()
    local plain = asked("f32", function() return {} end)
    local out = asked("f32", function(_, used) return { used.w, used.b, used.rows } end)
    for i, name in ipairs { "w", "b", "rows" } do
      near(out.slopes[name], out[i])
      local row = out.list[i]
      assert.are.equal(name, row.name)
      assert.are.same(out[i], table.move(out.region, row.offset + 1, row.offset + row.count, 1, {}))
    end
    for i, v in ipairs(plain.region) do
      assert.is_near(v, out.region[i], 1e-5 * math.max(1, math.abs(v)))
    end
  end)

  it("computes that of a frozen parameter over all its uses", function()
    local out = asked("f32", function(_, used) return { used.fixed, used.turn } end)
    near(out.slopes.fixed, out[1])
    near(out.slopes.turn, out[2])
  end)

  it("accepts a parameter as a whole, or a part of it", function()
    local out = asked("f32", function(g, used)
      return { g:param "w", g:param "turn", used.rows:slice(0, 2, 3), used.rows }
    end)
    near(out.slopes.w, out[1])
    near(out.slopes.turn, out[2])
    assert.is_false(out[3])
    near(out.slopes.rows, out[4])
  end)

  it("returns f32 for a bf16 parameter", function()
    local plain = asked("bf16", function() return {} end)
    local out = asked("bf16", function(_, used) return { used.w, used.fixed, used.rows } end)
    assert.are.same({ "f32", "f32", "f32" }, out.dtype)
    local row = out.list[1]
    assert.are.same(table.move(plain.region, row.offset + 1, row.offset + row.count, 1, {}), out[1])
    assert.is_true(math.abs(out[2][1]) > 0)
  end)

  it("computes no gradient for a frozen parameter unless requested", function()
    local out = asked("f32", function() return {} end)
    local function count(op)
      return select(2, out.text:gsub(" " .. op .. " ", ""))
    end
    assert.are.equal(1, count "linear_dw") -- of w; turn is frozen
    assert.are.equal(1, count "zeros") -- of the row that is not read
  end)

  it("reads the incoming gradient once for a weight and its bias, and for a bias alone", function()
    local function bias_of(frozen)
      local dev <close> = E.device(device, 2)
      local params <close> = G.params("f32")
      params:add { name = "w", shape = { 3, 4 }, init = { kind = "xavier" }, frozen = frozen }
      params:add { name = "b", shape = { 3 }, init = { kind = "ones" } }
      params:seal()
      local exec <close> = E.new(dev, params, { regions = regions.adamw() })
      exec:init(1)
      local g <close> = G.graph(params)
      local y = ops.linear(g:input("x", "f32", { 5, 4 }), g:param "w", g:param "b")
      local loss = ops.sum(y * y, { axes = { 0, 1 } })
      g:output("loss", loss)
      g:backward(loss)
      g:finish()
      local prog <close> = exec:compile(g)
      local values = {}
      for i = 1, 20 do
        values[i] = math.sin(i)
      end
      prog:set("x", T.from({ 5, 4 }, values))
      for _ = 1, 2 do -- the second run adds to the first
        prog:run()
      end
      local row = params:list()[2]
      return exec:read("grad", "f32", row.offset, { row.count }):totable(), g:print()
    end
    local both, text = bias_of(false)
    assert.is_truthy(text:match " linear_dw ")
    assert.is_nil(text:match " linear_db ")
    local alone, other = bias_of(true)
    assert.is_nil(other:match " linear_dw ")
    assert.is_truthy(other:match " linear_db ")
    assert.are.same(alone, both)
    assert.is_true(math.abs(both[1]) > 0)
  end)

  it("leaves out the part of a fused op that a frozen weight does not need", function()
    for _, frozen in ipairs { true, false } do
      local params <close> = G.params("f32")
      params:add { name = "scale", shape = { 4 }, init = { kind = "ones" }, frozen = frozen }
      params:seal()
      local g <close> = G.graph(params)
      local x = g:input("x", "f32", { 3, 4 })
      local h = ops.qk_norm(x:reshape { 1, 1, 3, 1, 4 }, g:param "scale"):reshape { 3, 4 }
      local y = ops.rms_norm(h, g:param "scale")
      local loss = ops.sum(ops.mul(y, y), { axes = { 0, 1 } })
      g:output("dx", g:backward(loss, { x })[1])
      g:finish()
      local text = g:print()
      assert.is_nil(text:match " zeros ")
      assert.are.equal(not frozen, text:match "=grad" ~= nil)
    end
  end)
end)
