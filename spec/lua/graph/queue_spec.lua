--- Queues of nodes: which one a node runs on, and errors about unknown ones; inputs of a graph.
-- Covers: core/bind/graph.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

--- The queue of each node of a printed graph.
local function queues(g)
  local list = {}
  for line in g:print():gmatch "[^\n]+" do
    if line:match "^ *%d+ " then
      list[#list + 1] = line:match "  on ([%w_]+)" or "compute"
    end
  end
  return list
end

describe("g:queue", function()
  it("sets the queue of the nodes of a function, also inside another", function()
    local g <close> = G.graph()
    local x = g:input("x", "f32", { 4 })
    local a, b = g:queue("h2d", function()
      local a = ops.copy(x)
      local b = g:queue("comm_inter", function() return ops.silu(a) end)
      return ops.exp(a), b
    end)
    g:output("y", a + b)
    g:finish()
    assert.are.same({ "h2d", "comm_inter", "h2d", "compute" }, queues(g))
  end)

  it("ends with its function, also after an error", function()
    local g <close> = G.graph()
    local x = g:input("x", "f32", { 4 })
    local ok = pcall(g.queue, g, "d2h", function() error "no" end)
    assert.is_false(ok)
    g:output("y", ops.silu(x))
    g:queue("d2h", function() g:finish() end)
    assert.are.same({ "compute" }, queues(g))
    local closed = G.graph()
    assert.has_error(function() closed:queue("d2h", function() closed:close() end) end)
    local gone = G.graph()
    assert.has_error(function() gone:block("b", false, function() gone:close() end) end)
  end)

  it("lists the queues when the name is unknown", function()
    local g <close> = G.graph()
    local ok, err = pcall(g.queue, g, "comm", function() end)
    assert.is_false(ok)
    assert.matches("queue 'comm': expected compute, comm_intra, comm_inter, h2d or d2h",
      tostring(err), 1, true)
  end)
end)

describe("g:schedule", function()
  it("prints copies and a collective that overlap compute, and who waits for them", function()
    local g <close> = G.graph()
    local x, k = g:input("x", "f32", { 8 }), g:input("k", "f32", { 8 })
    local a = ops.silu(x)
    local kept = g:queue("d2h", function() return ops.copy(a) end)
    local b = ops.silu(a)
    local all = g:queue("comm_intra", function() return ops.copy(k) end)
    local c = ops.mul(b, all)
    g:output("y", c + g:queue("h2d", function() return ops.copy(kept) end))
    assert.has_error(function() g:schedule() end)
    assert.are.equal([[
schedule: 8 steps on 4 queues
    0 compute     silu 'silu#0'
    1 d2h         copy 'copy#1'  waits for 0  overlaps compute 2 to 4, comm_intra 3
    2 compute     silu 'silu#2'
    3 comm_intra  copy 'copy#3'  overlaps compute 0 to 2, h2d 5, d2h 1
    4 compute     mul 'mul#4'  waits for 3
    5 h2d         copy 'copy#5'  waits for 1  overlaps compute 2 to 4, comm_intra 3
    6 compute     add 'add#6'  waits for 5
    7 d2h         copy out 'y'  waits for 6
]], g:finish():schedule())
  end)

  it("asks an executor which regions are weights under another name", function()
    local params = G.params("f32")
    params:add { name = "a", shape = { 64 }, init = { kind = "zeros" } }
    params:seal()
    local run <close> = E.new(E.device("cpu", 1), params, { regions = regions.adamw() })
    local g <close> = G.graph(params)
    local x = g:input("x", "f32", { 64 })
    g:queue("comm_intra", function()
      return ops.accumulate(g:region("master", "f32", 0, { 64 }), x)
    end)
    g:output("y", ops.silu(g:param("a")))
    g:finish()
    assert.no.matches("silu 'silu#1'  waits", g:schedule())
    assert.matches("silu 'silu#1'  waits for 0", g:schedule(run))
  end)
end)

describe("g:inputs", function()
  it("are the inputs that a program needs, by name", function()
    local g <close> = G.graph()
    local x, n = g:input("x", "f32", { 4, 2 }), g:input("n", "i64", { 3 })
    g:output("y", ops.silu(x:permute { 1, 0 }))
    g:output("m", ops.copy(n))
    g:finish()
    local found = {}
    for name, value in pairs(g:inputs()) do
      found[name] = value.dtype .. " " .. table.concat(value.shape, "x")
    end
    assert.same({ x = "f32 4x2", n = "i64 3" }, found)
  end)
end)
