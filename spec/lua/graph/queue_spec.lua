--- Queues of nodes: which one a node runs on, and what is said of a wrong one.
-- Covers: core/bind/graph.c
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"

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
  it("says where the nodes of a function run, also inside another", function()
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

  it("ends with its function, whatever became of it", function()
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

  it("names the queues when there is none of that name", function()
    local g <close> = G.graph()
    local ok, err = pcall(g.queue, g, "comm", function() end)
    assert.is_false(ok)
    assert.matches("queue 'comm': expected compute, comm_intra, comm_inter, h2d or d2h",
      tostring(err), 1, true)
  end)
end)
