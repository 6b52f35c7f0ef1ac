--- Clips to latents and back: pieces, random numbers, memory, files and errors about them.
-- Covers: lua/moonreel/nn/compiled.lua lua/moonreel/codec/init.lua lua/moonreel/text/config.lua
-- lua/moonreel/encoder/init.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local folder = dofile "spec/support/folder.lua"
local opensora_vae = require "moonreel.models.opensora_vae"
local ops = require "moonreel.core.op"
local weights = require "datasets.demo.weights"

local dir = folder.new()
weights.vae(dir.path .. "/vae", 5)

-- a codec with the weights of a folder; `fields` of the autoencoder
local function open(path, fields, device, dtype)
  local f = {micro_frame_size = 5, micro_batch_size = 2, from_pretrained = path}
  for k, v in pairs(fields or {}) do
    f[k] = v
  end
  local params = G.params(dtype or "f32")
  params:seal()
  local pipe = {autoencoder = opensora_vae.new(nil, f), params = params, dtype = dtype or "f32",
    config = {vae = f}}
  return codec.new(pipe, nil, device or E.device("cpu", 1))
end

local function clip(frames, H, W, seed)
  local values = {}
  for i = 1, frames * 3 * H * W do
    values[i] = base.mix(seed or 7, tostring(i)) % 256
  end
  return T.from({frames, 3, H, W}, values, "u8")
end

local function encode(c, pixels, key)
  local s = pixels.shape
  return c:encode(pixels, c:noise(s[1], s[3], s[4], 1, key, 0)):clone()
end

