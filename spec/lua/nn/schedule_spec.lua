--- Messages between ranks that share tokens, for random meshes up to 1,024 ranks: the graphs of all
-- ranks are walked together, call by call, without running them. No rank waits for a call that
-- does not come, all messages have the expected sizes, each rank of a ring sees each block of keys
-- once, and the gradients of a block return to its owner.
-- Covers: lua/moonreel/nn/sequence.lua core/op/ring_attention.c
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"
local sequence = require "moonreel.nn.sequence"

local CASES = math.tointeger(os.getenv("MOONREEL_ROUNDS")) or 120

-- the same random numbers on all ranks, from a seed
local function draws(seed)
  return function(low, high)
    seed = (seed * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff
    return low + (seed >> 33) % (high - low + 1)
  end
end

local CALLS <const> = { shift = true, all_to_all = true, gather_shares = true }
local FOLLOWED <const> = { attention = true, attention_grad = true, add = true }

-- the nodes of a graph that communicate, or make what is sent: op, queue, the storage of outputs
-- and inputs, and for calls also the sizes
local function nodes_of(g)
  local list = {}
  for line in g:print():gmatch "[^\n]+" do
    local op = line:match "^ *%d+ ([%w_]+)"
    if CALLS[op] or FOLLOWED[op] then
      local node = { op = op, queue = line:match " on ([%w_]+)", out = {}, into = {} }
      local arrow = line:find("<-", 1, true)
      for at, storage, dims in line:gmatch "()%%%d+@?(%w*)[^%[%%]*%[([%d, ]*)%]" do
        local one = { storage = storage, dims = CALLS[op] and {} }
        for n in dims:gmatch(CALLS[op] and "%d+" or "^$.") do
          one.dims[#one.dims + 1] = math.tointeger(tonumber(n))
        end
        table.insert(at < arrow and node.out or node.into, one)
      end
      list[#list + 1] = node
    end
  end
  return list
end

-- attention forward and backward, and its result gathered, as one rank has it
local function graph_of(seq, tokens, heads)
  local g <close> = G.graph()
  local start, stop = seq:share(tokens)
  local x = g:input("x", "f32", { 1, 1, stop - start, heads, 2 })
  local o = seq:attend(g, ops.exp(x), ops.silu(x), ops.affine(x, { scale = 2 }), tokens)
  local back = g:backward((ops.sum(o, { axes = { 0, 1, 2, 3, 4 } })), { x })
  g:output("back", back[1])
  g:output("all", seq:gather(g, o, 2, tokens))
  g:finish()
  return nodes_of(g)
end

-- the level on which a node communicates, from its queue and op
local function level_of(node, mesh, gathers)
  if node.queue == "comm_inter" then
    return "outer"
  elseif node.op ~= "gather_shares" then
    return node.op == "shift" and "inner" or "heads"
  end
  gathers[1] = gathers[1] + 1
  return mesh.heads > 1 and gathers[1] == 1 and "heads" or "inner"
end

-- ranks of a level that a rank belongs to, in their order
local function members(mesh, rank, level)
  local step = ({ heads = 1, inner = mesh.heads, outer = mesh.heads * mesh.inner })[level]
  local at, list = rank // step % mesh[level], {}
  for i = 0, mesh[level] - 1 do
    list[i + 1] = rank + (i - at) * step
  end
  return list
end

-- completes a call: sizes fit, and blocks of keys carry their owners with them
local function meet(list, state)
  local first = state[list[1]]:next()
  for i, rank in ipairs(list) do
    local node, before = state[rank]:next(), state[list[(i - 2) % #list + 1]]
    assert.equal(first.op, node.op)
    local into, out = node.into[1], node.out[1]
    if node.op == "shift" then
      local theirs = before:next().into[1]
      assert.same(theirs.dims, out.dims)
      state[rank].comes = before.home[theirs.storage] or before.block
    else
      local axis = node.op == "all_to_all" and out.dims[3] > into.dims[3] and 3
        or node.op == "gather_shares" and 3 or 4
      local sum = 0
      for _, other in ipairs(list) do
        sum = sum + state[other]:next().into[1].dims[axis]
      end
      -- with equal axes the joined one is unknown
      assert.is_true(sum == out.dims[axis] or node.op == "all_to_all"
        and out.dims[3] == into.dims[3])
    end
  end
  for _, rank in ipairs(list) do
    local one = state[rank]
    local node = one:next()
    if node.op == "shift" then
      one.home[node.out[1].storage], one.last = one.comes, one.comes
    end
    one.at = one.at + 1
  end
end

-- the work of a rank between its calls: which blocks it sees, whose gradients it adds
local function compute(one, node, of_ring)
  local function home(value) return one.home[value.storage] or one.block end
  if node.op == "attention" and of_ring then
    one.seen[#one.seen + 1] = home(node.into[2])
  elseif node.op == "attention_grad" and of_ring then
    one.back[#one.back + 1] = home(node.into[2])
    one.home[node.out[2].storage] = home(node.into[2])
  elseif node.op == "add" and one.home[node.into[1].storage] and one.home[node.into[2].storage] then
    assert.equal(home(node.into[1]), home(node.into[2]))
    one.home[node.out[1].storage] = home(node.into[1])
  end
end

-- walks the graphs of all ranks of a mesh; groups with batches of their own do the same
local function walk(mesh, tokens, heads)
  local size, state, made = mesh.heads * mesh.inner * mesh.outer, {}, {}
  local ring = mesh.inner * mesh.outer
  for rank = 0, size - 1 do
    local seq = sequence.new { rank = rank, heads = mesh.heads, inner = mesh.inner,
      outer = mesh.outer }
    -- ranks that exchange heads and have as many tokens have the same graph
    local start, stop = seq:share(tokens)
    local key = ("%d %d"):format(rank // mesh.heads, stop - start)
    made[key] = made[key] or graph_of(seq, tokens, heads)
    state[rank] = { nodes = made[key], at = 1, home = {}, seen = {}, back = {},
      block = rank // mesh.heads, gathers = { 0 },
      next = function(self) return self.nodes[self.at] end }
  end
  -- lets each rank continue to its next call; a call begins when all of its group have joined
  local waiting, over = {}, 0
  local ready = {}
  for rank = 0, size - 1 do
    ready[#ready + 1] = rank
  end
  while #ready > 0 do
    local rank = table.remove(ready)
    local one = state[rank]
    while one:next() and not CALLS[one:next().op] do
      compute(one, one:next(), ring > 1)
      one.at = one.at + 1
    end
    if not one:next() then
      over = over + 1
    else
      local level = level_of(one:next(), mesh, one.gathers)
      local list = members(mesh, rank, level)
      local key = level .. list[1]
      waiting[key] = (waiting[key] or 0) + 1
      if waiting[key] == #list then
        waiting[key] = nil
        meet(list, state)
        table.move(list, 1, #list, #ready + 1, ready)
      end
    end
  end
  assert.equal(size, over, "ranks wait for each other")
  for rank = 0, size - 1 do
    local one = state[rank]
    if ring > 1 then
      for _, seen in ipairs { one.seen, one.back } do
        table.sort(seen)
        assert.equal(ring, #seen)
        for i, block in ipairs(seen) do
          assert.equal(i - 1, block)
        end
      end
      assert.equal(one.block, one.last, "gradients of keys end elsewhere")
    end
  end
end

describe("ranks that share tokens", function()
  it("exchange the expected messages, for random meshes", function()
    local draw = draws(20)
    for case = 1, CASES do
      local mesh = { heads = draw(1, 4), inner = draw(1, 4), outer = draw(1, 3) }
      local tokens, heads = draw(0, 3) == 0 and draw(1, 5) or draw(6, 90), mesh.heads * draw(1, 2)
      local good, problem = pcall(walk, mesh, tokens, heads)
      assert(good, ("case %d: %d x %d x %d ranks, %d tokens, %d heads: %s"):format(case, mesh.outer,
        mesh.inner, mesh.heads, tokens, heads, tostring(problem)))
    end
  end)

  it("do so for 1,024 ranks", function()
    walk({ heads = 128, inner = 4, outer = 2 }, 5000, 128)
  end)
end)
