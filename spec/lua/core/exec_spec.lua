--- moonreel.core.exec: executors and programs from Lua.
-- MOONREEL_DEVICE names the device.
-- Covers: core/bind/exec.c core/bind/params.c core/bind/program.c
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local ops = require "moonreel.core.op"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local regions = require "moonreel.optim.regions"

local function double_graph(n, block)
  local g = G.graph()
  local x = g:input("x", "f32", { n })
  local y
  g:block(block or "only", false, function() y = ops.silu(x) * 2 end)
  g:output("y", y)
  g:finish()
  return g
end

local function params_of(dtype)
  local p = G.params(dtype)
  p:add { name = "w", shape = { 3, 4 }, init = { kind = "normal", scale = 1 } }
  p:add { name = "null", shape = { 5 }, init = { kind = "ones" }, frozen = true }
  p:seal()
  return p
end

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(err):find(part, 1, true), tostring(err))
  return err
end

describe("exec.plan", function()
  it("has the same facts for a program without a device as with one, and runs nothing", function()
    local dev = E.device()
    local params = params_of("f32")
    local options = { regions = { { name = "grad", dtype = "f32" } } }
    local runs = E.new(dev, params, options)
    options.facts, options.rates = dev:facts(), dev
    local plans = E.plan(params, options)
    local g = double_graph(1000)
    local one, other = runs:compile(g):plan(), plans:compile(g):plan()
    assert.same(one, other)
    assert.is_true(one.seconds > 0 and one.total > one.memory.params)
    local err = fails("only plans and has no device", function() plans:compile(g):run() end)
    assert.equal("MR_E_USAGE", err.code)
    fails("has no rates to predict seconds by", function() E.plan():compile(g):plan() end)
  end)
end)

