--- Gradients, recomputation, joins and in-place decisions, run on a device.
-- MOONREEL_DEVICE names the device.
-- Covers: core/graph/backward.c core/graph/build.c core/graph/finish.c core/graph/read.c
-- core/graph/move.c core/graph/recompute.c core/bind/graph.c core/bind/op.c core/bind/value.c
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local fails = dofile "spec/support/fails.lua"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"

--- A small network with views, a join, broadcasting, a shared weight and blocks. Returns outputs by
-- name. Weights are read in place, or gathered first: each from a copy of the 64 elements before
-- it and those up to its end. With `offload` some values wait in host memory for the backward
-- pass.
local function run(options, recompute, micro_steps, gathered, offload)
  local dev <close> = E.device(device, 2)
  local params <close> = G.params("f32")
  params:add { name = "w1", shape = { 12, 6 }, init = { kind = "xavier" } }
  params:add { name = "b1", shape = { 12 }, init = { kind = "normal", scale = 0.1 } }
  params:add { name = "table", shape = { 2, 4 }, init = { kind = "normal", scale = 0.5 } }
  params:add { name = "w2", shape = { 4, 4 }, init = { kind = "xavier" } }
  params:add { name = "fixed", shape = { 4 }, init = { kind = "ones" }, frozen = true }
  params:seal()
  local g <close> = G.graph(params, options)
  local rows = {}
  for _, row in ipairs(params:list()) do
    rows[row.name] = row
  end
  local function weight(name)
    if not gathered then
      return g:param(name)
    end
    local first, stop = math.max(0, rows[name].offset - 64), rows[name].offset + rows[name].count
    return g:window(ops.copy(g:region("w", "f32", first, { stop - first })), first, name)
  end
  local x = g:input("x", "f32", { 2, 3, 6 })
  local y = g:block("first", recompute, function()
    local h = ops.linear(x, weight "w1", weight "b1")
    if offload then
      g:offload(h)
    end
    local qkv = h:reshape { 2, 3, 3, 4 }
    local q, k, v = qkv:split(2, 3)
    q, k, v = ops.silu(q:reshape { 2, 3, 4 }), k:reshape { 2, 3, 4 }:permute { 1, 0, 2 },
      v:reshape { 2, 3, 4 }
    local t = weight("table"):reshape { 2, 1, 4 }
    local mixed = q * t + ops.gelu_tanh(k:permute { 1, 0, 2 })
    return G.concat({ mixed, v }, 1)
  end)
  if offload then
    g:offload(y)
  end
  local z = g:block("second", recompute, function()
    local a = ops.linear(ops.silu(y), weight "w2")
    local b = ops.linear(a * g:param("fixed"), weight("w2"):slice(0, 0, 4))
    return a + b:slice(1, 0, 6) + y
  end)
  local loss = ops.sum(z * z, { axes = { 0, 1, 2 } })
  g:output("loss", loss)
  g:output("z", z)
  local dx = g:backward(loss, { x })
  g:output("dx", dx[1])
  g:finish()
  local exec <close> = E.new(dev, params, { regions = regions.adamw(), poison = true })
  exec:init(7)
  local prog <close> = exec:compile(g)
  prog:set("x", T.new("f32", { 2, 3, 6 }):fill_normal(1, "x"))
  for _ = 1, micro_steps or 1 do
    prog:run()
  end
  local out = { loss = prog:get("loss"):item(), z = prog:get("z"):bytes(),
    dx = prog:get("dx"):totable(), text = g:print() }
  out.grad = exec:read("grad", "f32", 0, { params:elements() }):totable()
  out.peak, out.pinned = prog:memory().arena, prog:memory().pinned
  return out
