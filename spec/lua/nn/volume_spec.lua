--- Layers of clips, channels last, compared with loops over all cells.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local volume = require "moonreel.nn.volume"

-- runs a graph over x; declare(scope) returns the layer
local function run(x, declare, forward, options)
  local params = G.params("f32")
  local layer = declare(nn.scope(params))
  params:seal()
  local exec = E.new(E.device("cpu", 1), params, {})
  exec:init(3)
  local g = G.graph(params, options)
  g:output("y", forward(g, g:input("x", "f32", x.shape), layer))
  g:finish()
  local prog = exec:compile(g)
  prog:set("x", x)
  prog:run()
  return prog:get("y"), exec, g:print()
end

local function nothing() end

describe("nn.volume", function()
  it("repeats each cell in height and in width", function()
    local x = T.new("f32", {2, 3, 2, 5, 4}):fill_normal(1, "x")
    local y = run(x, nothing, function(_, v) return volume.upsample(v) end)
    assert.same({2, 3, 4, 10, 4}, y.shape)
    local from, to = x:totable(), y:totable()
    for i, value in ipairs(to) do
      local at = i - 1
      local c, w, h, n = at % 4, at // 4 % 10, at // 40 % 4, at // 160
      assert.equal(from[((n * 2 + h // 2) * 5 + w // 2) * 4 + c + 1], value)
    end
  end)

  it("makes two frames of the channels of one, the phase fastest", function()
    local x = T.new("f32", {2, 3, 2, 2, 6}):fill_normal(1, "x")
    local y = run(x, nothing, function(_, v) return volume.time_shuffle(v) end)
    assert.same({2, 6, 2, 2, 3}, y.shape)
    local from, to = x:totable(), y:totable()
    for i, value in ipairs(to) do
      local at = i - 1
      local c, cell, t, b = at % 3, at // 3 % 4, at // 12 % 6, at // 72
      assert.equal(from[((b * 3 + t // 2) * 4 + cell) * 6 + 2 * c + t % 2 + 1], value)
    end
  end)

  it("keeps the weights of pictures without an axis of time", function()
    local x = T.new("f32", {1, 1, 3, 3, 2}):fill_normal(1, "x")
    local y, exec = run(x, function(scope)
      return volume.Conv(scope, "conv", 2, 4, {kernel = {3, 3}, pad = {0, 0, 1, 1, 1, 1}})
    end, function(g, v, layer) return layer(g, v) end)
    local w, bias = exec:param("w", "conv.weight"), exec:param("w", "conv.bias"):totable()
    assert.same({4, 2, 3, 3}, w.shape)
    -- the cell in the middle sees each cell once
    local sum, cells, weights = bias[3], x:totable(), w:totable()
    for k = 0, 8 do
      for c = 0, 1 do
        sum = sum + cells[k * 2 + c + 1] * weights[(2 * 2 + c) * 9 + k + 1]
      end
    end
    assert.near(sum, y:totable()[4 * 4 + 3], 1e-5)
  end)

  it("repeats the border by copies, or by address without copies", function()
    local x = T.new("f32", {1, 2, 3, 4, 2}):fill_normal(1, "x")
    local function declare(scope)
      return volume.Conv(scope, "conv", 2, 3, {kernel = {3, 3, 3}, pad = {2, 0, 1, 1, 1, 1},
        edge = true})
    end
    local function forward(g, v, layer) return layer(g, v) end
    local laid, _, with_copies = run(x, declare, forward)
    local read, _, without = run(x, declare, forward, {edges = true})
    assert.same({1, 2, 3, 4, 3}, read.shape)
    assert.matches("copy", with_copies)
    assert.is_nil(without:find("copy", 1, true))
    local zeros = run(x, function(scope)
      return volume.Conv(scope, "conv", 2, 3, {kernel = {3, 3, 3}, pad = {2, 0, 1, 1, 1, 1}})
    end, forward)
    assert.near(0, (laid - read):norm(), 1e-5)
    assert.is_true((laid - zeros):norm() > 0.1)
  end)

  it("adds zero frames before the first", function()
    local x = T.new("f32", {1, 2, 2, 2, 2}):fill_normal(1, "x")
    local function declare(scope)
      return volume.Conv(scope, "conv", 2, 2, {kernel = {3, 1, 1}, pad = {2, 0, 0, 0, 0, 0},
        bias = false})
    end
    local y = run(x, declare, function(g, v, layer) return layer(g, v, 2) end)
    assert.same({1, 4, 2, 2, 2}, y.shape)
    local plain = run(x, declare, function(g, v, layer) return layer(g, v) end)
    assert.same(plain:totable(), y:slice(1, 2, 4):clone():totable())
    assert.equal(0, y:slice(1, 0, 2):clone():norm())
  end)

  it("normalises groups, with SiLU on request", function()
    local x = T.new("f32", {2, 3, 2, 2, 4}):fill_normal(1, "x") * 5
    local function norm(silu)
      return run(x, function(scope) return volume.GroupNorm(scope, "norm", 4, 2, 1e-6) end,
        function(g, v, layer) return layer(g, v, silu) end)
    end
    local y = norm(false)
    local group = y:slice(0, 1, 2):slice(4, 2, 4):clone()
    assert.near(0, group:mean(), 1e-5)
    assert.near(1, group:norm() ^ 2 / 24, 1e-4)
    local first, active = y:totable()[1], norm(true):totable()[1]
    assert.near(first / (1 + math.exp(-first)), active, 1e-5)
  end)
end)
