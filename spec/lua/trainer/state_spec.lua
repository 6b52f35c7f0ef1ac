-- What an optimizer declares goes into a checkpoint and back, whatever it keeps.
-- Covers: lua/moonreel/trainer/state.lua lua/moonreel/optim/regions.lua core/bind/exec.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local core = require "moonreel.core.ckpt"
local regions = require "moonreel.optim.regions"
local state = require "moonreel.trainer.state"
local dir = dofile("spec/support/folder.lua").new()
local fails = dofile "spec/support/fails.lua"

-- signs and scales of blocks of 64, as an optimizer with moments in bytes would keep them
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

-- an executor whose regions hold other numbers than those they began with
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
  state.with_rows(run, params, function(rows)
    for _, row in ipairs(rows) do
      names[row.name] = ("%s [%s]"):format(row.dtype, table.concat(row.shape, ", "))
    end
    core.write(path, rows)
  end)
  return names, require("moonreel.ckpt").open(path)
end

describe("the state of a run", function()
  teardown(function() dir:remove() end)

  it("is what the rows of its optimizer name, and comes back", function()
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

  it("of AdamW has the names that checkpoints always had", function()
    local params = params_of "bf16"
    local run <close> = filled(params, regions.adamw{ema = true})
    local names = saved(run, params, dir.path .. "/adamw.safetensors")
    for _, prefix in ipairs{"master.", "ema.", "adam_m.", "adam_v."} do
      assert.equal("f32 [3, 40]", names[prefix .. "a"])
      names[prefix .. "a"], names[prefix .. "b"] = nil, nil
    end
    assert.same({a = "bf16 [3, 40]", b = "bf16 [2]", still = "bf16 [5]"}, names)
  end)

  it("gives weights to every place for weights: the exact ones, averages begin there", function()
    local params = params_of "bf16"
    local run <close> = filled(params, regions.adamw{ema = true})
    local _, source = saved(run, params, dir.path .. "/weights.safetensors")
    local other <close> = E.new(E.device(), params, {regions = compact})
    local report = state.load_weights(other, params, source)
    assert.same({}, report.missing)
    local master = run:param("master", "a")
    assert.same(master:totable(), other:param("exact", "a"):totable())
    assert.same(master:totable(), other:param("slow", "a"):totable())
    assert.same(master:to("bf16"):totable(), other:param("w", "a"):totable())
    assert.equal(0, other:param("m_bytes", "a"):max())
    assert.same(run:param("frozen", "still"):totable(), other:param("w", "still"):totable())
    -- where nothing trains: averages when they are preferred; in f32 masters before weights
    for dtype, weights in pairs{f32 = master, bf16 = run:param("w", "a")} do
      local plain = params_of(dtype)
      local still <close> = E.new(E.device(), plain)
      state.load_weights(still, plain, source)
      assert.same(weights:totable(), still:param("w", "a"):totable())
      state.load_weights(still, plain, source, "average")
      assert.same(run:param("ema", "a"):to(dtype):totable(), still:param("w", "a"):totable())
    end
  end)

  it("is refused where a region holds a part of a weight", function()
    local params = params_of "f32"
    local run <close> = E.new(E.device(), params,
      {regions = {{name = "m", dtype = "f32", prefix = "m.", start = 64, stop = 192}}})
    fails("MR_E_USAGE", "'a' lies in elements 0 to 120 .*'m' holds those from 64 to 192",
      state.with_rows, run, params, function() end)
    fails("MR_E_RANGE", "'a' has elements 0 to 120", run.param, run, "m", "a")
    assert.same({0, 0}, run:param("m", "b"):totable())
  end)

  it("asks for rows with a name, a dtype and a role that there is", function()
    local params = params_of "f32"
    local function with(row) return E.new, E.device(), params, {regions = {row}} end
    fails("MR_E_USAGE", "a region needs a name and a dtype", with{dtype = "f32"})
    fails("MR_E_USAGE", "a region needs a name and a dtype", with{name = "m"})
    fails("MR_E_USAGE", "region 'm' is 'masters'; expected state, master or average",
      with{name = "m", dtype = "f32", role = "masters"})
    fails("MR_E_USAGE", "regions: expected a list", E.new, E.device(), params, {regions = "m"})
    fails("MR_E_USAGE", "region 'w' is there already", with{name = "w", dtype = "f32"})
    fails("MR_E_USAGE", "no region 'm', it has w, frozen, k", function()
      E.new(E.device(), params, {regions = {{name = "k", dtype = "f32"}}}):param("m", "a")
    end)
  end)
end)
