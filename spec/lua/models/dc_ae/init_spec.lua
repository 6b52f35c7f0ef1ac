--- The video autoencoder DC-AE: sizes of latents, one frame and more, clips in pieces, whole cells,
-- and errors. Reference values of other programs: make golden.
-- MOONREEL_DEVICE names the device.
-- Covers: lua/moonreel/models/dc_ae/init.lua lua/moonreel/models/dc_ae/network.lua
-- lua/moonreel/models/dc_ae/weights.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local codec = require "moonreel.codec"
local dc_ae = require "moonreel.models.dc_ae"
local encoder = require "moonreel.encoder"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local network = require "moonreel.models.dc_ae.network"
local nn = require "moonreel.nn"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local regions = require "moonreel.optim.regions"

local FIELDS = { in_channels = 3, out_channels = 3, latent_channels = 8, widths = { 8, 16, 32 },
  encoder_blocks = { 1, 0, 1 }, decoder_blocks = { 1, 1, 1 }, attention_levels = 1,
  temporal_levels = { 1 }, spatial_tile_size = 16, temporal_tile_size = 8,
  tile_overlap_factor = 0.5, frames_at_once = 64 }

local function made(change, compat)
  return dc_ae.new(nil, nn.merged(FIELDS, change), { dtype = "f32", compat = compat })
end

