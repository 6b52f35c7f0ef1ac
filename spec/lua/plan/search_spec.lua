--- The mesh that the bounded search finds is the best of all meshes.
-- Covers: lua/moonreel/plan/solve.lua
local compiled = require "moonreel.plan.compiled"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local search = require "moonreel.plan.search"
local small_plan = require "spec.support.small_plan"
local solve = require "moonreel.plan.solve"

local function bake(...) return small_plan.bake("model.depth=4", ...) end

local quick = small_plan.machine

-- the same machine, so slow that these figures matter
local function small(memory)
  return setmetatable({
    peak = { bf16 = 989e9, f32 = 67e9, memory = 3.35e9 },
    rate = { product = 600e9, attention = 550e9, convolution = 250e9, text = 500e9,
      stream = 0.8 } },
    { __index = quick(memory) })
end

describe("the mesh", function()
  -- graphs and seconds are the same for all memories
  local cache
  setup(function() cache = compiled.new(small(1e9)) end)
  teardown(function() cache:close() end)

  local function with(values) return bake(table.unpack(values)) end

  local function solved(memory)
    return search.mesh({ mesh = mesh.new(small(memory), 8), compiled = cache }, with)
  end

  -- rate and largest total of settings on a mesh
  local function planned(s, of, compiled_here)
    local open = plan.open(s, { mesh = of, compiled = compiled_here or cache, as_is = true })
    local most, seconds, samples = 0, 0, 0
    for _, b in ipairs(open:buckets()) do
      local row = open:row(b)
      most, seconds, samples = math.max(most, row.total), seconds + row.seconds.step,
        samples + b.batch
    end
    return samples * open.mesh:micros(s) / seconds, most
  end

  local RECOMPUTED = {
    ["nothing"] = { "grad_checkpoint=false", "grad_ckpt_settings=none" },
    ["1 of 4 pairs"] = { "grad_checkpoint=true", "grad_ckpt_settings={1,1}" },
    ["2 of 4 pairs"] = { "grad_checkpoint=true", "grad_ckpt_settings={2,2}" },
    ["3 of 4 pairs"] = { "grad_checkpoint=true", "grad_ckpt_settings={3,3}" },
    ["all"] = { "grad_checkpoint=true", "grad_ckpt_settings=none",
      "grad_ckpt_keep_attention=true" },
    ["all, and attention"] = { "grad_checkpoint=true", "grad_ckpt_settings=none",
      "grad_ckpt_keep_attention=false" } }

  -- all ways and stages, tried
  local function all_of()
    local list = {}
    for name, values in pairs(RECOMPUTED) do
      for sequence = 1, 2 do
        for zero = 0, 3 do
          local rate, total = planned(with(values), mesh.new(small(1e9), 8):with { zero = zero,
            sequence = sequence })
          list[#list + 1] = { way = name .. " " .. sequence, zero = zero, rate = rate,
            total = total }
        end
      end
    end
    return list
  end

  it("is the fastest of all that fit, for memories from the least to plenty", function()
    local tried, report, left = all_of(), {}, 0
    assert.equal(6 * 2 * 4, #tried)
    table.sort(tried, function(a, b) return a.total < b.total end)
    for k = 0, 4 do
      -- also just too little for one of them
      local at = tried[1 + k * (#tried - 1) // 4]
      local memory = at.total - k % 2
      local rows, best, fits = solved(memory), nil, {}
      for _, one in ipairs(tried) do
        if one.total <= memory then
          best, fits[one.way] = math.max(best or 0, one.rate), true
        end
      end
      local first = rows[1]
      assert.equal(best ~= nil, first.fits)
      if best then
        assert.equal(best, first.rate)
        report[first.recompute] = true
      end
      for _, row in ipairs(rows) do
        local way = row.recompute .. " " .. row.sequence
        if row.below then
          left = left + 1
        elseif row.rate == nil then
          assert.is_nil(fits[way], way)
          assert.is_true(row.memory > memory)
        end
        for _, one in ipairs(tried) do
          assert.is_true(not (row.below and one.way == way and one.total <= memory)
            or one.rate <= row.below, way)
        end
      end
    end
    -- several results were right, and some ways were not tried to their end
    assert.is_true(next(report, next(report)) ~= nil)
    assert.is_true(left > 0)
  end)

  it("keeps no more on the host than grad_ckpt_buffer_size says", function()
    local function bounded(bytes)
      return function(values)
        return bake("grad_ckpt_buffer_size=" .. bytes, table.unpack(values))
      end
    end
    local function found(bytes, memory)
      return search.mesh({ mesh = mesh.new(small(memory), 8), compiled = cache }, bounded(bytes))
    end
    -- inputs of blocks are kept where blocks recompute
    local free = math.huge
    for zero = 0, 3 do
      for sequence = 1, 2 do
        local _, total = planned(bounded(1000000000)(RECOMPUTED["nothing"]),
          mesh.new(small(1e9), 8):with { zero = zero, sequence = sequence })
        free = math.min(free, total)
      end
    end
    local first = found(1000000000, free - 1)[1]
    assert.is_true(first.fits and first.recompute ~= "nothing")
    local least, most = math.huge, 0
    for _, row in ipairs(found(1, free - 1)) do
      assert.is_false(row.fits)
      if row.above_buffer then
        assert.is_true(row.recompute ~= "nothing" and row.above_buffer.has == 1)
        least = math.min(least, row.above_buffer.needs)
        most = math.max(most, row.above_buffer.needs)
      end
    end
    assert.is_true(least < math.huge)
    assert.equal("nothing", found(1, 1e9)[1].recompute)
    assert.is_true(found(most, free - 1)[1].fits)
    assert.is_false(found(least - 1, free - 1)[1].fits)
  end)

  it("shares layers when the recipe does", function()
    local function cut(values)
      local own = { "plugin_config.tp_size=2", "optim.type=adamw" }
      return bake(table.unpack(table.move(values, 1, #values, #own + 1, own)))
    end
    local rows = search.mesh({ mesh = mesh.new(small(1e9), 8), compiled = cache }, cut)
    local best, layers = rows[1], {}
    for _, row in ipairs(rows) do
      layers[row.layers] = true
    end
    -- the heads of the demo are two
    assert.same({ true, true }, { layers[1], layers[2] })
    assert.matches(("tp_size = %d"):format(best.tp_size), solve.mesh_text(best))
    -- half of each layer, and of values kept between layers
    local one = mesh.new(small(1e9), 8):with { zero = 1 }
    local _, whole = planned(cut {}, one)
    local _, half = planned(cut {}, one:with { layers = 2 })
    assert.is_true(half < whole)
  end)

  it("tries to share layers when the recipe does not, and prints tp_size if better", function()
    local function plain(values) return bake("optim.type=adamw", table.unpack(values)) end
    local rows, seen = search.mesh({ mesh = mesh.new(small(1e9), 2), compiled = cache }, plain), {}
    for _, row in ipairs(rows) do
      seen[row.layers] = true
      assert.equal(row.layers > 1 and row.layers or nil, row.tp_size)
      row.zero = row.zero or 0
      assert.equal(row.layers > 1, solve.mesh_text(row):find("tp_size", 1, true) ~= nil)
    end
    assert.same({ true, true }, seen)
    for zero = 0, 3 do
      local rate, total = planned(plain {}, mesh.new(small(1e9), 2):with { zero = zero,
        layers = 2 })
      assert.is_true(total <= 1e9 and rate <= rows[1].rate)
    end
  end)

  it("has the planned rate with the fields that it prints", function()
    local best, values = solved(1e9)[1], {}
    assert.matches("^grad_checkpoint = %l+,\ngrad_ckpt_settings = .*,\n"
      .. "grad_ckpt_keep_attention = %l+,\nplugin_config = { "
      .. "zero_stage = %d, sp_size = %d },\n$", solve.mesh_text(best))
    for line in solve.mesh_text(best):gsub("recipe%.none", "none"):gmatch("([^\n]+),\n") do
      values[#values + 1] = (line:gsub(" = ", "=", 1))
    end
    local s = with(values)
    assert.same({ best.zero, best.sequence },
      { s.plugin_config.zero_stage, s.plugin_config.sp_size })
    assert.same({ best.rate, best.memory }, { planned(s, (mesh.new(small(1e9), 8):of(s))) })
  end)

  local WIDE = { "model.hidden_size=512", "model.depth=1",
    "bucket_config=recipe.replace{['32px'] = {[1] = {1.0, 2}}}",
    "plugin_config.reduce_bucket_size_in_m=1" }

  local function wide(values)
    local words = table.move(WIDE, 1, #WIDE, 1, {})
    return bake(table.unpack(table.move(values, 1, #values, #words + 1, words)))
  end

  it("has the fastest size of buckets, when that is worth a field", function()
    local of = mesh.new(quick(1e9), 8)
    local other <close> = compiled.new(of.machine)
    local best = search.mesh({ mesh = of, compiled = other }, wide)[1]
    local function rate_with(size)
      return (planned(wide { ("plugin_config.reduce_bucket_size_in_m=%d"):format(size),
        table.unpack(best.values) }, of:with { zero = best.zero, sequence = best.sequence }, other))
    end
    assert.equal(rate_with(best.bucket_size), best.rate)
    assert.is_true(best.rate > rate_with(1))
    for _, size in ipairs(plan.bucket_sizes) do
      assert.is_true(best.rate * 1.001 >= rate_with(size), size)
    end
    assert.matches(("sp_size = %d, reduce_bucket_size_in_m = %d },\n$"):format(best.sequence,
      best.bucket_size), solve.mesh_text(best))
  end)

  it("is found when it fits only in ZeRO 3, and reported as planned", function()
    local of = mesh.new(quick(1e9), 8)
    local other <close> = compiled.new(of.machine)
    -- the least memory of any way at each stage
    local least = {}
    for _, values in pairs(RECOMPUTED) do
      for sequence = 1, 2 do
        for zero = 0, 3 do
          local _, total = planned(wide(values), of:with { zero = zero, sequence = sequence },
            other)
          least[zero] = math.min(least[zero] or math.huge, total)
        end
      end
    end
    assert.is_true(least[3] < math.min(least[0], least[1], least[2]))
    local first = search.mesh({ mesh = mesh.new(quick(least[3]), 8), compiled = other }, wide)[1]
    assert.same({ true, 3 }, { first.fits, first.zero })
    local values = table.move(first.values, 1, #first.values, 1, {})
    values[#values + 1] = first.bucket_size
      and ("plugin_config.reduce_bucket_size_in_m=%d"):format(first.bucket_size)
    assert.same({ first.rate, first.memory }, { planned(wide(values), of:with { zero = 3,
      sequence = first.sequence }, other) })
  end)
end)
