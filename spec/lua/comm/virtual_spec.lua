--- Random models on random meshes of many ranks, which exchange all messages. A training step ends,
-- its weights equal those of one rank that has all samples, all ranks have the same bits, and each
-- rank makes the calls of its schedule in that order.
-- MOONREEL_VIRTUAL=1024 sets the largest number of ranks.
-- Covers: core/comm/collective.c core/graph/shards.c lua/moonreel/comm/mesh.lua
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local mesh = require "moonreel.comm.mesh"
local nn, ops, optim = require "moonreel.nn", require "moonreel.core.op", require "moonreel.optim"
local ranks, regions = require "moonreel.optim.ranks", require "moonreel.optim.regions"
local team = require "moonreel.comm.team"
local virtual = dofile "spec/support/virtual.lua"

local MOST = math.tointeger(os.getenv("MOONREEL_VIRTUAL")) or 64
local AXES <const> = { 0, 1, 2 }

-- the same random numbers on all ranks, from a seed
local function draws(seed)
  return function(low, high)
    seed = (seed * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff
    return low + (seed >> 33) % (high - low + 1)
  end
end

-- a random divisor of n
local function divisor(draw, n)
  local list = {}
  for d = 1, n do
    list[#list + 1] = n % d == 0 and d or nil
  end
  return list[draw(1, #list)]
end

--- A model and its ranks: data groups of outer x inner x heads that share tokens, `node` ranks a
-- host, and layers with this many heads of two numbers each.
local function random_case(draw, size)
  local shared = divisor(draw, math.min(size, 32))
  local heads = divisor(draw, shared)
  return { size = size, shared = shared, exchange = heads, node = divisor(draw, size),
    stage = draw(0, 3), heads = heads * draw(1, 2), depth = draw(1, 2),
    tokens = draw(0, 3) == 0 and draw(1, 5) or draw(6, 40), elements = draw(0, 1) * 500 }
end

local function text_of(case)
  local list = {}
  for name, value in pairs(case) do
    list[#list + 1] = name .. "=" .. tostring(value)
  end
  table.sort(list)
  return table.concat(list, " ")
end

-- blocks of attention between linear layers, and the sum of squares of the output
local function build(params, case, sequence, samples)
  local scope, width = nn.scope(params), 2 * case.heads
  local layers = {}
  for i = 1, case.depth do
    for _, name in ipairs { "q", "k", "v", "o" } do
      layers[i .. name] = nn.Linear(scope, name .. i, width, width)
    end
  end
  return function(g, tokens)
    local x = g:input("x", "f32", { samples, tokens, width })
    local goal = g:input("goal", "f32", { samples, tokens, width })
    for i = 1, case.depth do
      local of = {}
      for k, name in ipairs { "q", "k", "v" } do
        of[k] = layers[i .. name](g, x):reshape { samples, 1, tokens, case.heads, 2 }
      end
      local o
      if sequence then
        o = sequence:attend(g, of[1], of[2], of[3], case.tokens)
      else
        o = ops.attention(of[1], of[2], of[3])
      end
      x = x + layers[i .. "o"](g, (ops.copy(o)):reshape { samples, tokens, width })
    end
    local off = x - goal
    return g:backward((ops.sum(off * off, { axes = AXES })))
  end
end

-- the exchanges of a graph, in order: "lane op count"
local CALLS <const> = { gather = "all_gather", all_gather = "all_gather", shift = "shift",
  reduce_scatter = "reduce_scatter", gather_shares = "all_gather", total = "all_reduce",
  all_to_all = "all_to_all" }
local function printed(g)
  local list = {}
  for line in g:print():gmatch "[^\n]+" do
    local op = CALLS[line:match "^ *%d+ ([%w_]+)"]
    local lane = line:find(" on comm_inter", 1, true) and 1 or 0
    if op then
      local count = 1
      for n in line:match("%[([%d, ]*)%]"):gmatch "%d+" do
        count = count * n
      end
      count = (op == "shift" or op == "all_to_all") and 0 or count
      list[#list + 1] = ("%d %s %d"):format(lane, op, count)
    end
  end
  return list
end

-- one training step of a rank; without a world, of a rank that has all samples
local function step(case, world, together, report, break_it)
  local one = world == nil
  local laid, owners
  local params = G.params "f32"
  if not one then
    laid = mesh.new({ plugin_config = { sp_size = case.shared, ulysses_size = case.exchange } },
      team.new(world), case.heads, case.node)
  end
  local groups = case.size // case.shared
  local samples = one and groups or 1
  local forward = build(params, case, laid and laid.sequence, samples)
  params:seal(not one and { ranks = case.size, elements = case.elements, granule = 256 } or nil)
  if not one then
    owners = ranks.new(params, world, { local_ranks = case.node, stage = case.stage })
    if break_it then
      break_it(owners)
    end
  end
  local start, stop = 0, case.tokens
  if laid and laid.sequence then
    start, stop = laid.sequence:share(case.tokens)
  end
  local g = G.graph(params)
  forward(g, stop - start)
  if owners then
    owners:reduce(g)
  end
  g:finish()
  local device <close> = E.device("cpu", 1)
  local exec <close> = E.new(device, params, { regions = regions.adamw { dtype = "f32",
    parts = owners and case.stage > 0 and owners:owned() or nil,
    gradients = owners and owners.gradients, weights = owners and owners.weights } })
  exec:init(1)
  local run = one and exec or together(exec)
  local prog, update = run:compile(g), optim.new(run, params, owners, not one)
  for _, name in ipairs { "x", "goal" } do
    local all = T.new("f32", { groups, case.tokens, 2 * case.heads }):fill_normal(1, name)
    if not one then
      all = all:slice(0, laid.at, laid.at + 1)
    end
    prog:set(name, all:slice(1, start, stop):clone())
  end
  local see = G.graph(params)
  for _, p in ipairs(params:list()) do
    see:output(p.name, ops.copy(see:param(p.name)))
  end
  local seen = run:compile(see:finish())
  if report then
    report()
  end
  prog:run()
  -- with so large an epsilon the first step of Adam is a smooth function of the gradient
  local norm = update:step { lr = 0.1, beta1 = 0.9, beta2 = 0.99, eps = 1, weight_decay = 0.1,
    max_norm = 5, step = 1, grad_scale = 1 / groups }
  seen:run()
  local weights, bytes = {}, {}
  for i, p in ipairs(params:list()) do
    weights[i] = seen:get(p.name)
    bytes[i] = weights[i]:bytes()
  end
  local calls = {}
  for _, graph in ipairs { g, update.graph, see } do
    for _, call in ipairs(printed(graph)) do
      calls[#calls + 1] = call
    end
  end
  return { norm = norm, weights = weights, hash = base.hash128(table.concat(bytes)),
    reported = report and report(), printed = calls }
end

-- groups of one rank send nothing, and empty parts are not sent
local function heard(case, calls)
  local list, nodes = {}, case.size // case.node
  for _, call in ipairs(calls) do
    local lane, op = call:match "^(%d) (%S+)"
    local alone = (op == "all_gather" or op == "reduce_scatter") and nodes > 1
      and (lane == "0" and case.node == 1)
    list[#list + 1] = not alone and call or nil
  end
  return list
end

local function squares(x) return ops.sum_squares(x:reshape { -1 }):item() end

-- runs a case and compares it with one rank
local function try(case, break_it, lose)
  local want = step(case)
  local got = virtual.run(case.size, function(world, together, report)
    return step(case, world, together, report, break_it)
  end, lose)
  for rank, one in ipairs(got) do
    assert.equal(got[1].hash, one.hash, "weights of rank " .. rank - 1)
    assert.same(heard(case, one.printed), one.reported, "calls of rank " .. rank - 1)
  end
  assert.near(1, got[1].norm / want.norm, 1e-5, "norm")
  local off, all = 0, 0
  for i, w in ipairs(want.weights) do
    off, all = off + squares(got[1].weights[i] - w), all + squares(w)
  end
  assert.near(0, (off / all) ^ 0.5, 1e-5, "weights")
end

describe("a step by many ranks", function()
  local function cases(seed, sizes)
    local draw = draws(seed)
    for _, size in ipairs(sizes) do
      local case = random_case(draw, size)
      local good, problem = pcall(try, case)
      assert(good, text_of(case) .. ": " .. tostring(problem))
    end
  end

  it("equals the step of one rank and makes the calls of its schedule", function()
    cases(8, { 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 24, 30 })
  end)

  it("does so by " .. MOST, function()
    local sizes = { 64 }
    for size = 128, MOST do
      for _ = 1, size & (size - 1) == 0 and 3 or 0 do
        sizes[#sizes + 1] = size
      end
    end
    cases(9, sizes)
  end)

  it("fails when a chunk has a wrong owner, a message is lost, or a rank deviates",
    function()
      local case = { size = 6, shared = 2, exchange = 2, node = 3, stage = 1, heads = 2, depth = 1,
        tokens = 7, elements = 16 }
      try(case)
      assert.error_matches(function()
        try(case, function(owners) owners.owner = (owners.owner + 1) % owners.size end)
      end, "norm")
      -- at any call: either all ranks wait for it, or a rank receives the next call's message
      -- instead
      for lost = 0, 40, 8 do
        local _, problem = pcall(try, case, nil, { 1, lost })
        assert.matches("^[^\n]*rank %d of 6: ", tostring(problem))
      end
      assert.error_matches(function()
        try(case, function(owners)
          if owners.rank == 4 then
            owners.buckets[1], owners.buckets[2] = owners.buckets[2], owners.buckets[1]
          end
        end)
      end, "weights of rank %d")
    end)
end)
