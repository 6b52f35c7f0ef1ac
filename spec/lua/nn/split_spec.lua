--- Layers that ranks share give what one rank gives with all of them: results, and gradients of
-- what each rank has. Alone, and with ranks that share the tokens.
-- MOONREEL_DEVICE names the device.
-- Covers: lua/moonreel/nn/split.lua core/op/exchange.c core/graph/params.c
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- Four ranks go through cases of four ranks and fewer: a name, a model, ranks that share layers,
-- that exchange heads, that pass keys around; height and width of the latent.
local CASES = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local cut, ops, sequence, split = require "moonreel.ckpt.cut", require "moonreel.core.op",
  require "moonreel.nn.sequence", require "moonreel.nn.split"
local regions = require "moonreel.optim.regions"
local world = require("moonreel.comm").world { deadline_s = 100, check = true }
local device

local function norm(t) return ops.sum_squares(t:to("f32"):reshape { -1 }):item() ^ 0.5 end
local function filled(name, shape) return T.new("f32", shape):fill_normal(1, name) end

local function mmdit(fused)
  return function(params, H, W, by)
    return require("moonreel.models.mmdit").new(params, { in_channels = 16, vec_in_dim = 6,
      context_in_dim = 8, hidden_size = 32, mlp_ratio = 2, num_heads = 4, depth = 2,
      depth_single_blocks = 2, axes_dim = { 2, 2, 4 }, theta = 10000, qkv_bias = true,
      guidance_embed = true, cond_embed = true, fused_qkv = fused, use_liger_rope = true,
      patch_size = 2 }, { split = by }), { vector = filled("vector", { 2, 1, 6 }),
      guidance = T.from({ 2 }, { 4, 1 }), cond = filled("cond", { 2, 5, 3, H, W }) }, {}
  end
end

-- small models: what declares one, and what it is given besides latents, time and text
local models = {
  stdit = function(params, H, W, by)
    return require("moonreel.models.stdit3").new(params, { depth = 1, hidden_size = 32,
      num_heads = 4, in_channels = 4, caption_channels = 8, model_max_length = 6 },
      { split = by }),
      { fps = T.from({ 2 }, { 24, 8 }), text_len = T.from({ 2 }, { 3, 6 }, "i32"),
        x_mask = T.from({ 2, 3 }, { 1, 0, 1, 1, 1, 0 }, "bool") }, { height = H * 8, width = W * 8 }
  end,
  mmdit = mmdit(false), fused = mmdit(true),
}

-- output and gradients by name of a small model, by ranks or by this one alone
local function model(kind, by, seq, H, W, recompute)
  local params = G.params "f32"
  local net, given, io = models[kind](params, H, W, by)
  params:seal()
  local g, shape = G.graph(params), { 2, 4, 3, H, W }
  given.x, given.y, given.t = filled("x", shape), filled("y", { 2, 6, 8 }),
    T.from({ 2 }, { 700, 30.5 })
  io.sequence, io.recompute = seq, recompute and function() return true end or nil
  for name, value in pairs(given) do
    io[name] = g:input(name, value.dtype, value.shape)
  end
  local out = net:forward(g, io)
  given.weight = filled("weight", out.shape)
  g:output("out", out)
  g:backward((ops.sum(out * g:input("weight", "f32", out.shape), { axes = { 0, 1, 2, 3, 4 } })), {})
  g:finish()
  local run <close> = E.new(device, params, { regions = regions.gradients() })
  local own = {}
  for _, p in ipairs(params:list()) do
    own[p.name] = run:param(p.frozen and "frozen" or "w", p.name).shape
    local whole = filled(p.name, p.shape) * 0.2 + (p.name:find "norm" and 1 or 0)
    run:set_param(p.frozen and "frozen" or "w", p.name, cut.take(p, whole):reshape(own[p.name]))
  end
  local prog = run:compile(g)
  for name, value in pairs(given) do
    prog:set(name, value)
  end
  prog:run()
  local grads = {}
  for _, p in ipairs(params:list()) do
    grads[p.name] = not p.frozen and run:param("grad", p.name):clone():reshape { -1 } or nil
  end
  return prog:get "out", grads, params:list(), require("moonreel.plan.shares").sent(prog:times())
end

-- the worst relative error of gradients; what is next to nothing counts against all of them
local function worst(got, want, list)
  local squares, n, most = 0, 0, 0
  for _, w in pairs(want) do
    squares, n = squares + norm(w) ^ 2, n + T.count(w.shape)
  end
  for _, p in ipairs(list) do
    if want[p.name] then
      local w = cut.take(p, want[p.name]:reshape(p.shape))
      local floor = 1e-4 * (squares / n) ^ 0.5 * T.count(w.shape) ^ 0.5
      most = math.max(most, norm(got[p.name] - w) / math.max(norm(w), floor))
    end
  end
  return most
end

