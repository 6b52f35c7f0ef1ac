--- Finishing a graph decides on places: runs never overwrite values computed in setup, and joins
-- and in-place ops keep each value that another node still reads.
-- MOONREEL_DEVICE names the device.
-- Covers: core/graph/finish.c core/exec/plan.c
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local ops = require "moonreel.core.op"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"

--- Builds a graph with `make(g, x)` over an input x [4, 6] of 1 to 24 and runs it three times.
-- Returns the outputs by name; the runs must agree.
local function three_runs(make, options)
  local dev <close> = E.device(device, 1)
  local g <close> = G.graph(nil, options)
  local values = {}
  for i = 1, 24 do
    values[i] = i
  end
  make(g, g:input("x", "f32", { 4, 6 }))
  g:finish()
  local exec <close> = E.new(dev, nil, { poison = true })
  local prog <close> = exec:compile(g)
  prog:set("x", T.from({ 4, 6 }, values))
  local first
  for run = 1, 3 do
    prog:run()
    local now = {}
    for _, name in ipairs(g:outputs()) do
      now[name] = prog:get(name):totable()
    end
    first = first or now
    assert.are.same(first, now, "run " .. run)
  end
  return first, g:print()
end

local function const(g, n)
  local zeros = T.new("f32", n or { 4, 6 })
  return g:const(zeros)
end

describe("a value computed in setup", function()
  it("is the same in each run", function()
    local out = three_runs(function(g, x) g:output("y", ops.exp(const(g)) + x) end)
    assert.are.equal(2, out.y[1])
    assert.are.equal(25, out.y[24])
  end)

  it("is not overwritten through a view", function()
    local out = three_runs(function(g, x)
      local one = ops.exp(const(g, { 24 }))
      g:output("y", one:reshape { 4, 6 } + x)
      g:output("z", ops.silu(one:reshape { 6, 4 }))
    end)
    assert.are.equal(2, out.y[1])
    assert.is_near(1 / (1 + math.exp(-1)), out.z[24], 1e-6)
  end)

  it("keeps its place when it is part of a join", function()
    local out, text = three_runs(function(g, x)
      local one = ops.exp(const(g))
      local y = G.concat({ one, ops.silu(x) }, 0)
      g:output("y", ops.affine(y, { scale = 2 }))
      g:output("one", one)
    end)
    assert.are.equal(2, out.y[1])
    assert.are.equal(1, out.one[24])
    assert.matches("copy .*%(spec/lua/graph/finish_spec", text)
  end)

  it("may be a join itself", function()
    local out = three_runs(function(g, x)
      local one = ops.exp(const(g, { 2, 6 }))
      g:output("y", G.concat({ one, ops.exp(one) }, 0) + x)
    end)
    assert.is_near(2, out.y[1], 0)
    assert.is_near(math.exp(1) + 24, out.y[24], 1e-5)
  end)
end)

--- How often `pattern` occurs in the printed graph.
local function count(text, pattern)
  return select(2, text:gsub(pattern, ""))
end