end

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

  it("computes the same bits from gathered weights, gathered again in repeated blocks", function()
    local plain = run({}, false)
    for _, recompute in ipairs { false, true } do
      local other = run({}, recompute, 1, true)
      assert.are.equal(plain.z, other.z)
      assert.are.same(plain.dx, other.dx)
      assert.are.same(plain.grad, other.grad)
      local _, copies = other.text:gsub("\n +%d+ copy ", "")
      local _, again = other.text:gsub("\n +%d+ copy [^\n]*recompute_of", "")
      assert.is_true(copies >= 5 and (again > 0) == recompute)
    end
  end)

  it("computes the same bits from values that waited on the host, in less memory", function()
    for _, options in ipairs { {}, { no_cheap = true }, { no_inplace = true } } do
      for _, recompute in ipairs { false, true } do
        local plain, other = run(options, recompute), run(options, recompute, 1, false, true)
        assert.are.equal(plain.z, other.z)
        assert.are.same(plain.dx, other.dx)
        assert.are.same(plain.grad, other.grad)
        assert.equal(0, plain.pinned)
        -- h is [2, 3, 12] and y [2, 6, 4], f32, in granules of 64 bytes; each is copied out and
        -- back once
        assert.equal(320 + 192, other.pinned)
        local _, away = other.text:gsub("copy +%%%d+@host:", "")
        local _, back = other.text:gsub("copy +%%%d+@s[^\n]*<%- %%%d+@host:", "")
        assert.same({ 2, 2 }, { away, back })
      end
    end
    -- a chain of large values, each needed again: all but the current one wait on the host
    local peaks = {}
    for _, offload in ipairs { false, true } do
      local dev <close> = E.device(device, 1)
      local g <close> = G.graph(nil, { no_cheap = true })
      local x = g:input("x", "f32", { 4096 })
      local y = x
      for _ = 1, 8 do
        y = ops.silu(y)
        if offload then
          g:offload(y)
        end
      end
      local loss = ops.sum(y, { axes = { 0 } })
      g:output("dx", g:backward(loss, { x })[1])
      g:finish()
      local exec <close> = E.new(dev)
      peaks[#peaks + 1] = exec:compile(g):memory().arena
    end
    assert.is_true(peaks[2] <= 4 * 4096 * 4 and peaks[1] >= 8 * 4096 * 4,
      table.concat(peaks, " "))
  end)

  it("keeps only the saved part of a join that is repeated", function()
    local ROWS, WIDTH, BLOCKS = 512, 16, 6
    -- each block joins `kept` with four times as much that it repeats
    local function measured(recompute, save)
      local dev <close> = E.device(device, 1)
      local params <close> = G.params("f32")
      for i = 1, BLOCKS do
        params:add { name = "w" .. i, shape = { WIDTH, 5 * WIDTH }, init = { kind = "xavier" } }
      end
      params:seal()
      local g <close> = G.graph(params, { no_cheap = not recompute })
      local x = g:input("x", "f32", { ROWS, WIDTH })
      local y = x
      for i = 1, BLOCKS do
        y = g:block("b" .. i, recompute, function()
          local kept = ops.exp(ops.affine(y, { scale = -0.5 }))
          if save then
            g:save(kept)
          end
          local wide = ops.silu(G.concat({ y, kept * y, y, y }, 1))
          return ops.linear(G.concat({ kept, wide }, 1), g:param("w" .. i))
        end)
      end
      local loss = ops.sum(y * y, { axes = { 0, 1 } })
      g:output("loss", loss)
      g:output("dx", g:backward(loss, { x })[1])
      g:finish()
      local exec <close> = E.new(dev, params, { regions = regions.adamw(), poison = true })
      exec:init(7)
      local prog <close> = exec:compile(g)
      prog:set("x", T.new("f32", { ROWS, WIDTH }):fill_normal(1, "x"))
      prog:run()
      return { loss = prog:get("loss"):item(), dx = prog:get("dx"):bytes(),
        grad = exec:read("grad", "f32", 0, { params:elements() }):bytes(),
        arena = prog:memory().arena }
    end
    local whole, again, saved = measured(false), measured(true), measured(true, true)
    for _, other in ipairs { again, saved } do
      assert.same({ whole.loss, whole.dx, whole.grad }, { other.loss, other.dx, other.grad })
    end
    local part = ROWS * WIDTH * 4
    -- six parts of each block at least; a device may need workspaces, too
    assert.is_true(again.arena + BLOCKS * 6 * part <= whole.arena)
    -- one part of five of each block, and no more
    assert.is_true(saved.arena <= again.arena + BLOCKS * part,
      ("%d, then %d"):format(again.arena, saved.arena))
  end)

  it("copies at most two values to host memory at a time", function()
    local g <close> = G.graph(nil, { no_cheap = true })
    local x = g:input("x", "f32", { 64 })
    local y = x
    for _ = 1, 4 do
      y = ops.silu(y)
      g:offload(y)
    end
    local loss = ops.sum(y, { axes = { 0 } })
    g:output("loss", loss)
    g:output("dx", g:backward(loss, { x })[1])
    g:finish()
    local steps = {}
    for queue, rest in g:schedule():gmatch "\n +%d+ (%S+)([^\n]*)" do
      steps[#steps + 1] = queue .. (rest:match "  waits for %d+" or "")
    end
    assert.same({
      "compute", "d2h  waits for 0", "compute", "d2h  waits for 2",
      -- compute continues when the copy before the newest is over
      "compute  waits for 1", "d2h  waits for 4", "compute  waits for 3", "compute  waits for 5",
      "compute", "compute", -- the gradient of the loss
      -- the first is copied back at once, others during the gradient that needs the one before
      "h2d  waits for 5", "compute  waits for 10", "h2d  waits for 9", "compute  waits for 12",
      "h2d  waits for 11", "compute  waits for 14", "compute",
      "d2h  waits for 7", "d2h  waits for 16", -- the outputs
    }, steps)
  end)

  it("copies the inputs of a block to host memory together", function()
    local g <close> = G.graph(nil, { no_cheap = true })
    local x = g:input("x", "f32", { 64 })
    local a, b = x, x
    for _ = 1, 2 do
      a, b = ops.silu(a), ops.silu(b)
      g:offload(a)
      g:offload(b)
    end
    g:output("dx", g:backward((ops.sum(ops.silu(a) + ops.silu(b), { axes = { 0 } })), { x })[1])
    local waits = {}
    for step, queue, rest in g:finish():schedule():gmatch "\n +(%d+) (%S+)([^\n]*)" do
      waits[#waits + 1] = queue == "compute" and rest:match "waits for %d+" and #waits < 2
        and step .. rest:match "  waits for %d+" or nil
    end
    -- 0, 1; copies 2, 3; 4, 5; copies 6, 7: 8 continues when both of the first are over
    assert.equal("8  waits for 3", waits[1])
  end)

  it("copies values between memories, also from views, and only copies read host memory", function()
    local dev <close> = E.device(device, 1)
    local g <close> = G.graph()
    local x = g:input("x", "f32", { 4, 6 })
    -- the copy has the layout of its source, also where a join could place it elsewhere
    local turned = ops.exp(x):permute { 1, 0 }
    local there = g:move(turned, "pinned")
    local back = g:move(there, "device")
    local joined = G.concat({ back, ops.silu(back) }, 1)
    g:output("y", ops.copy(joined))
    fails("MR_E_USAGE", "op 'exp': input 'x' is in host memory; try: move it back", ops.exp,
      there)
    fails("MR_E_USAGE", "output 'there' is in host memory", g.output, g, "there", there)
    fails("MR_E_USAGE", "is there already", g.move, g, back, "device")
    fails("MR_E_USAGE", "is there already", g.move, g, there, "pinned")
    fails("MR_E_USAGE", "is constant", g.offload, g, g:const(T.new("f32", { 4 })))
    fails("MR_E_USAGE", "a strided view in host memory", g.move, g, there:permute { 1, 0 },
      "device")
    g:finish()
    local exec <close> = E.new(dev, nil, { poison = true })
    local prog <close> = exec:compile(g)
    local given = T.new("f32", { 4, 6 }):fill_normal(1, "x")
    prog:set("x", given)
    prog:run()
    local want = given:clone()
    local got = prog:get("y")
    for i = 0, 3 do
      for k = 0, 5 do
        local e = math.exp(want[i .. ", " .. k])
        assert.is_near(e, got[k .. ", " .. i], 1e-5 * e)
        assert.is_near(e / (1 + math.exp(-e)), got[k .. ", " .. i + 4], 1e-5 * e)
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

  it("computes the same bits with and without recomputation, in-place ops and cheap ops", function()
    local plain = run({ no_inplace = true, no_cheap = true }, false)
    for _, case in ipairs { { { no_cheap = true }, false }, { {}, false },
        { {}, true }, { { no_inplace = true }, true } } do
      local other = run(case[1], case[2])
      assert.are.equal(plain.loss, other.loss)
      assert.are.equal(plain.z, other.z)
      assert.are.same(plain.dx, other.dx)
      assert.are.same(plain.grad, other.grad)
    end
    assert.matches("recompute_of", run({}, true).text)
    assert.is_nil(plain.text:match("recompute_of"))
  end)

  it("repeats ops inside a block, and keeps values that leave it or are marked", function()
    local function repeated(mark, no_save)
      local params <close> = G.params("f32")
      params:add { name = "w", shape = { 4, 4 }, init = { kind = "xavier" } }
      params:seal()
      local g <close> = G.graph(params, { no_cheap = true, no_save = no_save })
      local x = g:input("x", "f32", { 3, 4 })
      for b = 1, 2 do
        x = g:block("block" .. b, true, function()
          local h = ops.linear(x, g:param "w")
          if mark then
            g:save(h)
          end
          return ops.mul(ops.gelu_tanh(h), h)
        end)
      end
      local loss = ops.sum(ops.mul(x, x), { axes = { 0, 1 } })
      g:output("loss", loss)
      g:backward(loss)
      g:finish()
      local ops_of = {}
      for op in g:print():gmatch "%d+ (%a[%w_]*) +%%[^\n]*recompute_of" do
        ops_of[#ops_of + 1] = op
      end
      table.sort(ops_of)
      return ops_of
    end
    assert.are.same({ "gelu_tanh", "gelu_tanh", "linear", "linear" }, repeated(false))
    assert.are.same({ "gelu_tanh", "gelu_tanh" }, repeated(true))
    assert.are.same(repeated(false), repeated(true, true))
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

describe("a shape error", function()
  it("names the Lua line and both shapes", function()
    local g <close> = G.graph()
    local x, y = g:input("x", "f32", { 2, 3 }), g:input("y", "f32", { 2, 4 })
    local ok, err = pcall(function() return ops.add(x, y) end)
    assert.is_false(ok)
    assert.matches("backward_spec.lua:%d+", tostring(err))
    assert.matches("%[2, 3%]", tostring(err))
    assert.matches("%[2, 4%]", tostring(err))
    assert.are.equal("MR_E_SHAPE", err.code)
    -- also when the op's own message leaves them out
    local w = g:input("w", "f32", { 4 })
    ok, err = pcall(function() return ops.rms_norm(x, w) end)
    assert.is_false(ok)
    assert.matches("backward_spec.lua:%d+: rms_norm 'rms_norm#%d': expected w .*; x is %[2, 3%] "
      .. "f32, w is %[4%] f32", tostring(err))
  end)
end)