for line in io.lines(arg[1]) do
  local name, kind, layers, heads, inner, a, b, more = line:match(
    "^(.-): (%a+) (%d) (%d) (%d) (%d+) (%d+) ?(%S*)$")
  layers, heads, inner = layers // 1 | 0, heads // 1 | 0, inner // 1 | 0
  local size = layers * heads * inner
  local group <close> = world:split(world:rank() < size and 0 or nil)
  if group then
    local rank = group:rank()
    -- one of its own: the shadow device's runs are in the order of their numbers, on all ranks
    local own <close> = E.device(os.getenv "MOONREEL_DEVICE" or "cpu", 1)
    device = own
    local by = split.new { ranks = layers, at = rank % layers,
      comm = group:split(rank // layers, { key = rank }) }
    local tokens = group:split(rank % layers, { key = rank })
    local seq = size > layers and sequence.new { rank = rank // layers, heads = heads,
      inner = inner, comm = tokens } or nil
    local function build(of, share)
      return model(kind, of, share, tonumber(a), tonumber(b), more == "recompute")
    end
    local want, want_grads = build(split.none, nil)
    world:reset_counts()
    local got, grads, list, planned = build(by, seq)
    local sent, equal = world:counts(), 1
    for _, p in ipairs(list) do
      local grad = grads[p.name]
      if grad then
        tokens:all_reduce(grad)
        local others = not p.cut and by.comm:all_gather(grad:reshape { 1, -1 })
        for r = 1, others and layers or 0 do
          equal = others:slice(0, r - 1, r):bytes() == grad:bytes() and equal or 0
        end
      end
    end
    local told = T.from({ 1, 6 }, { norm(got - want) / norm(want), worst(grads, want_grads, list),
      equal, sent.all_to_all and sent.all_to_all.bytes or 0,
      (sent.all_gather and sent.all_gather.bytes or 0)
        + (sent.shift and sent.shift.bytes or 0), planned }, "f64")
    local all = group:all_gather(told):totable()
    if rank == 0 then
      print(name .. ": " .. table.concat(all, " "))
      io.stdout:flush()
    end
  end
  world:barrier()
end
]]

local LIST = [[
MMDiT by 2: mmdit 2 1 1 4 4
MMDiT by 4, uneven: mmdit 4 1 1 5 7
MMDiT by 2, recomputed: mmdit 2 1 1 4 5 recompute
MMDiT fused by 2: fused 2 1 1 4 5
MMDiT fused by 4, few tokens: fused 4 1 1 2 1
MMDiT by 2, heads by 2: mmdit 2 2 1 4 5
MMDiT by 2, ring of 2: fused 2 1 2 5 7 recompute
STDiT3 by 2: stdit 2 1 1 6 6
STDiT3 by 4, uneven: stdit 4 1 1 5 7
STDiT3 by 2, heads by 2: stdit 2 2 1 5 7 recompute
STDiT3 by 2, ring of 2: stdit 2 1 2 6 6
]]
local WIDTH <const> = 6

-- what a run printed: numbers by the name of the case
local function rows_of(output)
  local rows = {}
  for name, rest in output:gmatch "([^\n]+): ([^\n]+)\n" do
    rows[name] = {}
    for number in rest:gmatch "%S+" do
      table.insert(rows[name], tonumber(number))
    end
  end
  return rows
end

describe("nn.split", function()
  local dir, done, rows
  setup(function()
    dir = folder.new()
    done = process.run({ process.program(), "-n", "4", dir:write("cases.lua", CASES),
      dir:write("cases", LIST) }, "", { deadline_s = 600 })
    rows = rows_of(done.output)
  end)
  teardown(function() dir:remove() end)

  for name in LIST:gmatch "([^\n]+): " do
    it("gives what one rank gives: " .. name, function()
      assert.equal(0, done.exit, done.output)
      local row = rows[name]
      assert.is_table(row, done.output)
      for at = 1, #row, WIDTH do
        assert.is_true(row[at] <= 1e-5, "forward off by " .. row[at])
        assert.is_true(row[at + 1] <= 1e-4, "gradient off by " .. row[at + 1])
        assert.equal(1, row[at + 2], "gradients of what all ranks have differ between them")
      end
    end)
  end

  it("sends the bytes of the table, and what a plan says", function()
    -- 12 cells and 6 tokens of text of 2 samples, 32 wide, in 2 double and 2 single blocks; of two
    -- ranks each sends as much in a sum over ranks as it has: half to add up, half to gather
    local token, blocks = 2 * 32 * 4, 2
    local sums = blocks * (2 * 12 + 2 * 6) + blocks * 18
    -- modulations are gathered, their gradients added up
    local modulations = blocks * 2 * 6 + blocks * 3
    -- tokens are shared out and gathered before blocks of a kind and behind them, the former in the
    -- backward pass alone
    local ends = 18 + 18
    -- gradients of biases behind products by rows, of norms of a head, and of the vector
    local small = (blocks * 4 + blocks) * 32 * 4 + (blocks * 4 + blocks * 2) * 8 * 4 + token
    local all = rows["MMDiT by 2"]
    for at = 1, #all, WIDTH do
      assert.equal((2 * sums + modulations + ends * 3 // 2) * token + small,
        all[at + 3] + all[at + 4])
    end
    for name, row in pairs(rows) do
      for at = 1, #row, WIDTH do
        -- the plan is that of even shares, the first rank's are the largest
        local even = name == "MMDiT by 2"
        assert.near(1, row[at + 5] / (row[at + 3] + row[at + 4]), even and 0 or 0.25, name)
      end
    end
  end)
end)
