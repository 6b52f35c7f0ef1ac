local world = require "datasets.demo.world"

describe("datasets.demo.world", function()
  local scenes = world.scenes(1, 250, 50)

  local function key(triple) return table.concat(triple, " ") end

  it("makes the same scenes from the same seed, others from another", function()
    assert.same(scenes, world.scenes(1, 250, 50))
    assert.is_not.same(scenes, world.scenes(2, 250, 50))
  end)

  it("has no held-out triple in training, and all others three times or more", function()
    local count = {}
    for _, scene in ipairs(scenes) do
      if scene.direction then
        local k = key { scene.colour, scene.shape, scene.direction }
        count[k] = (count[k] or 0) + 1
      end
    end
    for _, triple in ipairs(world.held_out) do
      assert.is_nil(count[key(triple)])
    end
    local triples = 0
    for _, n in pairs(count) do
      triples = triples + 1
      assert.is_true(n >= 3)
    end
    assert.equal(#world.colours * #world.shapes * #world.directions - #world.held_out, triples)
    for _, triple in ipairs(world.seen) do
      assert.is_true(count[key(triple)] >= 3)
    end
  end)

  it("has each pair of words of a held-out triple in training", function()
    for _, t in ipairs(world.held_out) do
      local pairs_seen = {}
      for _, s in ipairs(scenes) do
        if s.colour == t[1] and s.shape == t[2] then
          pairs_seen.colour_shape = true
        end
        if s.colour == t[1] and s.direction == t[3] then
          pairs_seen.colour_direction = true
        end
        if s.shape == t[2] and s.direction == t[3] then
          pairs_seen.shape_direction = true
        end
      end
      assert.same({ colour_shape = true, colour_direction = true, shape_direction = true },
        pairs_seen)
    end
  end)

  it("asks for eight different triples on each side, two for each direction", function()
    for _, list in ipairs { world.held_out, world.seen } do
      local distinct, per_direction = {}, {}
      for _, t in ipairs(list) do
        distinct[key(t)] = true
        per_direction[t[3]] = (per_direction[t[3]] or 0) + 1
      end
      local n = 0
      for _ in pairs(distinct) do
        n = n + 1
      end
      assert.equal(8, n)
      assert.same({ right = 2, left = 2, up = 2, down = 2 }, per_direction)
    end
  end)

  it("writes captions that name all that is shown, in at most 56 bytes", function()
    for _, scene in ipairs(scenes) do
      assert.is_true(#scene.text <= 56, scene.text)
      for _, word in ipairs { scene.colour, scene.shape, scene.background, scene.direction } do
        assert.matches(word, scene.text, 1, true)
      end
    end
  end)

  it("spreads backgrounds and directions evenly", function()
    local backgrounds, directions = {}, {}
    for _, s in ipairs(scenes) do
      backgrounds[s.background] = (backgrounds[s.background] or 0) + 1
      if s.direction then
        directions[s.direction] = (directions[s.direction] or 0) + 1
      end
    end
    for _, n in pairs(backgrounds) do
      assert.is_true(math.abs(n - 100) <= 10)
    end
    for _, n in pairs(directions) do
      assert.is_true(math.abs(n - 62) <= 6)
    end
  end)
end)