describe("a join", function()
  it("is written by the nodes that make its parts", function()
    local out, text = three_runs(function(g, x)
      local a, b = ops.silu(x), ops.affine(x, { scale = 3 })
      local y = G.concat({ a, b }, 1)
      g:output("y", ops.add(y, y))
    end)
    assert.are.equal(0, count(text, " copy "))
    assert.are.equal(6, out.y[7])
  end)

  -- x with its first and last row repeated, then its columns: nested joins with views of parts
  local function bordered(x)
    local rows = G.concat({ x:slice(0, 0, 1), x, x:slice(0, 3, 4) }, 0)
    return G.concat({ rows:slice(1, 0, 1), rows, rows:slice(1, 5, 6) }, 1)
  end

  it("includes views of its parts, wherever they begin", function()
    local out, text = three_runs(function(g, x) g:output("y", bordered(ops.affine(x, { shift = 1 }))
      + const(g, { 6, 8 })) end)
    for i = 0, 47 do
      local row, column = math.min(math.max(i // 8 - 1, 0), 3), math.min(math.max(i % 8 - 1, 0), 5)
      assert.equal(6 * row + column + 2, out.y[i + 1])
    end
    -- only the border is copied: two rows, two columns
    assert.equal(4, select(2, text:gsub("copy", "")), text)
  end)

  it("copies parts when strides cannot express their views", function()
    local out = three_runs(function(g, x)
      local y = ops.affine(x, { shift = 1 })
      -- four elements across the end of a row
      local over = y:reshape { 24 }:slice(0, 4, 8)
      local joined = G.concat({ y, y:slice(1, 0, 1) }, 1)
      g:output("sum", joined + const(g, { 4, 7 }))
      g:output("over", over + const(g, { 4 }))
    end)
    assert.same({ 6, 7, 8, 9 }, out.over)
    assert.same({ 2, 3, 4, 5, 6, 7, 2 }, { table.unpack(out.sum, 1, 7) })
  end)

  it("copies a part that another reader needs dense", function()
    local _, text = three_runs(function(g, x)
      local w = ops.silu(x:slice(0, 0, 2))
      local y = G.concat({ w, ops.exp(w) }, 1)
      g:output("y", ops.add(y, y))
      g:output("z", ops.linear(x, w))
    end)
    assert.are.equal(1, count(text, " copy "))
  end)

  it("copies an output, and a part that occurs twice", function()
    local out, text = three_runs(function(g, x)
      local a = ops.silu(x)
      local b = ops.affine(x, { scale = 2 })
      g:output("a", a)
      local y = G.concat({ a, b, b }, 0)
      g:output("y", ops.add(y, y))
    end)
    assert.are.equal(2, count(text, " copy "))
    assert.are.equal(2 * out.a[5], out.y[5])
    assert.are.equal(out.y[25], out.y[49])
  end)
end)

describe("an op that may work in place", function()
  it("does so at the last read of its input, and not before", function()
    local out, text = three_runs(function(g, x)
      local a = ops.silu(x)
      local b = ops.exp(ops.affine(a, { scale = -1 }))
      g:output("y", ops.add(b, a))
    end)
    assert.are.equal(2, count(text, "  in place"))
    local silu = 1 / (1 + math.exp(-1))
    assert.is_near(math.exp(-silu) + silu, out.y[1], 1e-6)
    -- without in-place ops, none is
    local plain, other = three_runs(function(g, x)
      local a = ops.silu(x)
      local b = ops.exp(ops.affine(a, { scale = -1 }))
      g:output("y", ops.add(b, a))
    end, { no_inplace = true })
    assert.are.equal(0, count(other, "  in place"))
    assert.are.same(out.y, plain.y)
  end)

  it("does not overwrite what another queue reads, also through the node before it", function()
    local out, text = three_runs(function(g, x)
      local a = ops.silu(x)
      -- takes the place of a; b is read there later
      local b = ops.affine(a, { scale = 2 })
      g:output("late", g:queue("d2h", function() return ops.copy(b) end))
      g:output("y", ops.exp(ops.affine(b, { scale = -1 })))
    end)
    assert.are.equal(2, count(text, "  in place"))
    local silu = 1 / (1 + math.exp(-1))
    assert.is_near(2 * silu, out.late[1], 1e-6)
    assert.is_near(math.exp(-2 * silu), out.y[1], 1e-6)
  end)

  it("does not place parts of a join over values that their neighbours still read", function()
    local out = three_runs(function(g, x)
      local both = ops.silu(x)
      local first, last = both:slice(0, 0, 2), both:slice(0, 2, 4)
      local a = ops.affine(first, { scale = 3 })
      g:output("y", ops.affine(G.concat({ ops.exp(last), a }, 0), { shift = 1 }))
    end)
    local function silu(v) return v / (1 + math.exp(-v)) end
    assert.is_near(math.exp(silu(13)) + 1, out.y[1], 1)
    assert.is_near(3 * silu(1) + 1, out.y[13], 1e-5)
  end)
end)

describe("a node", function()
  it("is dropped when neither an output nor a region needs it", function()
    local _, text = three_runs(function(g, x)
      local a = ops.silu(x)
      local _ = ops.exp(ops.gelu_tanh(a))
      g:output("y", ops.affine(a, { scale = 2 }))
    end)
    assert.matches("^graph: 2 nodes", text)
    assert.is_nil(text:match "gelu_tanh")
  end)
end)

describe("an output", function()
  it("has the value of its run, although inputs are set later", function()
    local dev <close> = E.device(device, 1)
    local g <close> = G.graph()
    local x = g:input("x", "f32", { 2 })
    g:output("x", x)
    g:output("turned", x:reshape { 1, 2 }:permute { 1, 0 })
    g:finish()
    local exec <close> = E.new(dev)
    local prog <close> = exec:compile(g)
    prog:set("x", T.from({ 2 }, { 1, 2 }))
    prog:run()
    prog:set("x", T.from({ 2 }, { 3, 4 }))
    assert.are.same({ 1, 2 }, prog:get("x"):totable())
    assert.are.same({ 1, 2 }, prog:get("turned"):reshape({ 2 }):totable())
  end)
end)
