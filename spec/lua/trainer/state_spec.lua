-- The state that an optimizer declares is saved in a checkpoint and loaded from it, whatever it
-- holds.
-- Covers: lua/moonreel/trainer/state.lua lua/moonreel/ckpt/fill.lua lua/moonreel/ckpt/coded.lua
-- lua/moonreel/optim/regions.lua lua/moonreel/ckpt/numbers.lua core/bind/exec.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local core = require "moonreel.core.ckpt"
local regions = require "moonreel.optim.regions"
local coded = require "moonreel.ckpt.coded"
local fill = require "moonreel.ckpt.fill"
local numbers = require "moonreel.ckpt.numbers"
local state = require "moonreel.trainer.state"
local dir = dofile("spec/support/folder.lua").new()
local fails = dofile "spec/support/fails.lua"

-- signs and scales of blocks of 64, as an optimizer with moments in bytes keeps them
local compact = {
  {name = "grad", dtype = "f32"},
  {name = "exact", dtype = "f32", role = "master", prefix = "exact."},
  {name = "slow", dtype = "f32", role = "average", prefix = "slow."},
  {name = "m_bytes", dtype = "u8", prefix = "m."},
  {name = "m_scale", dtype = "f32", prefix = "m_scale.", per = 64},
}

local function params_of(dtype)
  local params = G.params(dtype)
  params:add{name = "a", shape = {3, 40}, init = {kind = "normal", scale = 1}}
  params:add{name = "still", shape = {5}, init = {kind = "ones"}, frozen = true}
  params:add{name = "b", shape = {2}, init = {kind = "ones"}}
  params:seal()
  return params
end

