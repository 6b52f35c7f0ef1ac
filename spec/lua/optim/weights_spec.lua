--- Measurements of weights after an update, compared with the weights before and after it.
-- Covers: lua/moonreel/optim/weights.lua lua/moonreel/optim/places.lua
-- lua/moonreel/optim/histograms.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local histograms = require "moonreel.optim.histograms"
local optim = require "moonreel.optim"
local packed = require "moonreel.trackers.histograms"
local process = require "moonreel.core.process"
local regions = require "moonreel.optim.regions"
local weights = require "moonreel.optim.weights"

-- sizes that are no multiple of anything; groups with factors of their own
local PARAMS = {
  { name = "embedder.weight", shape = { 9, 7 }, lookup = true, decay = 0 },
  { name = "blocks.0.mlp.weight", shape = { 5, 31 } },
  { name = "blocks.0.mlp.bias", shape = { 5 }, decay = 0 },
  { name = "blocks.1.mlp.weight", shape = { 4, 3, 50 }, lr_factor = 0.5 },
  { name = "blocks.1.still.weight", shape = { 40 }, frozen = true },
  { name = "final.linear.weight", shape = { 2, 2100 } },
}
local H = { lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-3, weight_decay = 0.3, max_norm = 0,
  ema_decay = 0.6, step = 1, grad_scale = 1 }
-- rows of which no element has a gradient above eps
local DEAD = { ["blocks.0.mlp.weight"] = { 2, 5 }, ["blocks.1.mlp.weight"] = { 1 },
  ["embedder.weight"] = { 3 } }

local function count(shape)
  local n = 1
  for _, d in ipairs(shape) do
    n = n * d
  end
  return n
end

