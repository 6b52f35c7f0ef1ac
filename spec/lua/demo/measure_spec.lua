local measure = require "datasets.demo.measure"
local render = require "datasets.demo.render"
local world = require "datasets.demo.world"

-- each byte changed by up to `strength`, by a hash of its position
local function noisy(pixels, strength, seed)
  local out = {}
  for i = 1, #pixels do
    local v = pixels:byte(i) + (world.draw(seed, "noise", i) * 2 - 1) * strength
    out[i] = string.char(math.max(0, math.min(255, math.floor(v + 0.5))))
  end
  return table.concat(out)
end

describe("datasets.demo.measure", function()
  local scenes = world.scenes(1, 250, 50)

  it("finds colour and direction of each rendered clip; a still has no direction", function()
    for _, s in ipairs(scenes) do
      local T = s.direction and 6 or 1
      local found = assert(measure.find(render.frames(s, 1, T, 32, 32), T, 32, 32))
      assert.same({ s.colour, s.direction }, { found.colour, found.direction }, s.text)
    end
  end)

  it("finds them under noise of 40 levels", function()
    for i = 1, #scenes, 20 do
      local s = scenes[i]
      local T = s.direction and 6 or 1
      local found = assert(measure.find(noisy(render.frames(s, 1, T, 32, 32), 40, 1), T, 32, 32))
      assert.same({ s.colour, s.direction }, { found.colour, found.direction }, s.text)
    end
  end)

  it("works at other sizes, aspects and lengths", function()
    for _, size in ipairs { { 4, 32, 48 }, { 12, 48, 32 }, { 3, 64, 64 } } do
      for i = 1, 40, 13 do
        local T, H, W = table.unpack(size)
        local found = assert(measure.find(render.frames(scenes[i], 1, T, H, W), T, H, W))
        assert.same({ scenes[i].colour, scenes[i].direction }, { found.colour, found.direction })
      end
    end
  end)

  it("finds nothing in noise and in an empty frame", function()
    local empty = string.rep("\128", 6 * 3 * 32 * 32)
    local found, why = measure.find(empty, 6, 32, 32)
    assert.is_nil(found)
    assert.matches("in 0 of 6 frames", why)
    found = measure.find(noisy(empty, 128, 7), 6, 32, 32)
    assert.is_true(found == nil or found.direction == nil)
  end)

  it("finds no direction for a shape that rests, jumps back and forth or moves diagonally",
    function()
    local function clip(places)
      local s = { id = 1, colour = "red", shape = "square", background = "black" }
      local frames = {}
      for i, place in ipairs(places) do
        local cover = render.coverage("square", place[1], place[2], 6, 32, 32)
        local path = render.path(s, 1, 32, 32)
        local bytes = {}
        for c = 1, 3 do
          for k = 1, #cover do
            bytes[#bytes + 1] =
              string.char(math.floor(path.background[c] * (1 - cover[k])
              + path.colour[c] * cover[k]))
          end
        end
        frames[i] = table.concat(bytes)
      end
      return table.concat(frames), #places
    end
    for _, places in ipairs {
      { { 16, 16 }, { 16, 16 }, { 16, 16 }, { 16, 16 } },
      { { 10, 16 }, { 22, 16 }, { 22, 16 }, { 10, 16 } },
      { { 10, 10 }, { 14, 14 }, { 18, 18 }, { 22, 22 } },
    } do
      local pixels, T = clip(places)
      local found = assert(measure.find(pixels, T, 32, 32))
      assert.equal("red", found.colour)
      assert.is_nil(found.direction)
    end
  end)

  it("finds no colour in greys, and names the six hues", function()
    assert.is_nil(measure.colour_name(120, 128, 131))
    for _, row in ipairs(world.colours) do
      assert.equal(row[1], measure.colour_name(table.unpack(row[2])))
    end
  end)

  it("reports which size it expected", function()
    local ok, err = pcall(measure.find, "abc", 6, 32, 32)
    assert.is_false(ok)
    assert.matches("3 bytes, expected 18432", err)
  end)
end)
