--- The numbers of frames that an autoencoder accepts.
-- Covers: lua/moonreel/codec/lengths.lua lua/moonreel/models/frames.lua
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local lengths = require "moonreel.codec.lengths"

describe("lengths of clips", function()
  -- numbers up to 13 that a rule allows
  local function allowed(rule)
    local list = {}
    for frames = 1, 13 do
      list[#list + 1] = lengths.fits(rule, frames) and frames or nil
    end
    return list
  end

  it("follow a rule", function()
    assert.equal(13, #allowed "any")
    assert.same({ 1, 5, 9, 13 }, allowed "4n+1")
    assert.same({ 1, 4, 8, 12 }, allowed "4n or 1")
    assert.same({ 1 }, allowed "1")
    assert.same({ 2, 5, 8, 11 }, allowed "3n+2")
  end)

  it("are refused with the next length that is allowed", function()
    lengths.check({}, 7)
    lengths.check({ lengths = "4n+1" }, 9)
    fails("MR_E_SHAPE", "a clip of 7 frames: this autoencoder needs 4n%+1 frames; try: 5 frames",
      lengths.check, { lengths = "4n+1" }, 7)
    fails("MR_E_SHAPE", "needs 4n or 1 frames; try: 4 frames", lengths.check,
      { lengths = "4n or 1" }, 3)
    fails("MR_E_SHAPE", "needs 1 frames; try: 1 frames", lengths.check, { lengths = "1" }, 3)
  end)

  it("of buckets are refused with the bucket's line, unless the bucket is empty", function()
    local dir <close> = folder.new()
    local function check(buckets)
      local s = dir:bake('return recipe { vae = { type = "hunyuan_vae" },\nbucket_config = {\n'
        .. buckets .. "} }")
      lengths.check_buckets(s, { lengths = "4n+1" })
    end
    check '["240p"] = { [1] = { 1.0, 4 }, [17] = { { 1.0, 0.5 }, 2 }, [51] = { 0.0, 1 } }'
    fails("MR_E_RECIPE", "main%.lua:3: bucket_config[^:]*: clips have 51 frames, but vae%.type = "
      .. "hunyuan_vae needs 4n%+1; try: 49", check, '["240p"] = { [51] = { 1.0, 1 } }')
  end)
end)
