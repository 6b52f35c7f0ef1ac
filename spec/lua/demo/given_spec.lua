--- Questions to a model that gets a first frame.
-- Covers: datasets/demo/given.lua
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local given = require "datasets.demo.given"
local measure = require "datasets.demo.measure"
local render = require "datasets.demo.render"
local world = require "datasets.demo.world"

describe("datasets.demo.given", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  it("asks for held-out directions, other frames with the same words, and other words",
    function()
    local by_set = {}
    for _, row in ipairs(given.questions(dir.path .. "/frames", 32, 32)) do
      by_set[row.set] = by_set[row.set] or {}
      table.insert(by_set[row.set], row)
    end
    for i, triple in ipairs(world.held_out) do
      local plain, frame, text = by_set["held-out"][i], by_set["other frame"][i],
        by_set["other text"][i]
      assert.same({ triple[1], triple[3] }, { plain.asked.colour, plain.asked.direction })
      assert.equal(plain.prompt, frame.prompt)
      assert.are_not.equal(plain.asked.colour, frame.asked.colour)
      assert.are_not.equal(plain.reference, frame.reference)
      assert.equal(plain.reference, text.reference)
      assert.are_not.equal(plain.asked.direction, text.asked.direction)
      assert.equal("it moves " .. text.asked.direction, text.prompt)
      -- no word but the direction
      assert.is_nil(plain.prompt:find(triple[1], 1, true) or plain.prompt:find(triple[2], 1, true))
    end
    assert.equal(8, #by_set["other text"])
  end)

  it("makes frames that show the colour, but no direction", function()
    for _, row in ipairs(given.questions(dir.path .. "/frames", 32, 32)) do
      local pixels = data.decode(row.reference)
      local found = measure.find(pixels:rep(2), 2, 32, 32)
      assert.equal(row.asked.colour, found.colour)
      -- a clip that moves outwards begins with the same picture
      local scene = setmetatable({ id = 1, outwards = true }, { __index = row.asked })
      local clip = render.frames(scene, 5, 6, 32, 32)
      assert.equal(row.asked.direction, measure.find(clip, 6, 32, 32).direction)
      scene.direction = world.directions[1][1]
      local other = setmetatable({ direction = world.directions[2][1] }, { __index = scene })
      assert.equal(render.frames(scene, 5, 6, 32, 32):sub(1, 3072),
        render.frames(other, 5, 6, 32, 32):sub(1, 3072))
    end
  end)
end)
