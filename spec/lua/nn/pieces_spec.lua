--- Layers over pieces of a clip: what they keep of a piece, how late they are, and that results
-- equal those of the whole. Whole models: spec/lua/models/dc_ae.
-- MOONREEL_DEVICE names the device.
-- Covers: lua/moonreel/nn/pieces.lua
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local encoder = require "moonreel.encoder"
local ops = require "moonreel.core.op"
local pieces = require "moonreel.nn.pieces"

local SIZE = { 2, 3, 1 }

-- sums of neighbours in time with different weights
local function conv(g, kernel, stride)
  local weights, p = {}, kernel // 2
  for i = 1, kernel do
    weights[i] = i
  end
  return function(v, more)
    return (ops.conv3d(v, g:const(T.from({ 1, 1, kernel, 1, 1 }, weights)), false,
      { stride = { stride, 1, 1 }, pad = { p + more, p + more, 0, 0, 0, 0 } }))
  end
end

local function window(e, x, kernel, stride)
  return e:window(e:keep(x), { kernel = kernel, stride = stride, before = kernel // 2 }, x.size,
    function(v, more) return conv(e.g, kernel, stride)(v, more) end)
end

local function twice(v)
  local B, N, H, W, C = table.unpack(v.shape)
  return v:reshape { B, N, 1, H, W, C }:expand { B, N, 2, H, W, C }:reshape { B, 2 * N, H, W, C }
end

-- layers by name
local LAYERS = {
  ["a row by itself"] = function(e, x)
    return e:map(x, x.size, function(v) return v + v end)
  end,
  ["three rows"] = function(e, x) return window(e, x, 3, 1) end,
  ["five rows, then three"] = function(e, x) return window(e, window(e, x, 5, 1), 3, 1) end,
  ["every second of three rows"] = function(e, x) return window(e, window(e, x, 3, 1), 3, 2) end,
  ["rows twice, then three"] = function(e, x)
    return window(e, e:map(window(e, x, 3, 1), x.size, twice, 2), 3, 1)
  end,
  ["three of rows that the layer doubles, added to them"] = function(e, x)
    local kept = e:keep(window(e, x, 3, 1))
    local y = e:window(kept, { kernel = 3, stride = 1, before = 1, up = 2 }, x.size,
      function(v, more) return conv(e.g, 3, 1)(twice(v), more) end)
    local before = e:rows(kept, y, x.size, twice, 2)
    return e:map(y, x.size, function(v) return v + before.v end)
  end,
  ["the input minus a convolution"] = function(e, x)
    local kept = e:keep(x)
    local y = window(e, e:window(kept, { kernel = 3, stride = 1, before = 1 }, x.size,
      function(v, more) return conv(e.g, 3, 1)(v, more) end), 3, 1)
    local before = e:rows(kept, y, x.size, function(v) return v end)
    return e:map(y, x.size, function(v) return v - before.v end)
  end,
}

describe("pieces of a clip", function()
  local device = E.device()

  -- rows of `out` when calls run over x [N, 2, 3, 1]
  local function run(calls, x)
    local own = { parts = function() return { { name = "all", declare = function() end } } end }
    local runner <close> = encoder.new(own, { device = device, dtype = "f32" })
    local rows = {}
    runner:run(calls, { x = x }, { out = true }, function(prog, output, first, n)
      local some <close> = prog:get(output)
      for i = 0, n - 1 do
        rows[first + i + 1] = some:slice(0, i, i + 1):clone():totable()
      end
    end)
    return rows
  end

  -- all of a clip, whose layers make `times` rows of one
  local function whole(layers, x, times)
    local N = x.shape[1]
    return { part = "all", key = "whole",
      takes = { x = { "x", 0, dtype = "f32", shape = x.shape } },
      gives = { out = { "out", 0, math.floor(times * N) } }, nodes = function(g, _, io)
        local e = pieces.whole(g)
        local y = layers(e, e:source(io.x:reshape { 1, N, 2, 3, 1 })).v
        return y:reshape { y.shape[2], 2, 3, 1 }
      end }
  end

  local function in_pieces(layers, count, n)
    local calls = { values = {} }
    pieces.append(calls, { part = "all", key = "piece", name = "one", dtype = "f32",
      layers = function(e) e:give(layers(e, e:source("x", n, SIZE)), "out") end }, count)
    return calls
  end

  for name, layers in pairs(LAYERS) do
    it("have the result of the whole clip: " .. name, function()
      for _, case in ipairs { { 1, 4 }, { 2, 4 }, { 5, 2 }, { 3, 4 } } do
        local count, n = table.unpack(case)
        local x = T.new("f32", { count * n, 2, 3, 1 }):fill_normal(1, "x")
        local want = run({ whole(layers, x, name:find "second" and 0.5
          or name:find "twice" and 2 or name:find "doubles" and 2 or 1) }, x)
        local got = run(in_pieces(layers, count, n), x)
        assert.equal(#want, #got)
        for i, row in ipairs(want) do
          for k, value in ipairs(row) do
            assert.near(value, got[i][k], 1e-4)
          end
        end
      end
    end)
  end

  it("keep as many rows as later ones need", function()
    local function kept(layers)
      local list = {}
      for name, row in pairs(in_pieces(layers, 2, 4)[2].takes) do
        if name:find "^state" then
          list[#list + 1] = row.shape[1]
        end
      end
      table.sort(list)
      return table.concat(list, " ")
    end
    assert.equal("", kept(LAYERS["a row by itself"]))
    -- late by one row, and three more until they are whole pieces
    assert.equal("2 3", kept(LAYERS["three rows"]))
    assert.equal("1 2 4", kept(LAYERS["five rows, then three"]))
  end)

  it("add sums over the rows of the clip only", function()
    local x = T.new("f32", { 6, 2, 3, 1 }):fill_normal(1, "x")
    local function sums(v) return ops.sum(v * v, { axes = { 0, 1, 2, 3 } }) end
    local calls = { values = {} }
    local function sweep(adds)
      pieces.append(calls, { part = "all", key = tostring(adds), name = tostring(adds),
        dtype = "f32", adds = adds, layers = function(e)
          local y = window(e, e:source("x", 2, SIZE), 3, 1)
          local total = e:total(y, "all rows", { 1 }, sums)
          if not adds then
            e:give(e:map(y, SIZE, function(v) return v * 0 + total:reshape { 1, 1, 1, 1, 1 } end),
              "out")
          end
        end }, 3)
    end
    sweep "all rows"
    sweep()
    local seen = run({ whole(function(e, v) return window(e, v, 3, 1) end, x, 1) }, x)
    local want = 0
    for _, row in ipairs(seen) do
      for _, value in ipairs(row) do
        want = want + value * value
      end
    end
    for _, row in ipairs(run(calls, x)) do
      assert.near(want, row[1], 1e-4 * want)
    end
  end)
end)
