--- A clip that does not fit is refused with one that does.
-- Covers: lua/moonreel/codec/fits.lua
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local codec = require "moonreel.codec"
local fails = require "spec.support.fails"
local families = require "moonreel.recipe.families"
local fits = require "moonreel.codec.fits"
local hunyuan = require "moonreel.models.hunyuan_vae"
local nn = require "moonreel.nn"

local NONE = { code = "MR_E_MEMORY" }

-- a codec whose jobs need a byte for each pixel of each frame
local function stub(lengths, free)
  return { auto = { lengths = lengths, side = 8 },
    device = { memory = function() return free end },
    bytes = function(_, _, frames, height, width) return frames * height * width end,
    bytes_by = function() end }
end

describe("a clip that does not fit", function()
  local size = { frames = 33, height = 64, width = 96 }

  it("is refused with a length and sides that fit", function()
    fails("MR_E_MEMORY", "decode: 33 frames of 64 x 96 need about 202%.8 kB in addition to the "
      .. "weights, but only 61%.4 kB are free; try: 9 frames, or 32 x 48 pixels$", fits.explain,
      stub("4n+1", 61440), "decode", size, NONE)
    -- of latents alone the sides are given
    fails("MR_E_MEMORY", "encode: 33 frames of 16 x 24 .-; try: 29 frames, or 8 x 16 pixels$",
      fits.explain, stub("4n+1", 12000), "encode", { frames = 33, size = { 4, 9, 2, 3 } }, NONE)
    fails("MR_E_MEMORY", "try: 4 frames, or 8 x 8 pixels$", fits.explain, stub("4n or 1", 2500),
      "decode", { frames = 32, height = 16, width = 24 }, NONE)
    fails("MR_E_MEMORY", "try: more memory$", fits.explain, stub("1", 10), "decode",
      { frames = 1, height = 8, width = 8 }, NONE)
  end)

  it("changes no other errors, and is not reported when it would fit", function()
    for _, case in ipairs { { stub("any", 1), { code = "MR_E_SHAPE" } }, { stub("any", 1), "text" },
        { stub("any", 1e9), NONE }, { { auto = {} }, NONE } } do
      assert.is_nil(fits.explain(case[1], "decode", size, case[2]))
    end
  end)

  it("is planned with programs of its own", function()
    local fields = nn.merged(families.of("vae", "hunyuan_vae"):defaults(),
      { block_out_channels = { 8, 8, 8, 8 }, norm_num_groups = 2, piece_size = 0 })
    local auto = hunyuan.new(nil, fields, { dtype = "f32" })
    local coder <close> = codec.plan({ autoencoder = auto, dtype = "f32",
      config = { vae = {} } }, { facts = E.device("cpu", 1):facts() })
    local z <close> = T.new("f32", { 16, 9, 8, 8 })
    coder.planned = setmetatable({ close = function() end }, { __index = coder })
    coder.device = setmetatable({ facts = E.device("cpu", 1):facts() },
      { __index = { memory = function() return 8e6 end } })
    coder.encoder.run = function() error(NONE, 0) end
    fails("MR_E_MEMORY", "decode: 33 frames of 64 x 64 need about 1%d%.%d MB in addition to the "
      .. "weights, but only 8%.0 MB are free; try: %d frames, or %d+ x %d+ pixels, or 8 ranks "
      .. "with plugin_config_ae%.sp_size = 8$", coder.decode, coder, z, { frames = 33 },
      function() end)
    -- half of the rows needs more than half: rows of neighbours, and results of all
    local whole, half = coder:bytes("decode", 33, 64, 64), coder:bytes_by(2, "decode", 33, 64, 64)
    assert.is_true(half > whole / 2 and half < 0.9 * whole, half .. " of " .. whole)
    assert.is_nil(coder:bytes_by(16, "decode", 33, 64, 64))
  end)
end)
