local mask = require "moonreel.diffusion.mask"

local function draws(units)
  local i = 0
  return {unit = function() i = i + 1 return units[i] end,
    int = function(lo, hi) assert(lo <= hi) return hi end,
    ratio = function() return 0.5 end, frame = function(f) return f / 10 end}
end

describe("diffusion.mask", function()
  it("clears the frames of a strategy", function()
    local function one(name, T)
      return table.concat(mask.draw(mask.new{{name, 1}}, T, draws{0.3}))
    end
    assert.equal("11111111", one("identity", 8))
    assert.equal("00111111", one("quarter_head", 8))
    assert.equal("11111100", one("quarter_tail", 8))
    assert.equal("00111100", one("quarter_head_tail", 8))
    assert.equal("01111111", one("image_head", 8))
    assert.equal("01111110", one("image_head_tail", 8))
    assert.equal("10101010", one("intepolate", 8))
    assert.equal("00000011", one("random", 8))
  end)

  it("leaves the last frame as noise when all would be cleared", function()
    assert.equal("0001", table.concat(mask.draw(mask.new{{"random", 1}}, 4, draws{0.3})))
  end)

  it("leaves a still and a clip that is too short unchanged", function()
    assert.equal("1", table.concat(mask.draw(mask.new{{"image_head", 1}}, 1, draws{0.3})))
    assert.equal("111", table.concat(mask.draw(mask.new{{"quarter_head", 1}}, 3, draws{0.3})))
  end)

  it("assigns the rest of the probability to identity", function()
    local list = mask.new{{"image_head", 0.25}}
    assert.equal("identity", list[2][1])
    assert.near(0.75, list[2][2], 1e-12)
  end)

  it("orders strategies as the reference does, for the same draws", function()
    local names = { "random", "intepolate", "quarter_random", "quarter_head", "quarter_tail",
      "quarter_head_tail", "image_random", "image_head", "image_tail", "image_head_tail",
      "identity" }
    local map, list = {}, {}
    for i, name in ipairs(names) do
      -- no two have the same probability
      map[name] = i / 66
      list[i] = { name, i / 66 }
    end
    assert.same(list, mask.from_map(map))
    -- a draw selects the strategy whose interval contains it
    local halves = mask.from_map { image_tail = 0.25, image_head = 0.5 }
    local function drawn(u) return table.concat(mask.draw(halves, 4, draws{u})) end
    assert.same({ "0111", "0111", "1110", "1110", "1111" },
      { drawn(0), drawn(0.49), drawn(0.5), drawn(0.74), drawn(0.75) })
    assert.equal("11111110", table.concat(mask.draw(mask.new{{"image_tail", 1}}, 8, draws{0})))
  end)

  it("refuses unknown names and sums above one", function()
    assert.matches("unknown strategy 'tail'", tostring(select(2, pcall(mask.new, {{"tail", 0.1}}))))
    assert.matches("add up to 1.2",
      tostring(select(2, pcall(mask.new, {{"image_head", 0.6}, {"random", 0.6}}))))
  end)

  it("is a pure function of seed, key and epoch, with frequencies near the mapping", function()
    local list, n = mask.new{{"image_head", 0.5}, {"random", 0.1}}, 0
    for key = 1, 2000 do
      local a = table.concat(mask.draw(list, 8, mask.draws(7, key, 0)))
      assert.equal(a, table.concat(mask.draw(list, 8, mask.draws(7, key, 0))))
      if a == "01111111" then
        n = n + 1
      end
    end
    assert.near(1000, n, 100)
  end)
end)
