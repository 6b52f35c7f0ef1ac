--- Ranks that share layers compute what one rank computes with all of them: results, and gradients
-- of each rank's part. They do so alone and with ranks that share the tokens.
-- MOONREEL_DEVICE names the device.
-- Covers: lua/moonreel/nn/split.lua core/op/exchange.c core/graph/params.c
local folder = require "spec.support.folder"
local rank_cases = require "spec.support.rank_cases"

-- A case has a model, ranks that share layers, that exchange heads, that pass keys in a ring;
-- height and width of the latent. One in 8 bits is compared with the model in f32.
local CASES = [[
local cases, sequence, split = require "spec.support.rank_cases", require "moonreel.nn.sequence",
  require "moonreel.nn.split"
local function mmdit(fused, linear)
  return cases.mmdit { depth = 2, fused_qkv = fused, linear = linear }
end
local models = { stdit = cases.stdit(), stdit8 = cases.stdit "f8", mmdit = mmdit(false),
  mmdit8 = mmdit(false, "f8"), fused = mmdit(true), fused8 = mmdit(true, "f8") }

cases.run(function(_, layers, heads, inner) return layers * heads * inner end,
  function(at, kind, layers, heads, inner, H, W, more)
    local rank = at.group:rank()
    local by = split.new { ranks = layers, at = rank % layers,
      comm = at.group:split(rank // layers, { key = rank }) }
    local tokens = at.group:split(rank % layers, { key = rank })
    local seq = heads * inner > 1 and sequence.new { rank = rank // layers, heads = heads,
      inner = inner, comm = tokens } or nil
    local function build(of, share, name)
      return cases.model(at.device, models[name or kind], { split = of, sequence = share,
        height = H, width = W, recompute = more == "recompute" })
    end
    local exact = kind:match "^(.*)8$"
    local want, want_grads = build(split.none, nil, exact)
    at.world:reset_counts()
    local got, grads, list, planned = build(by, seq)
    local counts, equal = at.world:counts(), 1
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
    local worst, all = cases.errors(grads, want_grads, list)
    return { cases.norm(got - want) / cases.norm(want), exact and all or worst, equal,
      cases.sent(counts, "all_to_all", "all_gather", "shift"), planned }
  end)
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
8 bits, MMDiT by 2: mmdit8 2 1 1 4 5
8 bits, MMDiT fused by 2, heads by 2: fused8 2 2 1 5 7 recompute
8 bits, STDiT3 by 2: stdit8 2 1 1 6 6
]]
local WIDTH <const> = 5
-- of f32 sums in another order; of 8-bit products, one rank differs as much
local ERRORS <const>, IN_8 <const> = { 1e-5, 1e-4 }, { 0.08, 0.15 }

describe("nn.split", function()
  local dir, done, rows
  setup(function()
    dir = folder.new()
    done, rows = rank_cases.start(dir, CASES, LIST)
  end)
  teardown(function() dir:remove() end)

  for name in LIST:gmatch "([^\n]+): " do
    it("computes what one rank computes: " .. name, function()
      assert.equal(0, done.exit, done.output)
      local row, most = rows[name], name:find "8 bits" and IN_8 or ERRORS
      assert.is_table(row, done.output)
      for at = 1, #row, WIDTH do
        assert.is_true(row[at] <= most[1], "forward off by " .. row[at])
        assert.is_true(row[at + 1] <= most[2], "gradient off by " .. row[at + 1])
        -- in 8 bits some values were rounded
        assert.is_true(most == ERRORS or row[at] > 0.005)
        assert.equal(1, row[at + 2], "gradients of what all ranks have differ between them")
      end
    end)
  end

  it("sends the bytes of the table and of a plan", function()
    -- 12 cells and 6 tokens of text of 2 samples, 32 wide, in 2 double and 2 single blocks. Each of
    -- two ranks sends as much in a sum over ranks as it has: half to add up, half to gather.
    local token, blocks = 2 * 32 * 4, 2
    local sums = blocks * (2 * 12 + 2 * 6) + blocks * 18
    -- modulations are gathered, their gradients added up
    local modulations = blocks * 2 * 6 + blocks * 3
    -- tokens are divided before blocks of a kind and gathered after them; the division communicates
    -- only in the backward pass
    local ends = 18 + 18
    -- gradients of biases after products by rows, of norms of a head, and of the vector
    local small = (blocks * 4 + blocks) * 32 * 4 + (blocks * 4 + blocks * 2) * 8 * 4 + token
    local all = rows["MMDiT by 2"]
    for at = 1, #all, WIDTH do
      assert.equal((2 * sums + modulations + ends * 3 // 2) * token + small,
        all[at + 3])
    end
    for name, row in pairs(rows) do
      for at = 1, #row, WIDTH do
        -- the plan assumes even shares; the first rank's are the largest
        local even = name == "MMDiT by 2"
        assert.near(1, row[at + 4] / row[at + 3], even and 0 or 0.25, name)
      end
    end
  end)
end)