describe("exec programs", function()
  it("set inputs, run and return results", function()
    local run = E.new(E.device())
    local prog = run:compile(double_graph(3))
    prog:set("x", T.from({ 3 }, { 0, 1, -1 }))
    prog:run()
    local y = prog:get("y")
    assert.near(2 / (1 + math.exp(-1)), y:totable()[2], 1e-6)
    assert.same({ 3 }, y.shape)
  end)

  it("run in a queue, and results are fetched without a wait for later runs",
    function()
    local run = E.new(E.device())
    local prog = run:compile(double_graph(3))
    local before, fetched = run:waits(), {}
    for k = 1, 4 do
      prog:set("x", T.from({ 3 }, { k, 0, -1 }))
      prog:run()
      fetched[k] = prog:fetch("y")
    end
    prog:close()
    local last = fetched[4]:get()
    assert.same({ 3 }, last.shape)
    for k = 1, 4 do
      assert.is_true(fetched[k]:ready())
      assert.near(2 * k / (1 + math.exp(-k)), fetched[k]:get():totable()[1], 1e-5)
    end
    local now = run:waits()
    assert.same({ 0, 1 }, { now.all - before.all, now.results - before.results })
    run:close()
    fails("closed", fetched[1].get, fetched[1])
  end)

  it("return only small results in this way", function()
    local prog = E.new(E.device()):compile(double_graph(1000))
    prog:set("x", T.new("f32", { 1000 }))
    prog:run()
    assert.equal("MR_E_USAGE", fails("at most 512 are fetched", prog.fetch, prog, "y").code)
    fails("no output 'z'", prog.fetch, prog, "z")
  end)

  it("report what is wrong with an input", function()
    local prog = E.new(E.device()):compile(double_graph(3))
    fails("input 'x' was never set", prog.run, prog)
    local err = fails("input 'x' is [3] f32, the given tensor is [4] f32",
      prog.set, prog, "x", T.new("f32", { 4 }))
    assert.equal("MR_E_SHAPE", err.code)
    fails("no output 'z'", prog.get, prog, "z")
  end)

  it("report memory, cost and the peak", function()
    local prog = E.new(E.device()):compile(double_graph(1000, "blocks.7"))
    local m = prog:memory()
    assert.is_true(m.arena >= 4000 and m.arena >= m.bound)
    assert.is_true(prog:cost().flop > 0)
    assert.is_truthy(prog:report():find("blocks.7", 1, true))
  end)

  it("plan a run before it runs", function()
    local plan = E.new(E.device()):compile(double_graph(1000)):plan()
    assert.is_true(plan.seconds > 0 and plan.seconds < 10)
    assert.is_true(plan.flop > 0 and plan.bytes > 0)
    assert.is_true(plan.total >= plan.memory.arena + plan.memory.inputs)
  end)

  it("report the kernel that runs, when there are several", function()
    local facts = { device = "cpu", isa = "avx512", threads = 1, bf16 = true }
    local function ways(channels, dtype, more)
      local g = G.graph()
      local x = g:input("x", dtype, { 1, 2, 8, 8, channels })
      local w = g:input("w", dtype, { channels, channels, 1, 3, 3 })
      local y = ops.conv3d(x, w, false, { pad = { 0, 0, 1, 1, 1, 1 } })
      y = ops.linear(y:reshape { 128, channels }, g:input("v", dtype, { 64, channels }))
      g:output("y", y)
      g:finish()
      for key, value in pairs(more or {}) do
        facts[key] = value
      end
      local list = {}
      for _, row in ipairs(E.plan(params_of(dtype), { facts = facts }):compile(g):times()) do
        list[row.op] = row.way or "usual"
      end
      return { list.conv3d, list.linear }
    end
    assert.same({ "fewer products", "library" }, ways(64, "f32"))
    assert.same({ "usual", "library" }, ways(48, "bf16"))
    assert.same({ "fewer products", "usual" }, ways(64, "bf16", { bf16_by_f32 = true }))
  end)

  it("report the number of equal steps", function()
    local g = G.graph()
    local x, w = g:input("x", "f32", { 4, 8 }), g:input("w", "f32", { 8, 8 })
    -- as many, with other shapes and another type
    local y = ops.linear(ops.linear(x, w), w) + ops.linear(x:slice(0, 0, 4), w)
    g:output("y", y)
    g:output("z", ops.linear(x:slice(0, 0, 2), w))
    -- with the same cost in other dimensions
    g:output("s", ops.silu(x:reshape { 4, 2, 4 }))
    g:output("t", ops.silu(x:reshape { 4, 4, 2 }))
    g:output("v", ops.linear(g:input("a", "bf16", { 4, 8 }), g:input("b", "bf16", { 8, 8 })))
    g:finish()
    local prog, of = E.new(E.device()):compile(g), {}
    local function key(row)
      return ("%s %s %s %s %s %.17g %.17g"):format(row.op, row.shapes, row.backward, row.again,
        row.naive, row.flop, row.bytes)
    end
    for _, row in ipairs(prog:times()) do
      of[key(row)] = (of[key(row)] or 0) + 1
    end
    local most = 0
    for _, row in ipairs(prog:kinds()) do
      assert.equal(of[key(row)], row.count)
      of[key(row)], most = nil, math.max(most, row.op == "linear" and row.count or 0)
    end
    assert.same({}, of)
    assert.equal(3, most)
  end)

  it("time each op and write a trace file in JSON", function()
    local prog = E.new(E.device()):compile(double_graph(1000, "blocks.7"))
    prog:set("x", T.new("f32", { 1000 }))
    prog:time(true)
    prog:run()
    local rows = prog:times()
    assert.equal("silu", rows[1].op)
    assert.equal("blocks.7", rows[1].block)
    assert.is_truthy(rows[1].origin:find("exec_spec.lua", 1, true))
    assert.is_true(rows[1].seconds > 0)
    local path = os.tmpname()
    prog:trace(path)
    local events = json.decode(base.read_file(path)).traceEvents
    os.remove(path)
    local seen
    for _, e in ipairs(events) do
      if e.name == "silu" then
        seen = e
      end
    end
    assert.equal("X", seen.ph)
    assert.equal("blocks.7", seen.cat)
    assert.is_true(seen.dur > 0)
  end)

  it("may be closed in any order", function()
    local dev = E.device()
    local run = E.new(dev)
    local g = double_graph(3)
    local prog = run:compile(g)
    local other = run:compile(g)
    dev:close()
    prog:set("x", T.new("f32", { 3 }))
    prog:run()
    prog:close()
    prog:close()
    fails("closed", prog.run, prog)
    run:close()
    fails("executor of this program is closed", other.run, other)
    other:close()
    g:close()
  end)

  it("report a closed graph", function()
    local g = double_graph(3)
    local prog = E.new(E.device()):compile(g)
    g:close()
    fails("closed", prog.run, prog)
  end)
end)

