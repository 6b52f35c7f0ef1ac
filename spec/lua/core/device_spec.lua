--- moonreel.core.exec: devices in Lua, their facts and predictions for them.
-- MOONREEL_DEVICE names the device.
-- Covers: core/bind/device.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"
local fails = dofile "spec/support/fails.lua"

local function silu_graph(n)
  local g = G.graph()
  g:output("y", ops.silu(g:input("x", "f32", { n })))
  g:finish()
  return g
end

describe("exec.device", function()
  it("has facts", function()
    local facts = E.device("cpu", 2):facts()
    assert.equal("cpu", facts.device)
    assert.equal(2, facts.threads)
    assert.is_truthy(({ base = 1, avx2 = 1, avx512 = 1 })[facts.isa])
    assert.is_boolean(facts.bf16)
  end)

  it("computes in the requested dtype when bf16 is fast", function()
    local dev = E.device()
    assert.equal("f32", dev:compute("f32"))
    assert.equal(dev:facts().bf16 and "bf16" or "f32", dev:compute("bf16"))
  end)

  it("reports its memory", function()
    local free, all = E.device():memory()
    assert.is_true(free > 0 and free <= all)
  end)

  it("refuses unknown names", function()
    fails("MR_E_USAGE", "expected cpu, shadow or cuda", E.device, "tpu")
  end)

  it("refuses more threads than the thread library allows", function()
    for _, threads in ipairs { 4097, 1 << 32, -1, math.mininteger } do
      fails("MR_E_USAGE", "expected 1 to 4096, or 0 for all", E.device, "cpu", threads)
    end
    local most <close> = E.device("cpu", 4096)
    assert.equal(4096, most:facts().threads)
  end)
end)

describe("exec.plan", function()
  it("predicts seconds by the rates of a device for each kind of op", function()
    local dev = E.device()
    local prog = E.plan(nil, { facts = dev:facts(), rates = dev }):compile(silu_graph(1000))
    assert.equal(0, prog:times()[1].expected) -- nothing is measured yet
    local seconds, sum = prog:plan().seconds, 0
    local of = dev:rates("f32")
    for _, row in ipairs(prog:times()) do
      local rate = of.elementwise
      assert.near(row.flop / rate[1] + row.bytes / rate[2] + of.step, row.expected, 1e-12)
      sum = sum + row.expected
    end
    assert.near(sum, seconds, 1e-12)
    local ok, err = pcall(E.plan, nil, { rates = { f32 = of } })
    assert.is_false(ok)
    assert.matches("mr.Device expected", tostring(err))
    local mine, lanes = dev:rates("f32"), "attention by lanes"
    assert.is_true(mine.elementwise[1] > 0 and mine.attention[2] > 0 and mine.step > 0)
    -- the rate of both includes the activation after a product
    assert.is_true(mine.linear_gelu[1] > 0 and mine.linear_gelu[2] > 0)
    -- a form that only processors have
    local is_cpu = dev:facts().device ~= "cudaemu"
    assert.equal(is_cpu, mine[lanes] ~= nil and mine[lanes][2] > 0)
  end)

  it("refuses facts of a device without kernels", function()
    local function plan(facts) return E.plan(nil, { facts = facts }) end
    fails("MR_E_USAGE", "no option 'cores'; it takes device", plan, { cores = 2 })
    fails("MR_E_UNSUPPORTED", "no kernels for device 'tpu'", plan, { device = "tpu", isa = "avx2" })
    fails("MR_E_USAGE", "a processor with 'sse'", plan, { isa = "sse" })
  end)
end)