describe("the video autoencoder DC-AE", function()
  local dir, path

  -- weights of a file
  local function write(name, change)
    local params = G.params "f32"
    network.new(nn.scope(params), made(change).sizes)
    return dir:random_weights(name .. ".safetensors", params:seal(), 0.5)
  end

  setup(function()
    dir = folder.new()
    path = write "ae"
  end)
  teardown(function() dir:remove() end)

  local function open(fields, file)
    return codec.open(file or path, { device = E.device(),
      fields = nn.merged(FIELDS, fields) })
  end

  local function clip(frames, height, width)
    return T.new("f32", { frames, 3, height, width }):fill_normal(1, "clip")
  end

  it("joins frames and cells, and leaves a single frame alone", function()
    local auto = made()
    assert.same({ "2n or 1", 4, 2 }, { auto.lengths, auto.side, auto.step })
    assert.same({ 8, 3, 2, 1 }, auto:latent(6, 8, 4))
    assert.same({ 8, 1, 2, 1 }, auto:latent(1, 8, 4))
    assert.same({ 2, 6, 6, 4 }, { auto:most_frames(1), auto:most_frames(3), auto:head(3),
      auto:tail(8, 2) })
    assert.is_nil(auto.draws)
  end)

  -- latents of pictures, f32
  local function decoded(vae, z, frames, side)
    side = side or 4
    local all = T.new("f32", { frames, 3, side * z.shape[3], side * z.shape[4] })
    vae:decode(z, { frames = frames, height = all.shape[3], width = all.shape[4] },
      function(pictures, first)
        all:slice(0, first, first + pictures.shape[1]):copy_from(pictures)
      end)
    return all
  end

  for _, frames in ipairs { 1, 2, 6 } do
    it(("encodes and decodes %d frames without random numbers"):format(frames), function()
      local vae <close> = open()
      local z = vae:encode(clip(frames, 8, 12))
      assert.same({ 8, (frames + 1) // 2, 2, 3 }, z.shape)
      assert.same(z:totable(), vae:encode(clip(frames, 8, 12)):totable())
      assert.not_same({ 0 }, { decoded(vae, z, frames):slice(0, frames - 1, frames):max() })
    end)
  end

  it("returns all frames of a short clip, and one of them under compat", function()
    local vae <close> = open()
    local z = vae:encode(clip(2, 4, 4))
    local pair, one = decoded(vae, z, 2), decoded(vae, z, 1)
    assert.not_same(pair:slice(0, 0, 1):clone():totable(), one:totable())
    local theirs, params = made({}, true), G.params "f32"
    local net = theirs:parts()[1].declare(params)
    local call = theirs:calls("decode", { frames = 2, height = 4, width = 4,
      size = theirs:latent(2, 4, 4) })[1]
    local g = G.graph(params:seal())
    local y = call.nodes(g, net, { z = g:input("z", "f32", call.takes.z.shape) })
    assert.same({ 1, 1, 1 }, { theirs:most_frames(1), call.gives.out[3], y.shape[1] })
  end)

  -- the largest difference over the largest value
  local function apart(got, want)
    local off = got:clone() - want:clone()
    return math.max(off:max(), -off:min()) / math.max(want:max(), -want:min())
  end

  -- two attentions in a row at two levels, so that sums follow sums
  local DEEPER = { widths = { 4, 8, 32, 32 }, encoder_blocks = { 1, 1, 2, 1 },
    decoder_blocks = { 1, 1, 2, 1 }, attention_levels = 2, temporal_levels = { 1, 2 } }

  describe("in pieces", function()
    local deeper
    setup(function() deeper = write("deeper", DEEPER) end)

    for _, case in ipairs { { 8, 1 }, { 12, 1 }, { 44, 4 }, { 48, 6 }, { 56, 8 } } do
      local frames, most = table.unpack(case)
      it(("of at most %d frames equals a single pass over %d"):format(most, frames), function()
        local x = T.new("f32", { frames, 3, 16, 24 }):fill_normal(1, "clip")
        local vae <close> = open(DEEPER, deeper)
        assert.equal(1, #vae.auto:calls("encode", { frames = frames, height = 16, width = 24,
          dtype = "f32", size = vae.auto:latent(frames, 16, 24) }))
        local z = vae:encode(x)
        local y = decoded(vae, z, frames, 8)
        local parts <close> = open(nn.merged(DEEPER, { frames_at_once = most }), deeper)
        assert.is_true(#parts.auto:calls("encode", { frames = frames, height = 16, width = 24,
          dtype = "f32", size = parts.auto:latent(frames, 16, 24) }) > 10)
        assert.is_true(apart(parts:encode(x), z) < 1e-5)
        assert.is_true(apart(decoded(parts, z, frames, 8), y) < 1e-5)
      end)
    end

    it("decodes in pieces without a given size, two sizes with one codec", function()
      local parts <close> = open(nn.merged(DEEPER, { frames_at_once = 4 }), deeper)
      local whole <close> = open(nn.merged(DEEPER, { frames_at_once = 0 }), deeper)
      for _, side in ipairs { 16, 32 } do
        local z = whole:encode(clip(32, side, side))
        -- a number of 8 bits may be rounded differently
        assert.is_true(apart(parts:decode(z):to "f32", whole:decode(z):to "f32") < 0.01)
      end
    end)

    it("needs no more memory for a longer clip, except for what it keeps between sweeps", function()
      local function bytes(frames)
        local parts <close> = open(nn.merged(DEEPER, { frames_at_once = 4 }), deeper)
        local encode, decode = parts:encoders(frames, 16, 24), parts:decoders(frames, 16, 24)
        return { encoder.working_bytes(encode), encoder.working_bytes(decode) }, encode.kept
      end
      local few, kept = bytes(32)
      local many, more = bytes(128)
      assert.same(few, many)
      -- f32 of 32 channels of 4 x 6 cells for every two frames
      assert.equal((128 - 32) // 2 * 4 * 6 * 32 * 4, more - kept)
    end)

    it("have frames_at_once = 0 as the other form, and the reverse", function()
      local other, said = made({ frames_at_once = 4 }):other()
      assert.same({ "frames_at_once = 0", 0 }, { said, other.at_once })
      assert.equal(1, #other:calls("encode", { frames = 512, height = 4, width = 4, dtype = "f32",
        size = other:latent(512, 4, 4) }))
      assert.same({ 8, "frames_at_once = 8" }, { other:other().at_once,
        (select(2, other:other())) })
    end)
  end)

  it("divides latents by their factor", function()
    local plain <close> = open()
    local scaled <close> = open { scaling_factor = 0.5 }
    local a, b = plain:encode(clip(1, 4, 4)):totable(), scaled:encode(clip(1, 4, 4))
    for i, value in ipairs(b:totable()) do
      assert.equal(2 * a[i], value)
    end
    assert.same(plain:decode(plain:encode(clip(1, 4, 4))):totable(), scaled:decode(b):totable())
  end)

  it("uses the reference's tiles under compat only", function()
    local fields = { use_spatial_tiling = true, use_temporal_tiling = true }
    assert.same({ encode = {}, decode = {} }, made(fields).tiles)
    local theirs = made(fields, true)
    local how = theirs.tiles
    -- under compat there is no other form for any length
    assert.is_false(theirs.other)
    assert.equal(1, #theirs:calls("encode", { frames = 512, height = 4, width = 4, dtype = "f32",
      size = theirs:latent(512, 4, 4) }))
    assert.same({ tile = 16, step = 8, blend = 2, keep = 2, more = 0 }, how.encode.space)
    assert.same({ tile = 4, step = 2, blend = 4, keep = 4, more = 0 }, how.decode.time)
  end)

  it("reports what does not fit", function()
    local vae <close> = open()
    fails("MR_E_SHAPE", "a clip of 3 frames: this autoencoder needs 2n or 1 frames; try: 2 frames",
      vae.encode, vae, clip(3, 4, 4))
    fails("MR_E_SHAPE", "pictures of 6 x 9: this autoencoder needs multiples of 4; try: 4 x 8",
      vae.encode, vae, clip(1, 6, 9))
    fails("MR_E_CKPT", "latent_channels is 4 in the recipe, but 'encoder%.project_out.*' is "
      .. "%[8,32,3,3,3%]: its axis 0 has 8; try: latent_channels = 8", open,
      { latent_channels = 4 })
    fails("MR_E_CKPT", "%d+ tensors are missing", open, { encoder_blocks = { 1, 1, 1 } })
    for text, change in pairs {
      ["encoder_blocks has 2 entries; expected one for each of the 3 widths"] =
        { encoder_blocks = { 1, 1 } },
      ["widths%[2%] is 16; expected a multiple of 32.*; try: 32"] = { widths = { 8, 16, 16 } },
      ["widths%[0%] and widths%[1%] are 8 and 48; expected four times"] =
        { widths = { 8, 48, 32 } },
      ["temporal_levels has 1 twice; expected levels from 0 to 1, each once"] =
        { temporal_levels = { 1, 1 } },
      ["temporal_levels has 2; expected levels from 0 to 1"] = { temporal_levels = { 2 } },
      ["latent_channels is 5; expected a divisor of the last width, 32; try: 32"] =
        { latent_channels = 5 },
    } do
      fails("MR_E_RECIPE", text, made, change)
    end
  end)

  it("keeps gradients of queries near zero as small in bf16 as in f32", function()
    local function largest(dtype)
      local pipe = pipeline.new({ losses = { perceptual_loss_weight = 0 }, model = { type = "dc_ae",
        in_channels = 3, out_channels = 3, latent_channels = 32, widths = { 32 },
        encoder_blocks = { 1 }, decoder_blocks = { 0 }, attention_levels = 1,
        temporal_levels = {}, frames_at_once = 0 } }, dtype)
      local run = E.new(E.device("cpu", 1), pipe.params, { regions = regions.gradients() })
      run:init(3)
      -- one query of a head is almost zero, and all others are negative
      local name = "encoder.stages.0.op_list.0.context_module.main.qkv.conv.weight"
      local rows = run:param("w", name):reshape { 96, 32 }:totable()
      local row = table.move(rows, 1, 32, 1, {})
      for i = 1, 32 do
        for k = 1, 32 do
          rows[(i - 1) * 32 + k] = row[k] * (i == 1 and 1e-7 or -1)
        end
      end
      run:set_param("w", name, T.from({ 96, 32, 1, 1, 1 }, rows))
      local step = program.new(run, pipe, { frames = 1, height = 8, width = 8, batch = 1,
        text = 0 }, { fresh = true })
      local pixels = {}
      for i = 1, 3 * 64 do
        pixels[i] = i * 37 % 256
      end
      step:run { pixels = T.from({ 1, 1, 3, 8, 8 }, pixels, "u8"), keys = { 1 }, seed = 5,
        epoch = 0, weight = { 1 } }
      local grad = run:param("grad", name):reshape { 96, 32 }:slice(0, 0, 1)
      return math.max(grad:max(), -grad:min())
    end
    local exact = largest "f32"
    assert.is_true(exact > 1 and largest "bf16" < 2 * exact, largest "bf16")
  end)
end)
