--- The Hunyuan video autoencoder: sizes of latents, factors of levels, tiles, and errors. Reference
-- values of other programs: make golden.
-- Covers: lua/moonreel/models/hunyuan_vae/init.lua lua/moonreel/models/hunyuan_vae/network.lua
-- lua/moonreel/models/hunyuan_vae/weights.lua lua/moonreel/models/latents.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local codec = require "moonreel.codec"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local hunyuan = require "moonreel.models.hunyuan_vae"
local network = require "moonreel.models.hunyuan_vae.network"
local nn = require "moonreel.nn"

local EQUAL = 1e-5 -- sums of f32 in another order, relative to the largest number

local FIELDS = { in_channels = 3, out_channels = 3, latent_channels = 4,
  block_out_channels = { 4, 4, 8, 8 }, layers_per_block = 1, norm_num_groups = 2,
  time_compression_ratio = 4, spatial_compression_ratio = 8, mid_block_add_attention = true,
  scale_factor = 0.5, shift_factor = 0.1, piece_size = 0 }

local function made(change)
  return hunyuan.new(nil, nn.merged(FIELDS, change), { dtype = "f32" })
end

describe("the Hunyuan video autoencoder", function()
  local dir, path
  setup(function()
    dir = folder.new()
    local params = G.params "f32"
    network.new(nn.scope(params), FIELDS)
    path = dir:random_weights("vae.safetensors", params:seal(), 0.1)
  end)
  teardown(function() dir:remove() end)

  local function open(fields)
    return codec.open(path, { device = E.device("cpu", 1), fields = nn.merged(FIELDS, fields) })
  end

  local function clip(frames, height, width)
    return T.new("f32", { frames, 3, height, width }):fill_normal(1, "clip")
  end

  it("has a latent frame for the first frame and each four later, and whole cells", function()
    local auto = made()
    assert.same({ 4, 1, 1, 1 }, auto:latent(1, 1, 8))
    assert.same({ 4, 3, 3, 2 }, auto:latent(9, 17, 16))
    assert.same({ 9, 5, 9, 7 }, { auto:most_frames(3), auto:head(2), auto:tail(33, 3),
      auto:tail(7, 3) })
    assert.equal("4n+1", auto.lengths)
  end)

  it("halves space in the first levels and time in the last", function()
    local function factors(levels, time, space)
      local widths, out = {}, {}
      for i = 1, levels do
        widths[i] = 4
      end
      for i, by in ipairs(network.factors { block_out_channels = widths,
          time_compression_ratio = time, spatial_compression_ratio = space }) do
        out[i] = table.concat(by)
      end
      return table.concat(out, " ")
    end
    assert.equal("122 222 222 111", factors(4, 4, 8))
    assert.equal("222 222 222 111", factors(4, 8, 8))
  end)

  for _, frames in ipairs { 1, 5 } do
    it(("encodes and decodes %d frames of odd sizes"):format(frames), function()
      local vae <close> = open()
      local z = vae:encode(clip(frames, 18, 9))
      assert.same({ 4, (frames - 1) // 4 + 1, 3, 2 }, z.shape)
      local seen
      vae:decode(z, { frames = frames, height = 18, width = 9 }, function(pictures, first)
        seen = { first, table.unpack(pictures.shape) }
      end)
      assert.same({ 0, frames, 3, 24, 16 }, seen)
    end)
  end

  it("draws random numbers once, for all latents", function()
    local vae <close> = open()
    local noise = vae:noise(5, 16, 8, 7)
    assert.same({ 2, 4, 2, 1 }, noise.clip.shape)
    local pixels = clip(5, 16, 8)
    local still = { clip = T.new("f32", noise.clip.shape) }
    local mean, drawn = vae:encode(pixels, still):totable(), vae:encode(pixels, noise):totable()
    assert.not_same(mean, drawn)
    assert.same(mean, vae:encode(pixels, still):totable())
  end)

  it("uses the reference's tiles under compat only", function()
    local fields = { use_spatial_tiling = true, use_temporal_tiling = true, sample_size = 32,
      sample_tsize = 16, tile_overlap_factor = 0.25 }
    local function encoded(with, compat)
      local auto = hunyuan.new(nil, nn.merged(FIELDS, with), { dtype = "f32", compat = compat })
      local params = G.params "f32"
      local net = auto:parts()[1].declare(params)
      params:seal()
      local run <close> = E.new(E.device("cpu", 1), params, {})
      run:init(1)
      local call = auto:calls("encode", { frames = 21, height = 40, width = 8, dtype = "f32",
        size = auto:latent(21, 40, 8) })[1]
      local g, inputs = G.graph(params), {}
      for name, row in pairs(call.takes) do
        inputs[name] = g:input(name, row.dtype, row.shape)
      end
      g:output("z", call.nodes(g, net, inputs))
      g:finish()
      local prog = run:compile(g)
      prog:set("pixels", clip(21, 40, 8))
      prog:set("noise", T.new("f32", call.takes.noise.shape))
      prog:run()
      return prog:get "z":totable()
    end
    local whole = encoded {}
    assert.same(whole, encoded(fields))
    -- a tile in time also has the frame before it
    local how = hunyuan.new(nil, nn.merged(FIELDS, fields), { dtype = "f32",
      compat = "opensora-2.0" }).tiles
    assert.same({ tile = 32, step = 24, blend = 1, keep = 3, more = 0 }, how.encode.space)
    assert.same({ tile = 16, step = 12, blend = 1, keep = 3, more = 1 }, how.encode.time)
    assert.same({ tile = 4, step = 3, blend = 4, keep = 12, more = 1 }, how.decode.time)
    assert.not_same(whole, encoded(fields, true))
    assert.same(whole, encoded({}, true))
    fails("MR_E_RECIPE", "sample_size = 24 with tile_overlap_factor = 0%.25: the step between "
      .. "tiles would be 18, but the kept part 24, in cells of 8; expected both to be equal; try: "
      .. "a multiple of 32", hunyuan.new, nil,
      nn.merged(FIELDS, fields, { sample_size = 24 }), { dtype = "f32", compat = true })
  end)

  -- a network in pieces of this many elements: its result, and its working bytes
  local function run_of(params, run, shape, layers, options)
    local g <close> = G.graph(params, options)
    g:output("y", layers(g, g:input("x", "f32", shape)))
    g:finish()
    local prog <close> = run:compile(g)
    prog:set("x", T.new("f32", shape):fill_normal(1, "x"))
    prog:run()
    return prog:get "y", prog:memory().arena
  end

  -- the largest difference, relative to the largest number
  local function apart(a, b)
    local n, off, most = T.count(a.shape), 0, 0
    local x, y = a:reshape { n }:totable(), b:reshape { n }:totable()
    for i = 1, n do
      off, most = math.max(off, math.abs(x[i] - y[i])), math.max(most, math.abs(x[i]))
    end
    return off / most
  end

  local function each_length(job)
    local params = G.params "f32"
    local net = network.new(nn.scope(params, "", { frozen = true }), FIELDS)
    params:seal()
    local run <close> = E.new(E.device("cpu", 1), params, {})
    run:init(3)
    for frames = 1, 33, 4 do
      local shape = job == "encode" and { 1, frames, 18, 9, 3 } or { 1, frames // 4 + 1, 3, 2, 4 }
      local whole, bytes = run_of(params, run, shape, function(g, x) return net[job](net, g, x) end)
      for _, most in ipairs { 1, 18 * 9 * 4 * 3 } do
        local got, less = run_of(params, run, shape,
          function(g, x) return net[job](net, g, x, most) end)
        assert.same(whole.shape, got.shape)
        assert.is_true(apart(whole, got) <= EQUAL, ("%s %d frames in pieces of %d: %g"):format(job,
          frames, most, apart(whole, got)))
        assert.is_true(less <= bytes)
        assert.is_true(frames < 33 or most > 1 or less < bytes / 2)
      end
    end
  end

  it("repeats borders by address with the result of copies, on kernels that can", function()
    local params = G.params "f32"
    local net = network.new(nn.scope(params, "", { frozen = true }), FIELDS)
    local run <close> = E.new(E.device("cpu", 1), params:seal(), {})
    run:init(3)
    for job, shape in pairs { encode = { 1, 9, 10, 9, 3 }, decode = { 1, 3, 2, 2, 4 } } do
      local function pieces(g, x) return net[job](net, g, x, 1) end
      local laid = run_of(params, run, shape, pieces)
      assert.is_true(apart(laid, (run_of(params, run, shape, pieces, { edges = true }))) <= EQUAL)
    end
  end)

  for _, job in ipairs { "encode", "decode" } do
    it(("%ss each length in pieces as it does at once, in less memory"):format(job), function()
      each_length(job)
    end)
  end

  it("takes pieces of piece_size, with the same numbers", function()
    local function most(size, dtype)
      return hunyuan.new(nil, nn.merged(FIELDS, { piece_size = size }), { dtype = dtype }).most
    end
    assert.same({ 1 << 18, 1 << 20 }, { most(1, "f32"), most(2, "bf16") })
    assert.is_nil(most(0, "f32"))
  end)

  it("refuses other lengths, and proposes one that fits", function()
    local vae <close> = open()
    fails("MR_E_SHAPE", "a clip of 7 frames: this autoencoder needs 4n%+1 frames; try: 5 frames",
      vae.encode, vae, clip(7, 8, 8))
  end)

  it("reports what does not fit", function()
    fails("MR_E_CKPT", "block_out_channels%[2%] is 6 in the recipe, but "
      .. "'encoder%.down_blocks%.2%.resnets%.0%.conv1%.conv%.weight' is %[8,4,3,3,3%]: its axis 0 "
      .. "has 8; try: block_out_channels%[2%] = 8", open, { block_out_channels = { 4, 4, 6, 8 } })
    fails("MR_E_CKPT", "latent_channels is 5 in the recipe, but 'decoder%.conv_in", open,
      { latent_channels = 5 })
    fails("MR_E_CKPT", "%d+ tensors are missing", open, { layers_per_block = 2 })
    fails("MR_E_CKPT", "%d+ tensors do not belong to this autoencoder", open,
      { mid_block_add_attention = false })
    fails("MR_E_RECIPE", "block_out_channels%[0%] is 4 channels, which cannot be divided into "
      .. "norm_num_groups = 3 groups; try: 6", made, { norm_num_groups = 3 })
    fails("MR_E_RECIPE", "4 levels with spatial_compression_ratio = 8 and "
      .. "time_compression_ratio = 2; expected 8 in space, and in time 4 or the same; "
      .. "try: spatial_compression_ratio = 8, time_compression_ratio = 4", made,
      { time_compression_ratio = 2 })
  end)
end)
