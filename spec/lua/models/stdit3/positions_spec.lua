local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local positions = require "moonreel.models.stdit3.positions"

describe("models.stdit3.positions", function()
  local function table_of(add)
    local g = G.graph()
    g:output("a", (add(g)))
    g:output("b", (select(2, add(g)) or g:const(T.new("f32", {1}))))
    g:finish()
    local prog = E.new(E.device("cpu", 1), nil, {}):compile(g)
    prog:run()
    return prog:get("a"):totable(), prog:get("b"):totable()
  end

  it("has exact position tables, or those of bf16 sizes and frequencies", function()
    assert.near((480 * 854) ^ 0.5 / 512, positions.scale(480, 854, 512), 1e-12)
    assert.near((480 * 856) ^ 0.5 / 512, positions.scale(480, 854, 512, true), 1e-12)
    for _, rounded in ipairs{false, true} do
      local got = table_of(function(g)
        return positions.table(g, 3, 5, 0.6, 4, 16, rounded)
      end)
      for cell = 0, 14 do
        for k = 0, 3 do
          local f = 10000 ^ (-k / 4)
          f = rounded and nn.round_bf16(f) or f
          local column, row = (cell % 5) / 0.6 * (4 / 5), (cell // 5) / 0.6 * (4 / 3)
          local at = cell * 16 + k + 1
          assert.near(math.sin(column * f), got[at], 1e-5)
          assert.near(math.cos(column * f), got[at + 4], 1e-5)
          assert.near(math.sin(row * f), got[at + 8], 1e-5)
          assert.near(math.cos(row * f), got[at + 12], 1e-5)
        end
      end
    end
  end)

  it("has exact rotations, or those of bf16 frequencies and angles, in bf16", function()
    for _, rounded in ipairs{false, true} do
      local function hold(x) return rounded and nn.round_bf16(x) or x end
      local cos, sin = table_of(function(g) return positions.rotation(g, 40, 6, rounded) end)
      for frame = 0, 39 do
        for k = 0, 2 do
          local angle = hold(frame * hold(10000 ^ (-k / 3)))
          local at = frame * 3 + k + 1
          -- one step of bf16, when the f32 cosine is halfway between two of them
          local tolerance = rounded and 2 ^ -9 or 1e-5
          assert.near(hold(math.cos(angle)), cos[at], tolerance)
          assert.near(hold(math.sin(angle)), sin[at], tolerance)
          assert.is_true(not rounded or cos[at] == nn.round_bf16(cos[at]))
        end
      end
    end
  end)
end)
