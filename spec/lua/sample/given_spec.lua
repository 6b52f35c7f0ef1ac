--- The frames that a condition takes from references, and where it puts them.
-- Covers: lua/moonreel/sample/given.lua
local T = require "moonreel.core.tensor"
local fails = require "spec.support.fails"
local given = require "moonreel.sample.given"

-- clips whose frames have a single value: 10 i + f
local function clip(i, frames)
  local bytes = {}
  for f = 0, frames - 1 do
    bytes[f + 1] = string.char(10 * i + f):rep(3 * 4)
  end
  return { frames = frames, height = 2, width = 2, pixels = table.concat(bytes) }
end

-- an autoencoder whose latent frames are the first frame of each group
local function codec_of(step, causal)
  return { auto = { step = step, grouped = not causal,
    latent = function(_, frames) return { 1, (frames - 1) // step + 1, 1, 1 } end },
    noise = function() end,
    encode = function(_, pixels)
      local n = (pixels.shape[1] - 1) // step + 1
      local z = T.new("f32", { 1, n, 1, 1 })
      for t = 0, n - 1 do
        local f = t * step - (causal and t > 0 and step - 1 or 0)
        z:slice(1, t, t + 1):copy_from(T.new("f32", { 1, 1, 1, 1 })
          + pixels:slice(0, f, f + 1):clone():totable()[1])
      end
      return z
    end }
end

-- "at: first value < last value" of each part
local function text(codec, kind, frames, clips, causal)
  local r = { kind = kind, frames = frames, height = 2, width = 2, causal = causal }
  local out = {}
  for i, part in ipairs(given.read(codec, { paths = clips, seed = 1 }, r)) do
    local z = part.z:totable()
    out[i] = ("%d: %d < %d"):format(part.at, z[1], z[#z])
  end
  return table.concat(out, ", ")
end

describe("given frames", function()
  local one, two = clip(1, 3), clip(5, 4)

  it("are the first of the first picture or clip and the last of the last", function()
    local codec = codec_of(4, true)
    assert.equal("0: 10 < 10", text(codec, "i2v_head", 9, { one, two }))
    assert.equal("2: 53 < 53", text(codec, "i2v_tail", 9, { one, two }))
    assert.equal("0: 10 < 10, 2: 53 < 53", text(codec, "i2v_loop", 9, { one, two }))
    assert.equal("0: 10 < 10, 2: 12 < 12", text(codec, "i2v_loop", 9, { one }))
    assert.equal("", text(codec, "t2v", 9, {}))
    fails("MR_E_USAGE", "sampling.cond_type = t2v uses no references, but prompt 'a' has one, "
      .. "a.png; try: %-%-cond%-type i2v_head", given.read, codec, { paths = { "a.png" },
      prompt = "a" }, { kind = "t2v", frames = 9, height = 2, width = 2 })
  end)

  it("are as many frames at one end of the first clip as the autoencoder needs", function()
    local long = clip(1, 40)
    assert.equal("0: 10 < 39", text(codec_of(4, true), "v2v_head", 41, { long, two }))
    assert.equal("2: 17 < 46", text(codec_of(4, true), "v2v_tail", 41, { long, two }))
    assert.equal("0: 10 < 38", text(codec_of(4, false), "v2v_head", 40, { long }))
    assert.equal("2: 18 < 46", text(codec_of(4, false), "v2v_tail", 40, { long }))
  end)

  it("cut off the copies that an autoencoder that is not causal makes of one frame", function()
    local function hidden(kind, causal, believed)
      return { given.copies(codec_of(4, causal).auto, { kind = kind, frames = 12, height = 2,
        width = 2, causal = believed }) }
    end
    assert.same({ 0, 0 }, hidden("i2v_loop", true))
    assert.same({ 3, 0 }, hidden("i2v_head", false))
    assert.same({ 0, 3 }, hidden("i2v_tail", false))
    assert.same({ 3, 3 }, hidden("i2v_loop", false))
    assert.same({ 0, 0 }, hidden("v2v_head", true))
    assert.same({ 0, 0 }, hidden("t2v", false))
    assert.same({ 0, 0 }, hidden("i2v_loop", false, true))
  end)
end)