-- an executor whose regions hold other numbers than their initial ones
local function filled(params, rows)
  local run = E.new(E.device(), params, {regions = rows})
  run:init(3)
  for i, r in ipairs(run:regions()) do
    for _, p in ipairs(params:list()) do
      if r.prefix and p.frozen == (r.role == "frozen") then
        local t, values = run:param(r.name, p.name), {}
        for k = 1, T.count(t.shape) do
          values[k] = (31 * i + 7 * k + #p.name) % 97
        end
        run:set_param(r.name, p.name, T.from(t.shape, values, t.dtype))
      end
    end
  end
  return run
end

local function everything(run, params)
  local all = {}
  for _, r in ipairs(run:regions()) do
    for _, p in ipairs(params:list()) do
      if r.prefix and p.frozen == (r.role == "frozen") then
        all[r.name .. " " .. p.name] = run:param(r.name, p.name):totable()
      end
    end
  end
  return all
end

local function saved(run, params, path)
  local names = {}
  local rows = state.rows(run, params)
  for _, row in ipairs(rows) do
    names[row.name] = ("%s [%s]"):format(row.dtype, table.concat(row.shape, ", "))
  end
  core.write(path, rows)
  return names, require("moonreel.ckpt").open(path)
end

describe("the state of a run", function()
  teardown(function() dir:remove() end)

  it("has the tensors that the optimizer's regions name, and is loaded bit for bit", function()
    for _, dtype in ipairs{"f32", "bf16"} do
      local params = params_of(dtype)
      local run <close> = filled(params, compact)
      local names, source = saved(run, params, dir.path .. "/" .. dtype .. ".safetensors")
      local want = {a = dtype .. " [3, 40]", b = dtype .. " [2]", still = dtype .. " [5]",
        ["slow.a"] = "f32 [3, 40]", ["slow.b"] = "f32 [2]", ["m.a"] = "u8 [3, 40]",
        ["m.b"] = "u8 [2]", ["m_scale.a"] = "f32 [2]", ["m_scale.b"] = "f32 [1]"}
      if dtype == "bf16" then
        want["exact.a"], want["exact.b"] = "f32 [3, 40]", "f32 [2]"
      end
      assert.same(want, names)
      local other <close> = E.new(E.device(), params, {regions = compact})
      state.load(other, params, source)
      assert.same(everything(run, params), everything(other, params))
    end
  end)

  it("is read through tensors whose memory is returned at once", function()
    local made, new = {}, T.new
    T.new = function(...)
      made[#made + 1] = new(...)
      return made[#made]
    end
    local params = params_of "bf16"
    local run <close> = filled(params, compact)
    local _, source = saved(run, params, dir.path .. "/back.safetensors")
    local other <close> = E.new(E.device(), params, {regions = compact})
    made = {}
    local good, problem = pcall(state.load, other, params, source)
    T.new = new
    assert.is_true(good, tostring(problem))
    assert.is_true(#made >= 10, #made)
    for i, t in ipairs(made) do
      assert.matches("closed", tostring(t), i)
    end
  end)

  it("of AdamW has the same names in all versions of checkpoints", function()
    local params = params_of "bf16"
    local run <close> = filled(params, regions.adamw{ema = true})
    local names = saved(run, params, dir.path .. "/adamw.safetensors")
    for _, prefix in ipairs{"master.", "ema.", "adam_m.", "adam_v."} do
      assert.equal("f32 [3, 40]", names[prefix .. "a"])
      names[prefix .. "a"], names[prefix .. "b"] = nil, nil
    end
    assert.same({a = "bf16 [3, 40]", b = "bf16 [2]", still = "bf16 [5]"}, names)
  end)

  it("of moments in 8 bits is loaded into 32 bits and back, within the codes' error", function()
    local params = params_of "bf16"
    local in_8, in_32 = regions.adamw{ema = true, bits = 8}, regions.adamw{ema = true}
    local run <close> = filled(params, in_32)
    local _, source = saved(run, params, dir.path .. "/in_32.safetensors")
    local small <close> = E.new(E.device(), params, {regions = in_8})
    state.load(small, params, source)
    local names, coded_source = saved(small, params, dir.path .. "/in_8.safetensors")
    assert.equal("u8 [3, 40]", names["adam_m8.a"])
    assert.equal("f32 [2]", names["adam_v8_scale.a"])
    assert.is_nil(names["adam_m.a"])
    local back <close> = E.new(E.device(), params, {regions = in_32})
    state.load(back, params, coded_source)
    for name, distance in pairs{adam_m = 0.9 / 128, adam_v = 2 * 0.9 / 256, master = 0} do
      local want, got = run:param(name, "a"):totable(), back:param(name, "a"):totable()
      for from = 0, 64, 64 do
        -- half a step of the upper decade, relative to the largest number of a block; roots: twice
        -- that
        local last = math.min(from + 64, #want)
        local most = math.max(table.unpack(want, from + 1, last))
        for i = from + 1, last do
          assert.near(want[i], got[i], most * distance * 1.001, name .. i)
        end
      end
    end
    -- the same codes again; a rank that owns a part encodes its part alike
    local again <close> = E.new(E.device(), params, {regions = in_8})
    state.load(again, params, coded_source)
    assert.same(everything(small, params), everything(again, params))
    local part = regions.adamw{bits = 8, parts = {{start = 64, stop = 128}}}
    local owner <close> = E.new(E.device(), params, {regions = part})
    state.load(owner, params, source)
    assert.same(small:read("adam_m8", "u8", 64, {64}):totable(),
      owner:read("adam_m8", "u8", 0, {64}):totable())
    assert.same(small:read("adam_v8_scale", "f32", 1, {1}):totable(),
      owner:read("adam_v8_scale", "f32", 0, {1}):totable())
    -- the conversion is reported in both directions
    assert.matches("in_32.safetensors has moments of 32 bits: they are rounded to 8",
      coded.note(source, params, 8))
    assert.matches("in_8.safetensors has moments of 8 bits: training continues with 32",
      coded.note(coded_source, params, 32))
    assert.is_nil(coded.note(source, params, 32))
    assert.is_nil(coded.note(coded_source, params, 8))
    -- their numbers are those of the moments
    local first, second = numbers.moments(source, "a")[1], numbers.moments(coded_source, "a")[1]
    assert.near(first.m, second.m, first.m * 0.01)
    assert.near(first.v, second.v, first.v * 0.01)
    assert.is_nil(numbers.norms(coded_source)[1].adam_m8)
  end)

  it("fills each region of weights: exact ones, and averages start from them", function()
    local params = params_of "bf16"
    local run <close> = filled(params, regions.adamw{ema = true})
    local _, source = saved(run, params, dir.path .. "/weights.safetensors")
    local other <close> = E.new(E.device(), params, {regions = compact})
    local report = fill.weights(other, params, source)
    assert.same({}, report.missing)
    local master = run:param("master", "a")
    assert.same(master:totable(), other:param("exact", "a"):totable())
    assert.same(master:totable(), other:param("slow", "a"):totable())
    assert.same(master:to("bf16"):totable(), other:param("w", "a"):totable())
    assert.equal(0, other:param("m_bytes", "a"):max())
    assert.same(run:param("frozen", "still"):totable(), other:param("w", "still"):totable())
    -- without training: averages if preferred; in f32 masters before weights
    for dtype, weights in pairs{f32 = master, bf16 = run:param("w", "a")} do
      local plain = params_of(dtype)
      local still <close> = E.new(E.device(), plain)
      fill.weights(still, plain, source)
      assert.same(weights:totable(), still:param("w", "a"):totable())
      fill.weights(still, plain, source, {average = true})
      assert.same(run:param("ema", "a"):to(dtype):totable(), still:param("w", "a"):totable())
    end
  end)

  it("is the union of the state of all owners, for any division among owners", function()
    local params = params_of "bf16"  -- a has elements 0 to 120, b 128 to 130
    -- an optimizer's regions for one of several owners
    local function owned(start, stop)
      local rows = {}
      for i, r in ipairs(compact) do
        rows[i] = {start = start, stop = stop}
        for k, v in pairs(r) do
          rows[i][k] = v
        end
      end
      return rows
    end
    local whole <close> = filled(params, compact)
    local want, tensors = everything(whole, params), {}
    local runs = {}
    for i, owner in ipairs{{0, 64}, {64, 192}} do
      local run = E.new(E.device(), params, {regions = owned(owner[1], owner[2])})
      for _, r in ipairs(run:regions()) do
        local n = (r.stop - r.start) // r.per
        if r.prefix then
          run:write(r.name, 0, whole:read(r.name, r.dtype, r.start // r.per, {n}))
        end
      end
      for _, row in ipairs(state.rows(run, params)) do
        -- one owner saves the weights that all of them have
        if i == 1 or row.name:find(".", 1, true) then
          tensors[#tensors + 1] = row
        end
      end
      runs[i] = run  -- the saved tensors borrow its memory
    end
    local names = {}
    for _, row in ipairs(tensors) do
      names[#names + 1] = row.name .. (row.range and table.concat(row.range, "-") or "")
    end
    assert.same("a b still exact.a0-64 slow.a0-64 m.a0-64 m_scale.a0-1 "
      .. "exact.a64-120 exact.b slow.a64-120 slow.b m.a64-120 m.b m_scale.a1-2 m_scale.b",
      table.concat(names, " "))
    local home = require("moonreel.run").create(dir.path .. "/runs", "owners")
    local saver <close> = require("moonreel.ckpt").saver(home)
    saver:save{step = 1, tensors = tensors, meta = {recipe_hash = "", dataset_fingerprint = "",
      sampler = "", seed = 0, machine = {isa = "", threads = 0, libraries = {}}}}
    saver:wait(60)
    for _, run in ipairs(runs) do
      run:close()
    end
    local source <close> = require("moonreel.ckpt").open(require("moonreel.ckpt").dir(home, 1))
    -- one executor loads all of it; others with other divisions load their parts
    local other <close> = E.new(E.device(), params, {regions = compact})
    state.load(other, params, source)
    assert.same(want, everything(other, params))
    for _, owner in ipairs{{0, 128}, {64, 128}, {128, 192}} do
      local run <close> = E.new(E.device(), params, {regions = owned(owner[1], owner[2])})
      state.load(run, params, source)
      for _, name in ipairs{"exact", "slow"} do
        local n = owner[2] - owner[1]
        assert.same(other:read(name, "f32", owner[1], {n}):totable(),
          run:read(name, "f32", 0, {n}):totable())
      end
      assert.same(other:read("m_scale", "f32", owner[1] // 64, {1}):totable(),
        run:read("m_scale", "f32", 0, {1}):totable())
      assert.same(want["w a"], run:param("w", "a"):totable())
    end
    -- a load of weights alone fills an owner's part, too
    local run <close> = E.new(E.device(), params, {regions = owned(64, 128)})
    fill.weights(run, params, source)
    assert.same(want["w a"], run:param("w", "a"):totable())
    assert.same({table.unpack(want["w a"], 65)}, run:read("exact", "f32", 0, {56}):totable())
    fails("MR_E_RANGE", "'a' has elements 0 to 120", run.param, run, "exact", "a")
  end)

  it("counts the bytes of a checkpoint of 12 G parameters", function()
    local n = 11891178560
    local run = {regions = function()
      return {{prefix = "", role = "weights", start = 0, stop = n, bytes = 2 * n, per = 1},
        {prefix = "adam_m.", start = 0, stop = n, bytes = 4 * n, per = 1},
        -- a scale of four bytes for each 64
        {prefix = "m_scale.", start = 0, stop = n, bytes = n // 16, per = 64},
        {role = "state", start = 0, stop = n, bytes = 4 * n, per = 1}}
    end}
    local params = {list = function() return {} end, elements = function() return 0 end}
    assert.equal(6 * n + n // 16, state.saved_bytes(run, params))
    local share = {[false] = {{start = 0, stop = n // 2}}, [true] = {}}
    assert.equal((6 * n + n // 16) // 2, state.saved_bytes(run, params, share))
  end)

  it("refuses regions without a known name, dtype or role", function()
    local params = params_of "f32"
    local function with(row) return E.new, E.device(), params, {regions = {row}} end
    fails("MR_E_USAGE", "a region needs a name and a dtype", with{dtype = "f32"})
    fails("MR_E_USAGE", "a region needs a name and a dtype", with{name = "m"})
    fails("MR_E_USAGE", "region 'm' is 'masters'; expected state, master, average or weights",
      with{name = "m", dtype = "f32", role = "masters"})
    fails("MR_E_USAGE", "regions: expected a list", E.new, E.device(), params, {regions = "m"})
    fails("MR_E_USAGE", "region 'w' exists already", with{name = "w", dtype = "f32"})
    local run = E.new(E.device(), params, {regions = compact})
    for _, region in ipairs{"exact", "slow", "grad"} do
      fails("MR_E_USAGE", "parameter 'still' is frozen: it has no " .. region, run.param, run,
        region, "still")
    end
    assert.same(run:param("frozen", "still"):totable(), run:param("w", "still"):totable())
    fails("MR_E_USAGE", "no region 'm'; it has w, frozen, k", function()
      E.new(E.device(), params, {regions = {{name = "k", dtype = "f32"}}}):param("m", "a")
    end)
  end)
end)
