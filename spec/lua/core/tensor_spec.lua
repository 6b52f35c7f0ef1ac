--- Tensors in scripts: views, indices, reductions, methods, invalid arguments.
-- Covers: core/bind/tensor.c core/bind/axes.c core/bind/reduce.c core/bind/op.c core/bind/args.c
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local fails = require "spec.support.fails"
local process = require "moonreel.core.process"

-- 0, 1, 2, ... in these dimensions
local function count_up(dims, dtype)
  local values = {}
  for i = 1, T.count(dims) do
    values[i] = i - 1
  end
  return T.from(dims, values, dtype)
end

describe("views of a tensor", function()
  local t = count_up { 2, 3, 4 }

  it("take indices from 0, half open, from the end if negative", function()
    assert.same({ 12, 13, 14, 15 }, t["1, 0"]:totable())
    assert.same({ 4, 8, 16, 20 }, t["0:2, 1:3, 0"]:totable())
    assert.same({ 23 }, t["-1, -1, -1:4"]:totable())
    assert.equal(7, t["0, 1, 3"])
    assert.same({ 2, 3, 2 }, t[":, :, 2:4"].shape)
    assert.same({ 3, 4 }, t[-1].shape)
    assert.same({ 2, 0, 4 }, t[":, 1:1"].shape)
  end)

  it("refuse indices out of range and other types", function()
    fails("MR_E_RANGE", "position 2 is not inside 0:2", function() return t[2] end)
    fails("MR_E_RANGE", "part 2 is not inside 0:3", function() return t["0, 3"] end)
    fails("MR_E_RANGE", "part 1 is not inside 0:2", function() return t["2:1"] end)
    fails("MR_E_RANGE", "more parts than the 3 dimensions", function() return t["0,0,0,0"] end)
    for _, text in ipairs { "0,,1", "", " ", "1:2:3", "0 1", ",", "+" } do
      fails("MR_E_USAGE", 'expected positions as "0, :, 3:16"', function() return t[text] end)
    end
  end)

  it("list the known names for an unknown one", function()
    fails("MR_E_USAGE", "mr%.Tensor has no field 'banana'; expected one of: bytes, clone, close, "
      .. ".*, dtype, .*, shape, slice, stats, .*, transpose$", function() return t["banana"] end)
    fails("MR_E_USAGE", "tensor_spec.lua:%d+: mr%.Tensor has no field 'shpae', did you mean "
      .. "'shape'%?", function() return t.shpae end)
    fails("MR_E_USAGE", "mr%.Tensor has no field 'totabel', did you mean 'totable'%?",
      function() return t:totabel() end)
  end)

  it("report unknown fields of other types in the same way", function()
    local graph = require("moonreel.core.graph").graph()
    fails("MR_E_USAGE", "mr%.Graph has no field 'x'; expected one of: .*, close, ",
      function() return graph.x end)
    fails("MR_E_USAGE", "mr%.Graph has no field '1'; expected one of: ",
      function() return graph[1] end)
  end)

  it("swap axes, the last two by default", function()
    assert.same({ 2, 4, 3 }, t:transpose().shape)
    assert.same({ 4, 3, 2 }, t:transpose(0, 2).shape)
    assert.same({ 0, 4, 8, 1 }, { table.unpack(t:transpose()[0]:totable(), 1, 4) })
    assert.same({ 3, 2, 4 }, t:transpose(0, -2).shape)
    fails("MR_E_RANGE", "transpose: axis 3 is not inside 0:3", t.transpose, t, 0, 3)
    fails("MR_E_RANGE", "transpose: axis %-2 is not inside 0:1", t.transpose, T.new("f32", { 3 }))
  end)

  it("are filled with random numbers when they are dense and f32", function()
    for _, x in ipairs { T.new("f64", { 2 }), T.new("bf16", { 2 }), t:transpose() } do
      fails("MR_E_SHAPE", "fill_normal: expected a dense f32 tensor", x.fill_normal, x, 1, "x")
    end
  end)

  it("of a graph swap axes too", function()
    local x = require("moonreel.core.graph").graph():input("x", "f32", { 2, 3, 4 })
    assert.same({ 2, 4, 3 }, x:transpose().shape)
    assert.same({ 3, 2, 4 }, x:transpose(0, 1).shape)
  end)

  it("have the length of their first axis", function()
    assert.equal(2, #t)
    assert.equal(4, #t:permute { 2, 0, 1 })
    fails("MR_E_RANGE", "a scalar has no length", function() return #T.new("f32", {}) end)
  end)
end)

describe("a reduction", function()
  local t = count_up { 2, 3, 4 }

  it("over all axes is a number, an integer when the values are", function()
    assert.equal(276, t:sum())
    assert.equal(11.5, t:mean())
    assert.same({ 23, 0 }, { t:max(), t:min() })
    assert.near((4324) ^ 0.5, t:norm(), 1e-5)
    assert.equal("float", math.type(t:sum()))
    assert.equal("integer", math.type(count_up({ 3 }, "i32"):sum()))
    assert.equal("integer", math.type(count_up({ 3 }, "u8"):max()))
    assert.equal(math.maxinteger, T.from({ 2 }, { 5, math.maxinteger }, "i64"):max())
    assert.equal(true, T.from({ 2 }, { false, true }, "bool"):max())
  end)

  it("over some axes is a tensor without them, or with length 1 there", function()
    assert.same({ 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34 }, t:sum(0):totable())
    assert.same({ 60, 92, 124 }, t:sum { 0, 2 }:totable())
    assert.same({ 3, 7, 11, 15, 19, 23 }, t:max(-1):totable())
    assert.same({ 2, 3, 1 }, t:mean(2, true).shape)
    assert.same({ 1, 1, 1 }, t:norm(nil, true).shape)
    assert.same({ 2, 3, 4 }, t:sum {}.shape)
  end)

  it("of a view counts the elements of the view", function()
    assert.same({ 22, 70 }, t[":, 1, :"]:sum(1):totable())
    assert.same({ 66, 210 }, t:transpose(0, 2):sum { 0, 1 }:totable())
    assert.equal(20, T.from({ 1 }, { 2 }):expand { 10 }:sum())
  end)

  it("has a dtype that can hold it", function()
    assert.equal("f32", T.new("bf16", { 2 }):sum(0).dtype)
    assert.equal("f64", T.new("f64", { 2 }):mean(0).dtype)
    assert.equal("i64", T.new("u8", { 2 }):sum(0).dtype)
    assert.equal("f64", T.new("i32", { 2 }):mean(0).dtype)
    assert.equal("bf16", T.new("bf16", { 2 }):min(0).dtype)
  end)

  it("refuses axes that do not exist, are named twice, or are no numbers", function()
    fails("MR_E_RANGE", "sum: axis 3 is not inside 0:3", t.sum, t, 3)
    fails("MR_E_RANGE", "max: axis %-4 is not inside 0:3", t.max, t, -4)
    fails("MR_E_USAGE", "mean: axis 0 is named twice", t.mean, t, { 0, -3 })
    fails("MR_E_SHAPE", "dimension 1: expected an integer", t.norm, t, { "x" })
    fails("MR_E_SHAPE", "max or min of no values", t.max, T.new("f32", { 0 }))
    fails("MR_E_SHAPE", "at most 8", t.sum, t, { 0, 1, 2, 3, 4, 5, 6, 7, 8 })
    assert.is_true(T.new("f32", { 0 }):mean() ~= T.new("f32", { 0 }):mean())
  end)
end)

describe("a closed tensor", function()
  it("can be closed again and printed, and refuses all else", function()
    local t = T.new("f32", { 2 })
    t:close()
    t:close()
    assert.equal("mr.Tensor (closed)", tostring(t))
    for _, call in ipairs { function() return t.shape end, function() return t[0] end,
        function() return #t end, function() return t:sum() end, function() return t + 1 end,
        function() return t:transpose() end } do
      fails("MR_E_USAGE", "mr.Tensor is closed", call)
    end
  end)
end)

describe("tensors in a script", function()
  it("have the methods that they have in the console", function()
    local path = os.tmpname() .. ".csv"
    local code = ([[
      local T = require "moonreel.core.tensor"
      local t = T.from({2, 2}, {1, 2, 3, 4})
      t:save(%q)
      print(t:stats().mean, #t:hist(4).counts, t:norm() // 1, T.methods.stats == t.stats)]])
    local result = process.run { process.program(), "-e", code:format(path) }
    assert.equal(0, result.exit)
    assert.equal("2.5\t4\t5.0\ttrue\n", result.output)
    assert.equal("1,2\n3,4\n", base.read_file(path))
    os.remove(path)
  end)
end)

describe("unreachable tensors", function()
  local MIB = 1 << 20

  -- peak bytes of tensors while `n` of 8 MiB are made
  local function peak(n, keep)
    local most = 0
    for i = 1, n do
      local t = T.new("u8", { 8 * MIB })
      if keep then
        keep[i] = t
      end
      most = math.max(most, T.held())
    end
    return most
  end

  before_each(function()
    collectgarbage()
  end)

  it("are collected by the memory that they hold", function()
    local before = T.held()
    assert.is_true(peak(100) - before <= 80 * MIB)
    -- reachable memory is not counted twice
    local named = T.new("u8", { 512 * MIB })
    assert.is_true(peak(100) - before - #named <= 136 * MIB)
  end)

  it("are kept while they are reachable, and while the collector is stopped", function()
    local before = T.held()
    assert.equal(before + 20 * 8 * MIB, peak(20, {}))
    collectgarbage()
    collectgarbage "stop"
    local most = peak(20)
    collectgarbage "restart"
    assert.equal(before + 20 * 8 * MIB, most)
    collectgarbage()
    assert.equal(before, T.held())
  end)

  it("may be views: their storage is freed with the last one", function()
    local before = T.held()
    local row = T.new("f32", { 4, 256 })[3]
    collectgarbage()
    assert.equal(before + 4096, T.held())
    assert.equal(256, #row)
  end)
end)

describe("the bindings of tensors, under stress", function()
  local function work()
    local t = count_up { 3, 4 }
    local sums = t:transpose():sum(0)
    return #sums + t:norm() + t["1:3, 2"]:max() + t:mean(1, true).shape[2]
  end
  local wanted = work()

  it("return the same with the collector at each step", function()
    collectgarbage("incremental", 1, 1000)
    local ok, got = pcall(function()
      local last
      for _ = 1, 20 do
        last = work()
        collectgarbage "step"
      end
      return last
    end)
    collectgarbage "incremental"
    collectgarbage("incremental", 200, 100)
    assert.is_true(ok, tostring(got))
    assert.equal(wanted, got)
  end)
end)
