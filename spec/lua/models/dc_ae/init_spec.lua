--- The video DC-AE: sizes of latents, one frame and more, whole cells, and what does not fit.
-- Numbers of other programs: make golden.
-- Covers: lua/moonreel/models/dc_ae/init.lua lua/moonreel/models/dc_ae/network.lua
-- lua/moonreel/models/dc_ae/weights.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local dc_ae = require "moonreel.models.dc_ae"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local network = require "moonreel.models.dc_ae.network"
local nn = require "moonreel.nn"

local FIELDS = { in_channels = 3, out_channels = 3, latent_channels = 8, widths = { 8, 16, 32 },
  encoder_blocks = { 1, 0, 1 }, decoder_blocks = { 1, 1, 1 }, attention_levels = 1,
  temporal_levels = { 1 }, spatial_tile_size = 16, temporal_tile_size = 8,
  tile_overlap_factor = 0.5 }

local function made(change, compat)
  return dc_ae.new(nil, nn.merged(FIELDS, change), { dtype = "f32", compat = compat })
end

describe("the video DC-AE", function()
  local dir, path
  setup(function()
    dir = folder.new()
    path = dir.path .. "/ae.safetensors"
    local params, rows = G.params "f32", {}
    network.new(nn.scope(params), made().sizes)
    params:seal()
    for i, p in ipairs(params:list()) do
      local fan = T.count(p.shape) / p.shape[1]
      local values = (T.new("f32", p.shape):fill_normal(i, "w") * (#p.shape > 1 and fan ^ -0.5
        or 0.5)):bytes()
      rows[i] = { name = p.name, dtype = "f32", shape = p.shape, ptr = values, bytes = #values }
    end
    ckpt.write(path, rows)
  end)
  teardown(function() dir:remove() end)

  local function open(fields)
    return codec.open(path, { device = E.device("cpu", 1), fields = nn.merged(FIELDS, fields) })
  end

  local function clip(frames, height, width)
    return T.new("f32", { frames, 3, height, width }):fill_normal(1, "clip")
  end

  it("joins frames and cells, and leaves one frame alone", function()
    local auto = made()
    assert.same({ "2n+4 or 1", 4, 2 }, { auto.lengths, auto.side, auto.step })
    assert.same({ 8, 3, 2, 1 }, auto:latent(6, 8, 4))
    assert.same({ 8, 1, 2, 1 }, auto:latent(1, 8, 4))
    assert.same({ 1, 6, 6, 4 }, { auto:most_frames(1), auto:most_frames(3), auto:head(3),
      auto:tail(8, 2) })
    assert.is_nil(auto.draws)
  end)

  for _, frames in ipairs { 1, 6 } do
    it(("encodes and decodes %d frames without a draw"):format(frames), function()
      local vae <close> = open()
      local z = vae:encode(clip(frames, 8, 12))
      assert.same({ 8, frames == 1 and 1 or 3, 2, 3 }, z.shape)
      assert.same(z:totable(), vae:encode(clip(frames, 8, 12)):totable())
      local seen
      vae:decode(z, { frames = frames, height = 8, width = 12 }, function(pictures, first)
        seen = { first, table.unpack(pictures.shape) }
      end)
      assert.same({ 0, frames, 3, 8, 12 }, seen)
    end)
  end

  it("divides latents by their factor", function()
    local plain <close> = open()
    local scaled <close> = open { scaling_factor = 0.5 }
    local a, b = plain:encode(clip(1, 4, 4)):totable(), scaled:encode(clip(1, 4, 4))
    for i, value in ipairs(b:totable()) do
      assert.equal(2 * a[i], value)
    end
    assert.same(plain:decode(plain:encode(clip(1, 4, 4))):totable(), scaled:decode(b):totable())
  end)

  it("works in the reference's tiles under compat alone", function()
    local fields = { use_spatial_tiling = true, use_temporal_tiling = true }
    assert.same({ encode = {}, decode = {} }, made(fields).tiles)
    local how = made(fields, true).tiles
    assert.same({ tile = 16, step = 8, blend = 2, keep = 2, more = 0 }, how.encode.space)
    assert.same({ tile = 4, step = 2, blend = 4, keep = 4, more = 0 }, how.decode.time)
  end)

  it("says what does not fit", function()
    local vae <close> = open()
    fails("MR_E_SHAPE", "a clip of 2 frames: this autoencoder takes 2n%+4 or 1; try: 1 frames",
      vae.encode, vae, clip(2, 4, 4))
    fails("MR_E_SHAPE", "pictures of 6 x 9: this autoencoder takes multiples of 4; try: 4 x 8",
      vae.encode, vae, clip(1, 6, 9))
    fails("MR_E_CKPT", "latent_channels is 4 in the recipe, but 'encoder%.project_out.*' is "
      .. "%[8,32,3,3,3%]: its axis 0 has 8", open, { latent_channels = 4 })
    fails("MR_E_CKPT", "%d+ tensors are missing", open, { encoder_blocks = { 1, 1, 1 } })
    for text, change in pairs {
      ["encoder_blocks has 2 entries; expected one for each of the 3 widths"] =
        { encoder_blocks = { 1, 1 } },
      ["widths%[2%] is 16; expected a multiple of 32"] = { widths = { 8, 16, 16 } },
      ["widths%[0%] and widths%[1%] are 8 and 48; expected that four times"] =
        { widths = { 8, 48, 32 } },
      ["latent_channels is 5; expected a divisor of the last width, 32"] =
        { latent_channels = 5 },
    } do
      fails("MR_E_RECIPE", text, made, change)
    end
  end)
end)