describe("an executor refuses", function()
  it("places outside a region", function()
    local run = E.new(E.device(), params_of("f32"), { regions = regions.adamw() })
    local one = T.new("f32", { 1 })
    -- 2^62 elements of 4 bytes are 0 in 64 bits
    for _, at in ipairs { 1 << 62, -1, 1 << 40, math.mininteger } do
      assert.equal("MR_E_RANGE", fails("region", run.write, run, "w", at, one).code)
      assert.equal("MR_E_RANGE", fails("region", run.read, run, "w", "f32", at, { 1 }).code)
    end
    fails("too large", run.read, run, "w", "f32", 0, { 1 << 32, 1 << 32 })
    fails("dimension 1 is -4", run.read, run, "w", "f32", 0, { 3, -4 })
  end)

  it("a graph that is not finished", function()
    local g = G.graph()
    g:output("y", ops.silu(g:input("x", "f32", { 3 })))
    local err = fails("not finished", function() E.new(E.device()):compile(g) end)
    assert.equal("MR_E_USAGE", err.code)
  end)

  it("parameters of impossible shapes", function()
    local p = G.params("f32")
    local zeros = { kind = "zeros" }
    fails("parameter 'a'", p.add, p, { name = "a", shape = { -1, 4 }, init = zeros })
    fails("too large", p.add, p, { name = "b", shape = { 1 << 40, 1 << 40 }, init = zeros })
    fails("too large", p.add, p, { name = "c", shape = { 1 << 32, 1 << 32 },
      init = { kind = "values", values = T.new("f32", { 0 }) } })
    assert.equal(0, p:count())
  end)

  it("values of another graph", function()
    local g, other = G.graph(), G.graph()
    local x, y = g:input("x", "f32", { 3 }), other:input("y", "f32", { 3 })
    local loss = ops.sum(x, { axes = { 0 } })
    fails("another graph", g.output, g, "y", y)
    fails("another graph", g.save, g, y)
    fails("another graph", g.backward, g, loss, { y })
    fails("another graph", other.backward, other, loss)
  end)
end)

describe("exec regions", function()
  it("hold initial weights of each kind", function()
    local params = params_of("bf16")
    local run = E.new(E.device(), params, { regions = regions.adamw{ema = true} })
    run:init(11)
    local master = run:param("master", "w"):totable()
    assert.same(params:initial("w", 11):totable(), master)
    assert.same(master, run:param("ema", "w"):totable())
    assert.equal("bf16", run:param("w", "w").dtype)
    assert.same(params:initial("w", 11):to("bf16"):totable(), run:param("w", "w"):totable())
    assert.same({ 1, 1, 1, 1, 1 }, run:param("frozen", "null"):totable())
    for _, v in ipairs(run:param("adam_v", "w"):totable()) do
      assert.equal(0, v)
    end
    fails("is frozen", run.param, run, "grad", "null")
    fails("no parameter 'q'", run.param, run, "w", "q")
  end)

  it("are read, written, and refreshed", function()
    local run = E.new(E.device(), params_of("bf16"), { regions = regions.adamw() })
    local w = T.from({ 3, 4 }, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 })
    run:set_param("master", "w", w)
    assert.equal(0, run:param("w", "w"):totable()[12])
    run:refresh()
    assert.same(w:totable(), run:param("w", "w"):totable())
    assert.same({ 3, 4 }, run:read("master", "f32", 2, { 2 }):totable())
    run:write("master", 1, T.from({ 1 }, { -2 }))
    assert.same({ 1, -2, 3 }, run:read("master", "f32", 0, { 3 }):totable())
    assert.is_true(run:has("grad"))
    assert.is_false(run:has("ema"))
    local bytes = {}
    for _, r in ipairs(run:regions()) do
      bytes[r.name] = r.bytes
    end
    assert.equal(bytes.w * 2, bytes.master)
    fails("parameter 'w' is [3, 4]", run.set_param, run, "master", "w", T.new("f32", { 4, 3 }))
    assert.equal("MR_E_RANGE", fails("region 'w'", run.read, run, "w", "bf16",
      bytes.w // 2, { 1 }).code)
  end)
end)