local function decode(c, z, frames)
  local out, at = T.new("f32", {frames, 3, 16, 24}), {}
  c:decode(z, {frames = frames, height = 16, width = 24}, function(some, first)
    at[#at + 1] = first
    out:slice(0, first, first + some.shape[1]):copy_from(some)
  end)
  return out, at
end

describe("codec", function()
  teardown(function() dir:remove() end)

  it("refuses weights that are not finite, with the name of the tensor", function()
    weights.vae(dir.path .. "/nan", 5)
    for _, entry in ipairs(base.list_dir(dir.path .. "/nan")) do
      if entry:find "%.safetensors$" then
        local file = dir.path .. "/nan/" .. entry
        base.replace_file(file, base.read_file(file):sub(1, -5) .. "\xc0\x7f\xc0\x7f")
      end
    end
    require("spec.support.fails")("MR_E_NONFINITE", "numbers are not finite", open,
      dir.path .. "/nan")
  end)

  it("encodes and decodes a clip in independent pieces", function()
    local c <close> = open(dir.path .. "/vae")
    local pixels = clip(12, 16, 24)
    local z = encode(c, pixels)
    assert.same({4, 5, 2, 3}, z.shape)
    local same <close> = open(dir.path .. "/vae")
    -- each piece alone, with the same random numbers
    local noise = c:noise(12, 16, 24, 1, nil, 0)
    for i = 0, 1 do
      local one = same:encode(pixels:slice(0, 5 * i, 5 * i + 5):clone(), {
        pictures = noise.pictures:slice(0, 5 * i, 5 * i + 5),
        frames = noise.frames:slice(0, 2 * i, 2 * i + 2)}):clone()
      assert.same(one:totable(), z:slice(1, 2 * i, 2 * i + 2):clone():totable())
    end
    local back, at = decode(c, z, 12)
    assert.same({0, 2, 4, 5, 7, 9, 10}, at)
    assert.is_true(back:norm() > 0)
    assert.same(decode(c, z:slice(1, 0, 2):clone(), 5):totable(),
      back:slice(0, 0, 5):clone():totable())
  end)

  it("computes the same bits for any number of pictures at once", function()
    local one <close> = open(dir.path .. "/vae", {micro_batch_size = 1})
    local four <close> = open(dir.path .. "/vae", {micro_batch_size = 4})
    local pixels = clip(6, 16, 24)
    local z = encode(one, pixels)
    assert.near(0, (z - encode(four, pixels)):norm() / z:norm(), 1e-6)
  end)

  it("draws random numbers by seed, sample key and epoch", function()
    local c <close> = open(dir.path .. "/vae")
    local pixels = clip(2, 16, 16)
    local z = encode(c, pixels, 3):totable()
    assert.same(z, encode(c, pixels, 3):totable())
    assert.is_false(z[1] == encode(c, pixels, 4):totable()[1])
    local epoch = c:encode(pixels, c:noise(2, 16, 16, 1, 3, 1)):clone():totable()
    assert.is_false(z[1] == epoch[1])
  end)

  it("computes the same bits on the shadow device", function()
    local cpu <close> = open(dir.path .. "/vae")
    local shadow <close> = open(dir.path .. "/vae", nil, E.device("shadow", 1))
    local pixels = clip(6, 16, 24)
    local z = encode(cpu, pixels)
    assert.same(z:totable(), encode(shadow, pixels):totable())
    assert.same(decode(cpu, z, 6):totable(), (decode(shadow, z, 6)):totable())
  end)

  for _, name in ipairs{"cpu", "shadow"} do
    it("encodes into a program without a wait for what runs before, on " .. name, function()
      local device = E.device(name, 1)
      local c <close> = open(dir.path .. "/vae", nil, device)
      local clips, noise, wanted = {clip(12, 16, 24), clip(12, 16, 24, 8)}, {}, {}
      for b = 1, 2 do
        noise[b] = c:noise(12, 16, 24, 1, b, 0)
        wanted[b] = c:encode(clips[b], noise[b]):clone():totable()
      end
      -- frames before channels, the order of pieces in time
      local run <close> = E.new(device, nil, {})
      local g = G.graph()
      g:output("x", (ops.copy(g:input("z", "f32", {2, 5, 4, 2, 3}):permute{0, 2, 1, 3, 4})))
      g:finish()
      local prog = run:compile(g)
      local before, own = run:waits().all, c.part.exec:waits().all
      for _ = 1, 2 do
        for b = 1, 2 do
          c:encode_into(clips[b], noise[b], prog, "z", b - 1)
        end
        prog:run()
      end
      assert.equal(0, run:waits().all - before)
      assert.equal(0, c.part.exec:waits().all - own)
      local x = prog:get("x")
      for b = 1, 2 do
        assert.same(wanted[b], x:slice(0, b - 1, b):clone():totable())
      end
    end)
  end

  it("encodes a part of a clip into an input, with random numbers of its own", function()
    local device = E.device("cpu", 1)
    local c <close> = open(dir.path .. "/vae", nil, device)
    local pixels = clip(12, 16, 24)
    local last, noise = pixels:slice(0, 11, 12), c:noise(1, 16, 24, 1, 3, 0, "tail")
    local wanted = c:encode(last, noise):clone():totable()
    assert.are_not.same(wanted, c:encode(last, c:noise(1, 16, 24, 1, 3, 0)):clone():totable())
    assert.are_not.same(wanted, c:encode(last, c:noise(1, 16, 24, 1, 3, 0, "head")):clone()
      :totable())
    local run <close> = E.new(device, nil, {})
    local g = G.graph()
    g:output("x", (ops.copy(g:input("z", "f32", {2, 5, 4, 2, 3}))))
    g:finish()
    local prog = run:compile(g)
    prog:set("z", T.new("f32", {2, 5, 4, 2, 3}))
    prog:skip("z", 0, 9 * 24)
    c:encode_into(last, noise, prog, "z", 1, {at = 4, frames = 5})
    prog:run()
    local x = prog:get("x")
    local there = x:slice(0, 1, 2):slice(1, 4, 5):clone()
    assert.same(wanted, there:totable())
    assert.near(there:norm(), x:norm(), 1e-6)
  end)

  it("computes in bf16 when the run does", function()
    local device = E.device("cpu", 1)
    if device:compute("bf16") ~= "bf16" then
      return
    end
    local exact <close> = open(dir.path .. "/vae")
    local c <close> = open(dir.path .. "/vae", nil, device, "bf16")
    local pixels = clip(5, 16, 24)
    local z, rounded = encode(exact, pixels), encode(c, pixels)
    local off = (z - rounded):norm() / z:norm()
    assert.is_true(off > 1e-4 and off < 0.1, off)
  end)

  it("needs memory for a piece, not for the clip", function()
    local c <close> = open(dir.path .. "/vae")
    local function arena(frames)
      encode(c, clip(frames, 16, 24))
      local most = 0
      for _, one in pairs(c.part.compiled.programs) do
        most = math.max(most, one.prog:plan().total)
      end
      return most
    end
    local short = arena(10)
    assert.equal(short, arena(40))
  end)

  it("keeps the programs of a few sizes, and computes the same when one returns", function()
    local c <close> = open(dir.path .. "/vae")
    local first = encode(c, clip(2, 8, 8)):totable()
    for width = 2, 10 do
      encode(c, clip(1, 8, 8 * width))
    end
    local count = 0
    for key in pairs(c.part.compiled.programs) do
      count = count + 1
      assert.is_falsy(key:find("2x3x8x8", 1, true))
    end
    assert.equal(16, count)
    assert.same(first, encode(c, clip(2, 8, 8)):totable())
  end)

  it("is opened by path: a clip to latents and back, as tensors", function()
    local c <close> = codec.open(dir.path .. "/vae", {micro_frame_size = 5, micro_batch_size = 2,
      device = E.device("cpu", 1)})
    assert.matches("^mr%.Codec: .*/vae, 4 latent channels$", tostring(c))
    local pixels = clip(12, 16, 24)
    local z = c:encode(pixels)
    assert.same({4, 5, 2, 3}, z.shape)
    assert.same(c:encode(pixels, c:noise(12, 16, 24, 0)):clone():totable(), z:clone():totable())
    -- five latent frames may stand for 14
    assert.same({14, 3, 16, 24}, c:decode(z).shape)
    local want = decode(c, z, 12)
    local got = c:decode(z, {frames = 12, height = 16, width = 24})
    assert.equal("u8", got.dtype)
    assert.equal(codec.pixels(want):bytes(), got:bytes())
    local fails = require "spec.support.fails"
    fails("MR_E_SHAPE", "pixels are 4 x 8, which is smaller than a latent cell", c.encode, c,
      clip(1, 4, 8))
    fails("MR_E_USAGE", "dtype is 'f64'; expected f32 or bf16", codec.open, dir.path .. "/vae",
      {dtype = "f64"})
  end)

  it("makes the pixel bytes of files from pictures", function()
    local pixels = codec.pixels(T.from({5}, {-1.5, -1, 0, 0.5, 2}))
    assert.same({0, 0, 128, 191, 255}, pixels:totable())
  end)

  describe("weights of a codec", function()
    -- the latent of a fixed clip by the codec of a folder
    local function latent(name)
      local c <close> = open(dir.path .. "/" .. name)
      return encode(c, clip(2, 16, 16)):totable()
    end

    local function problem(name, fields)
      local ok, err = pcall(open, name and dir.path .. "/" .. name, fields)
      assert.is_false(ok)
      return tostring(err)
    end

    it("may be in one file, and have older names of the attention", function()
      local want = latent "vae"
      assert.same(want, latent "vae/model.safetensors")
      local older = {to_q = "query", to_k = "key", to_v = "value", ["to_out.0"] = "proj_attn"}
      weights.vae(dir.path .. "/older", 5, function(name, t)
        for new, old in pairs(older) do
          local at = "attentions.0." .. new .. "."
          local from, to = name:find(at, 1, true)
          if from then
            name = name:sub(1, from - 1) .. "attentions.0." .. old .. "." .. name:sub(to + 1)
            -- convolutions of one position replace matrices
            t = #t.shape == 2 and t:reshape{t.shape[1], t.shape[2], 1, 1} or t
          end
        end
        return name, t
      end)
      assert.same(want, latent "older")
    end)

    it("of a picture autoencoder have no time, and are opened by path for pictures", function()
      weights.vae(dir.path .. "/pictures", 5, function(name, t)
        return name:match("^spatial_vae%.module%.(.*)"), t
      end)
      assert.matches("pictures.*: the file has only the spatial half of the autoencoder, with "
        .. "names of AutoencoderKL; %d+ tensors of the temporal half are missing; try: codec%.open",
        problem "pictures")
      -- its latents are the ones that the whole autoencoder joins in time
      local alone <close> = codec.open(dir.path .. "/pictures", {micro_batch_size = 2})
      local whole <close> = codec.open(dir.path .. "/vae")
      local pixels = clip(3, 16, 24)
      local z, noise = alone:encode(pixels), alone:noise(3, 16, 24, 0).pictures
      assert.same({4, 3, 2, 3}, z.shape)
      local x = z:permute{1, 0, 2, 3}:clone()
      local function run(name, inputs)
        local prog = whole.part.compiled:get(name, function(g)
          local given = {}
          for i, t in ipairs(inputs) do
            given[i] = g:input("in" .. i, t.dtype, t.shape)
          end
          return ops.copy((whole.auto[name](whole.auto, g, table.unpack(given))))
        end)
        for i, t in ipairs(inputs) do
          prog:set("in" .. i, t)
        end
        prog:run()
        return prog:get("out")
      end
      assert.same(x:totable(), run("encode_pictures", {pixels, noise}):totable())
      local pictures = run("decode_pictures", {x})
      assert.equal(codec.pixels(pictures):bytes(), alone:decode(z):bytes())
    end)

    it("may not contain unknown tensors", function()
      weights.vae(dir.path .. "/more", 5, function(name, t)
        return name == "scale" and "temporal_vae.more" or name, t
      end)
      assert.matches("more.*: 1 tensors do not belong to this autoencoder; the first is "
        .. "'temporal_vae%.more'", problem "more")
    end)

    it("that contradict config.json are refused with field, tensor and both values",
      function()
        local text = base.read_file(dir.path .. "/vae/config.json")
        local function changed(name, from, to)
          weights.vae(dir.path .. "/" .. name, 5)
          local other, n = text:gsub(from, to)
          assert.equal(1, n)
          base.replace_file(dir.path .. "/" .. name .. "/config.json", other)
          return problem(name)
        end
        assert.matches("block_out_channels%[3%] is 32 in .*widths/config%.json, but "
          .. "'spatial_vae%.module%.encoder%.down_blocks%.3%.resnets%.0%.conv1%.weight' is "
          .. "%[16,16,3,3%]: its axis 0 has 16", changed("widths", "8,8,16,16", "8,8,16,32"))
        assert.matches("filters is 4 in .*, but 'temporal_vae%.encoder%.conv_in%.conv%.weight' is "
          .. "%[8,4,3,3,3%]: its axis 0 has 8", changed("filters", '"filters":8', '"filters":4'))
        assert.matches("layers: layers_per_block is 2 in .*, but there is no 'spatial_vae%.module%."
          .. "encoder%.down_blocks%.0%.resnets%.1%.conv1%.weight'", changed("layers",
          '"layers_per_block":1', '"layers_per_block":2'))
        assert.matches("blocks: num_res_blocks is 3 in .*, but there is no 'temporal_vae%.encoder%."
          .. "block_res_blocks%.0%.1%.conv1%.conv%.weight'", changed("blocks", '"num_res_blocks":1',
          '"num_res_blocks":3'))
        assert.matches("norm_num_groups is 3, but block_out_channels%[0%] gives 8 channels, which "
          .. "cannot be", changed("groups", '"norm_num_groups":4', '"norm_num_groups":3'))
        assert.matches("num_groups is 16, but channel_multipliers%[0%] gives 8 channels, which "
          .. "cannot be", changed("frames", '"num_groups":4,"num_res', '"num_groups":16,"num_res'))
        assert.matches("block_out_channels is %[%]; expected a value like",
          changed("none", "%[8,8,16,16%]", "[]"))
        for _, value in ipairs{"7", "[1]", '"x"', "null"} do
          assert.matches("config%.json: expected an object", changed("object", "^.*$", value))
        end
      end)

    it("are found by path", function()
      assert.matches("vae%.from_pretrained is not set, .*try: vae%.from_pretrained = ",
        problem(nil))
      assert.matches("no file or folder '.*nothing', and nothing is downloaded", problem "nothing")
    end)
  end)
end)
