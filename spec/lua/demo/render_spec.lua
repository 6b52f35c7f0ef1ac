local render = require "datasets.demo.render"
local world = require "datasets.demo.world"

describe("datasets.demo.render", function()
  local scene = { id = 3, colour = "green", shape = "triangle", direction = "up",
    background = "white" }

  it("draws the same bytes from the same seed, others from another", function()
    local first = render.frames(scene, 1, 6, 32, 32)
    assert.equal(6 * 3 * 32 * 32, #first)
    assert.is_true(first == render.frames(scene, 1, 6, 32, 32))
    assert.is_false(first == render.frames(scene, 2, 6, 32, 32))
  end)

  it("keeps the whole shape inside the frame in each clip of the set", function()
    for _, s in ipairs(world.scenes(1, 250, 50)) do
      local p = render.path(s, 1, 32, 32)
      for _, along in ipairs { -0.5, 0.5 } do
        local x, y, half = p.cx + along * p.dx, p.cy + along * p.dy, p.size / 2
        assert.is_true(x - half >= 0 and x + half <= 32 and y - half >= 0 and y + half <= 32)
      end
      assert.is_true(p.size >= 10 and p.size <= 14)
      local travel = math.abs(p.dx) + math.abs(p.dy)
      assert.is_true(s.direction == nil and travel == 0 or travel >= 0.36 * 32
        and travel <= 0.50 * 32)
    end
  end)

  it("can move outwards from the middle, and stays in sight", function()
    for _, s in ipairs(world.scenes(1, 250, 0)) do
      local p = render.path(s, 1, 32, 32)
      local x, y, half = p.cx + 0.7 * p.dx, p.cy + 0.7 * p.dy, p.size / 2
      -- two thirds of it at least
      assert.is_true(x - half / 3 >= 0 and x + half / 3 <= 32 and y - half / 3 >= 0
        and y + half / 3 <= 32)
    end
    local outwards = setmetatable({ outwards = true }, { __index = scene })
    local still = render.frames(scene, 1, 1, 32, 32)
    assert.is_true(still == render.frames(outwards, 1, 6, 32, 32):sub(1, #still))
    assert.is_false(still == render.frames(scene, 1, 6, 32, 32):sub(1, #still))
  end)

  it("blends the edge: a circle covers its area", function()
    local cover = render.coverage("circle", 16.3, 15.6, 6, 32, 32)
    local area, partly = 0, 0
    for _, c in ipairs(cover) do
      area = area + c
      if c > 0 and c < 1 then
        partly = partly + 1
      end
    end
    -- 4 x 4 points per pixel: about one hundredth of the area
    assert.is_true(math.abs(area - math.pi * 36) < 1.2)
    assert.is_true(partly > 20)
  end)

  it("names the unknown word", function()
    local ok, err = pcall(render.frames, { id = 1, colour = "mauve", shape = "circle",
      background = "white" }, 1, 1, 32, 32)
    assert.is_false(ok)
    assert.matches("unknown name 'mauve'", tostring(err))
  end)
end)
