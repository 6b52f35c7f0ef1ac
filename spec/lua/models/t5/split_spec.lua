--- Ranks that share the layers of a T5 compute the features of one rank, with all weights in memory
-- and block by block, and send the bytes of the table of splits.
-- MOONREEL_DEVICE names the device.
-- Covers: lua/moonreel/models/t5/network.lua lua/moonreel/models/t5/init.lua
--   lua/moonreel/models/features.lua lua/moonreel/embed/source.lua
local folder = require "spec.support.folder"
local rank_cases = require "spec.support.rank_cases"
local weights = require "datasets.demo.weights"

-- A case has ranks, residency, effect of padding, positions of a text, captions. Its numbers are
-- the error of features, bytes sent, bytes of weights.
local CASES = [[
local cases, embed, split = require "spec.support.rank_cases", require "moonreel.embed",
  require "moonreel.nn.split"
local t5 = require "moonreel.models.t5"
local captions = { "a red circle moving right on a black background and a blue square moving up",
  "a green", "a red square" }

cases.run(function(ranks) return ranks end, function(at, ranks, residency, padding, L, n)
  local function encoded(by)
    local text = t5.new(nil, { from_pretrained = arg[2], model_max_length = L,
      residency = residency, padding = padding }, { dtype = "f32" })
    text:share_layers(by)
    at.world:reset_counts()
    local embedder <close> = embed.new(text, at.device)
    assert(embedder.residency == residency and text.split == by)
    return embedder:tokens(table.move(captions, 1, n, 1, {})).y, embedder.encoder:weight_bytes()
  end
  local want, all_bytes = encoded(split.none)
  local got, bytes = encoded(split.new { ranks = ranks, at = at.group:rank(), comm = at.group })
  return { cases.norm(got - want) / cases.norm(want),
    cases.sent(at.world:counts(), "all_to_all", "all_gather"), bytes, all_bytes }
end)
]]

local LIST = [[
by 2: 2 all skip 64 3
by 4: 4 all skip 64 3
by 4, few places: 4 all attend 6 1
by 2, padded: 2 all attend 30 1
by 2, block by block: 2 stream skip 64 3
by 4, block by block, uneven: 4 stream attend 30 2
]]
local WIDTH <const> = 4

describe("ranks that share layers of T5", function()
  local dir, done, rows
  setup(function()
    local path
    dir, path = folder.around(weights.t5, 1)
    done, rows = rank_cases.start(dir, CASES, LIST, nil, path)
  end)
  teardown(function() dir:remove() end)

  for name, rest in LIST:gmatch "([^\n]+): ([^\n]+)\n" do
    it("compute the features of one rank: " .. name, function()
      assert.equal(0, done.exit, done.output)
      local ranks = tonumber(rest:match "%d")
      assert.equal(ranks * WIDTH, #rows[name], done.output)
      for at = 1, #rows[name], WIDTH do
        local off, _, bytes, all = table.unpack(rows[name], at, at + WIDTH - 1)
        assert.is_true(off <= 1e-5, "off by " .. off)
        assert.is_true(bytes < 1.1 * all / ranks, bytes)
      end
    end)
  end

  it("send two sums of all tokens in a layer", function()
    -- 30 positions, 32 wide, through 3 layers: each of two ranks sends half of them to add up and
    -- half to gather, and gathers after the last layer
    local half, all = 15 * 32 * 4, rows["by 2, padded"]
    assert.same({ (3 * 2 * 2 + 1) * half, (3 * 2 * 2 + 1) * half }, { all[2], all[WIDTH + 2] })
  end)
end)