local function gradient(p)
  local n, values = count(p.shape), {}
  for i = 1, n do
    values[i] = ((i * 7 + #p.name) % 5 - 2.5) * 0.1
  end
  for _, row in ipairs(DEAD[p.name] or {}) do
    local cols = n // p.shape[1]
    for i = (row - 1) * cols + 1, row * cols do
      values[i] = values[i] * 1e-3
    end
  end
  return T.from(p.shape, values, "f32")
end

local function new(dtype, space, device, bits)
  local params = G.params(dtype)
  for _, p in ipairs(PARAMS) do
    params:add { name = p.name, shape = p.shape, init = { kind = "normal", scale = 0.5 },
      decay = p.decay, lr_factor = p.lr_factor, frozen = p.frozen, lookup = p.lookup }
  end
  params:seal()
  local run = E.new(E.device(device or "shadow", 2), params,
    { regions = regions.adamw { ema = true, space = space, dtype = dtype, bits = bits } })
  run:init(3)
  for _, p in ipairs(PARAMS) do
    if not p.frozen then
      run:set_param("grad", p.name, gradient(p))
    end
  end
  return run, params
end

local function values(run, region)
  local all = {}
  for _, p in ipairs(PARAMS) do
    all[p.name] = not p.frozen and run:param(region, p.name):totable() or nil
  end
  return all
end

-- the facts of a block, computed from weights before and after the update
local function expected(block, before, after, average)
  local w, u, off, rows, dead = 0, 0, 0, 0, 0
  for _, p in ipairs(PARAMS) do
    if before[p.name] and (block == "all" or weights.block(p.name) == block) then
      for i, x in ipairs(after[p.name]) do
        w, u = w + x * x, u + (x - before[p.name][i]) ^ 2
        off = off + (average[p.name][i] - x) ^ 2
      end
      if #p.shape > 1 and not p.lookup then
        rows, dead = rows + p.shape[1], dead + #(DEAD[p.name] or {})
      end
    end
  end
  return { name = block, norm = w ^ 0.5, update_ratio = (u / w) ^ 0.5,
    dead = rows > 0 and dead / rows or nil, ema_drift = (off / w) ^ 0.5 }
end

-- all elements of histograms, and the sum of their squares
local function counted(by_block)
  local n, squares = 0, 0
  for _, all in pairs(by_block) do
    local short = packed.of_line { histograms = { x = packed.pack(all) } }[1][2]
    n, squares = n + short.num, squares + short.sum_squares
  end
  return n, squares
end

describe("optim.weights", function()
  for _, case in ipairs { { "f32" }, { "bf16" }, { "bf16", "pinned" }, { "f32", nil, "cudaemu" },
      { "bf16", "pinned", "cudaemu" } } do
    -- builds with sanitizers have no emulated GPU
    local there = case[3] and not base.exists((process.program():gsub("[^/]*$",
      "libmoonreel_cudaemu.so"))) and pending or it
    there(("measures what an update did, weights of %s, %s, %s"):format(case[1],
      case[2] or "device", case[3] or "shadow"), function()
      local piece = optim.piece
      optim.piece = case[2] and 64 or piece
      local run, params = new(case[1], case[2], case[3])
      local masters = run:has "master" and "master" or "w"
      local before = values(run, masters)
      optim.new(run, params):step(H)
      local after, average = values(run, masters), values(run, "ema")
      local watch = weights.new(run, params)
      local counts = histograms.new(run, params, masters == "w" and "master" or masters)
      optim.piece = piece
      local given = { lr = H.lr, beta1 = H.beta1, beta2 = H.beta2, eps = H.eps,
        weight_decay = H.weight_decay, step = 1 }
      local facts = watch:facts(watch:sums(given), true)
      local names = {}
      for i, got in ipairs(facts) do
        local want = expected(got.name, before, after, average)
        names[i] = got.name
        assert.near(1, got.norm / want.norm, 1e-6, got.name)
        assert.near(1, got.update_ratio / want.update_ratio, 1e-4, got.name)
        assert.near(1, got.ema_drift / want.ema_drift, 1e-6, got.name)
        -- a row across two pieces is judged by its part in the first
        assert.equal(want.dead, got.dead, got.name)
      end
      local n, squares = counted(counts:count(1))
      assert.equal(63 + 155 + 5 + 600 + 4200, n)
      assert.near(1, squares ^ 0.5 / facts[#facts].norm, 1e-6)
      assert.same({ "embedder", "blocks.0", "blocks.1", "final", "all" }, names)
      -- and writes nothing
      assert.same(after, values(run, masters))
      assert.same(average, values(run, "ema"))
    end)
  end

  it("measures updates whose second moments began later than the first", function()
    local run, params = new "f32"
    local since, before = { ["final.linear.weight"] = 40, ["blocks.0.mlp.weight"] = 40 },
      values(run, "w")
    local step = {}
    for name, value in pairs(H) do
      step[name] = value
    end
    step.step = 41
    optim.new(run, params, nil, nil, { since = since }):step(step)
    local after, watch = values(run, "w"), weights.new(run, params, nil, since)
    for _, got in ipairs(watch:facts(watch:sums { lr = H.lr, beta1 = H.beta1, beta2 = H.beta2,
        eps = H.eps, weight_decay = H.weight_decay, step = 41 }, true)) do
      local want = expected(got.name, before, after, values(run, "ema"))
      assert.near(1, got.update_ratio / want.update_ratio, 1e-4, got.name)
    end
  end)

  it("reports norms and drift, but no update, of weights whose moments have 8 bits", function()
    local run, params = new("bf16", nil, nil, 8)
    local watch = weights.new(run, params)
    optim.new(run, params):step(H)
    local sums = watch:sums { lr = H.lr, beta1 = H.beta1, beta2 = H.beta2, eps = H.eps,
      weight_decay = H.weight_decay, step = 1 }
    for _, got in ipairs(watch:facts(sums, true)) do
      assert.is_nil(got.update_ratio)
      assert.is_nil(got.dead)
      assert.is_true(got.norm > 0 and got.ema_drift > 0)
    end
  end)

  it("names blocks like their parameters", function()
    assert.equal("spatial_blocks.12", weights.block "spatial_blocks.12.attn.qkv.weight")
    assert.equal("final_layer", weights.block "final_layer.linear.weight")
    assert.equal("t_block.1", weights.block "t_block.1.bias")
  end)

  it("has no ratio for a norm of zero, and no drift without averages", function()
    local run, params = new "f32"
    local watch = weights.new(run, params)
    local zeros = {}
    for i = 1, 5 * #watch.blocks do
      zeros[i] = 0
    end
    for _, got in ipairs(watch:facts(zeros, false)) do
      assert.same({ name = got.name, norm = 0 }, got)
    end
  end)
end)
