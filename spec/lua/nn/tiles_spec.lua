--- Tiles: parts that are equal in all tiles stay unchanged, neighbours are blended, and sizes are
-- whole. Reference values of other programs: make golden (hunyuan_*, tiled).
-- Covers: lua/moonreel/nn/tiles.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ops = require "moonreel.core.op"
local tiles = require "moonreel.nn.tiles"

describe("tiles", function()
  -- layers over the tiles of a clip [1, t, h, w, 1]; also the sizes of the tiles
  local function through(shape, how, layers)
    local params = G.params("f32"):seal()
    local run <close>, g, seen = E.new(E.device("cpu", 1), params, {}), G.graph(params), {}
    local x = T.new("f32", { 1, shape[1], shape[2], shape[3], 1 }):fill_normal(1, "clip")
    local y = tiles.through(g, g:input("x", "f32", x.shape), how, function(tile)
      seen[#seen + 1] = table.concat(tile.shape, "x", 2, 4)
      return layers(tile, #seen)
    end)
    g:output("y", ops.copy(y))
    g:finish()
    local prog = run:compile(g)
    prog:set("x", x)
    prog:run()
    return prog:get "y", x, seen
  end

  local function same(tile) return tile end

  local SPACE <const> = { tile = 4, step = 3, blend = 1, keep = 3, more = 0 }
  local TIME <const> = { tile = 4, step = 3, blend = 1, keep = 3, more = 1 }

  it("restore the clip that they were cut from", function()
    local y, x, seen = through({ 1, 7, 5 }, { space = SPACE }, same)
    assert.same(x.shape, y.shape)
    for i, value in ipairs(x:totable()) do
      assert.near(value, y:totable()[i], 1e-6)
    end
    assert.equal("1x4x4 1x4x2 1x4x4 1x4x2 1x1x4 1x1x2", table.concat(seen, " "))
    y, x, seen = through({ 9, 2, 2 }, { space = SPACE, time = TIME }, same)
    assert.same(x.shape, y.shape)
    for i, value in ipairs(x:totable()) do
      assert.near(value, y:totable()[i], 1e-6)
    end
    assert.equal("5x2x2 5x2x2 3x2x2", table.concat(seen, " "))
  end)

  it("leave a clip unchanged that is no larger than a tile", function()
    local _, _, seen = through({ 4, 4, 4 }, { space = SPACE, time = TIME }, same)
    assert.equal("4x4x4", table.concat(seen, " "))
    _, _, seen = through({ 9, 9, 9 }, {}, same)
    assert.equal("9x9x9", table.concat(seen, " "))
  end)

  it("are blended from one to the next", function()
    -- the n-th tile has the value n everywhere
    local how = { space = { tile = 4, step = 2, blend = 2, keep = 2, more = 0 } }
    local y = through({ 1, 1, 6 }, how, function(tile, n)
      return (ops.affine(tile, { scale = 0, shift = n }))
    end)
    assert.same({ 1, 1, 1, 1.5, 2, 2.5 }, y:totable())
  end)
end)
