--- Linear layers with 8-bit operands, compared with those of f32 and bf16. Results and gradients
-- are as near as the formats allow, on the CPU and, when it is built, on the emulated GPU.
-- Covers: core/op/linear_f8.c core/op/quantise_f8.c lua/moonreel/nn/init.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local process = require "moonreel.core.process"
local regions = require "moonreel.optim.regions"

local fails = dofile "spec/support/fails.lua"

-- rows that are no multiple of 16: their transposed codes end in zeros
local ROWS, INPUTS, OUTPUTS = 21, 32, 48
-- half a step of a mantissa of three bits, of two for gradients, twice in a product, and room
local FORWARD, BACKWARD = 0.05, 0.09

-- a loss over y = x w' + b; y, dx and the gradients of w and b
local function run(device, dtype, linear, change)
  local dev <close> = E.device(device, 2)
  local params <close> = G.params(dtype)
  params:add { name = "w", shape = { OUTPUTS, INPUTS }, init = { kind = "normal", scale = 0.2 } }
  params:add { name = "b", shape = { OUTPUTS }, init = { kind = "normal", scale = 0.2 } }
  params:seal()
  local g <close> = G.graph(params)
  local x = g:input("x", dtype, { 3, ROWS // 3, INPUTS })
  local up = g:input("up", "f32", { 3, ROWS // 3, OUTPUTS })
  local y = nn.cast(linear(x, g:param "w", g:param "b"), "f32")
  local loss = ops.sum(y * up, { axes = { 0, 1, 2 } })
  g:output("y", y)
  g:output("dx", g:backward(loss, { x })[1])
  g:finish()
  local exec <close> = E.new(dev, params, { regions = regions.adamw(), poison = true })
  exec:init(7)
  local prog <close> = exec:compile(g)
  local drawn = T.new("f32", { 3, ROWS // 3, INPUTS }):fill_normal(1, "x")
  prog:set("x", (change and change(drawn) or drawn):to(dtype))
  prog:set("up", T.new("f32", { 3, ROWS // 3, OUTPUTS }):fill_normal(2, "up"))
  prog:run()
  assert.equal(dtype, prog:get("dx").dtype)
  local out = { y = prog:get("y"):totable(), dx = prog:get("dx"):to("f32"):totable() }
  for _, p in ipairs(params:list()) do
    out["d" .. p.name] = exec:param("grad", p.name):totable()
  end
  return out
end

local function distance(a, b)
  assert.equal(#b, #a)
  local diff, norm = 0, 0
  for i = 1, #a do
    diff, norm = diff + (a[i] - b[i]) ^ 2, norm + b[i] ^ 2
  end
  return math.sqrt(diff / norm)
end

local devices = { "cpu" }
if base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so"))) then
  devices[2] = "cudaemu"
end

for _, device in ipairs(devices) do
  describe("nn.linear_f8 on " .. device, function()
    for _, dtype in ipairs { "f32", "bf16" } do
      it("is near the layer of " .. dtype .. ", also in its gradients", function()
        local want, got = run(device, dtype, ops.linear), run(device, dtype, nn.linear_f8)
        assert.is_true(distance(got.y, want.y) < FORWARD)
        assert.is_true(distance(got.dx, want.dx) < BACKWARD)
        assert.is_true(distance(got.dw, want.dw) < BACKWARD)
        -- a bias is no operand
        assert.is_true(distance(got.db, want.db) < 0.01)
        -- some values were rounded
        assert.is_true(distance(got.y, want.y) > 0.005)
        assert.is_true(distance(got.dx, want.dx) > 0.01)
      end)
    end

    it("returns nan when x has an infinite value", function()
      local got = run(device, "bf16", nn.linear_f8, function(x)
        return x * 3e38 * 10
      end)
      assert.is_true(got.y[1] ~= got.y[1])
    end)
  end)
end

it("is near on the emulated GPU, up to the 14 bits of its sums", function()
  if not devices[2] then
    return pending "it is not built"
  end
  local cpu, gpu = run("cpu", "f32", nn.linear_f8), run("cudaemu", "f32", nn.linear_f8)
  for _, name in ipairs { "y", "dx", "dw" } do
    assert.is_true(distance(gpu[name], cpu[name]) < 1 / 4096)
  end
end)

describe("linear_f8", function()
  local function quantised(g, name, shape, o)
    local x = g:input(name, "bf16", shape)
    return x, ops.quantise_f8(x, o or {})
  end

  it("reports what a gradient lacks", function()
    local g <close> = G.graph()
    local x, xq, xs = quantised(g, "x", { 16, 32 })
    local _, wq, ws = quantised(g, "w", { 48, 32 })
    local y = ops.linear_f8(xq, xs, wq, ws, false, false, false, x, { dtype = "f32" })
    local loss = ops.sum(y * y, { axes = { 0, 1 } })
    fails("MR_E_USAGE", "reads w_t, which is missing; try: quantise_f8", g.backward, g, loss,
      { x })
  end)

  it("reports what the gradient of a weight lacks", function()
    local params <close> = G.params("bf16")
    params:add { name = "w", shape = { 48, 32 }, init = { kind = "zeros" } }
    params:seal()
    local g <close> = G.graph(params)
    local _, xq, xs = quantised(g, "x", { 16, 32 })
    local w = g:param "w"
    local wq, ws = ops.quantise_f8(w)
    local y = ops.linear_f8(xq, xs, wq, ws, false, false, false, false, w, { dtype = "f32" })
    local loss = ops.sum(y * y, { axes = { 0, 1 } })
    fails("MR_E_USAGE", "reads x_t, which is missing; try: quantise_f8", g.backward, g, loss)
  end)

  it("transposes dy only for the gradient of a weight", function()
    local g <close> = G.graph()
    local x, w = g:input("x", "bf16", { 16, 32 }), g:input("w", "bf16", { 48, 32 })
    local loss = ops.sum(nn.cast(nn.linear_f8(x, w, false), "f32"), { axes = { 0, 1 } })
    g:output("dx", g:backward(loss, { x })[1])
    g:finish()
    local dev <close> = E.device("cpu", 1)
    local exec <close> = E.new(dev)
    local prog <close> = exec:compile(g)
    local bytes = {}
    for _, row in ipairs(prog:times()) do
      bytes[#bytes + 1] = row.op == "quantise_f8" and row.bytes or nil
    end
    -- reads a bf16 tensor, writes its codes and a scale; x and w in both orders
    assert.same({ 4 * 16 * 32 + 4, 4 * 48 * 32 + 4, 3 * 16 * 48 + 4 }, bytes)
  end)

  it("refuses lengths and formats that 8-bit products do not support", function()
    local g <close> = G.graph()
    local _, xq, xs = quantised(g, "x", { 16, 24 })
    local _, wq, ws = quantised(g, "w", { 48, 24 })
    fails("MR_E_SHAPE", "multiples of 16.*try: linear", ops.linear_f8, xq, xs, wq, ws)
    local _, aq, as = quantised(g, "a", { 16, 32 }, { dtype = "f8_e5m2" })
    local _, bq, bs = quantised(g, "b", { 48, 32 }, { dtype = "f8_e5m2" })
    fails("MR_E_SHAPE", "do not multiply two f8_e5m2", ops.linear_f8, aq, as, bq, bs)
  end)
end)
