--- Clips that are divided into pieces, joined again, and passed through layers that see earlier
-- frames.
-- Covers: lua/moonreel/nn/spans.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local fails = require "spec.support.fails"
local nn = require "moonreel.nn"
local spans = require "moonreel.nn.spans"
local volume = require "moonreel.nn.volume"

-- frames 0, 1, ... of one cell with this many channels
local function clip(frames, channels)
  local values = {}
  for i = 0, frames * channels - 1 do
    values[i + 1] = i // channels
  end
  return T.from({ 1, frames, 1, 1, channels }, values)
end

-- the result of nodes for a clip, with weights of their own; options: of the graph
local function result(x, declare, nodes, options)
  local params = G.params "f32"
  local layer = declare(nn.scope(params))
  params:seal()
  local run <close> = E.new(E.device("cpu", 1), params, {})
  run:init(2)
  local g <close> = G.graph(params, options)
  local out = nodes(g, g:input("x", "f32", x.shape), layer)
  g:output("y", out)
  g:finish()
  local prog <close> = run:compile(g)
  prog:set("x", x)
  prog:run()
  return prog:get("y"):reshape { T.count(out.shape) }:totable()
end

local function none() end

describe("pieces of a clip", function()
  it("have the requested number of frames, the last the rest, for any division before", function()
    for _, lengths in ipairs { { 7 }, { 1, 1, 4, 1 }, { 5, 2 } } do
      local seen
      local all = result(clip(7, 1), none, function(_, x)
        local list, at = {}, 0
        for i, n in ipairs(lengths) do
          list[i], at = x:slice(1, at, at + n), at + n
        end
        seen = {}
        list = spans.regrouped(list, 3)
        for i, one in ipairs(list) do
          seen[i] = one.shape[2]
        end
        return spans.joined(list)
      end)
      assert.same({ { 3, 3, 1 }, { 0, 1, 2, 3, 4, 5, 6 } }, { seen, all })
    end
  end)

  it("have at least one frame, and all frames without a limit", function()
    assert.same({ 4, 1, math.maxinteger }, { spans.frames(100, 2, 3, 4), spans.frames(1, 2, 3, 4),
      spans.frames(nil, 2, 3, 4) })
  end)

  for _, step in ipairs { 1, 2 } do
    it(("are convolved with frames before them, in steps of %d"):format(step), function()
      local function declare(scope)
        return volume.Causal(scope, "conv", 2, 3, { stride = { step, 1, 1 } })
      end
      local whole = result(clip(9, 2), declare, function(g, x, layer) return layer(g, x) end)
      for n = 1, 4 do
        local function in_pieces(g, x, layer)
          return spans.joined(spans.all(layer:each(g, spans.regrouped({ x }, n))))
        end
        assert.same(whole, result(clip(9, 2), declare, in_pieces))
        -- the first frame is repeated by address, in sums of f64
        for i, value in ipairs(result(clip(9, 2), declare, in_pieces, { edges = true })) do
          assert.near(whole[i], value, 1e-5)
        end
      end
    end)
  end

  it("have one norm, whose moments have no gradient", function()
    local function declare(scope) return volume.GroupNorm(scope, "norm", 2, 1, 1e-6) end
    local function in_pieces(g, x, layer)
      local list, out = spans.regrouped({ x }, 2), {}
      local normed = layer:by(g, list, true)
      for i, one in ipairs(list) do
        out[i] = normed(one)
      end
      return spans.joined(out)
    end
    local whole = result(clip(5, 2), declare, function(g, x, layer) return layer(g, x, true) end)
    for i, value in ipairs(result(clip(5, 2), declare, in_pieces)) do
      assert.near(whole[i], value, 1e-6)
    end
    fails("MR_E_USAGE", "op 'group_norm_by' has no gradient", result, clip(5, 2), declare,
      function(g, x, layer)
        local y = in_pieces(g, x, layer)
        return g:backward((require("moonreel.core.op").mean(y)), { x })[1]
      end)
  end)
end)
