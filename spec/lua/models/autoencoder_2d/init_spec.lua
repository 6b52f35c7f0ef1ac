--- The picture autoencoder of Flux: single frames, files of two layouts, and errors. Reference
-- values of other programs: make golden.
-- Covers: lua/moonreel/models/autoencoder_2d/init.lua
-- lua/moonreel/models/autoencoder_2d/weights.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local autoencoder_2d = require "moonreel.models.autoencoder_2d"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local kl = require "moonreel.models.autoencoder_2d.kl"
local nn = require "moonreel.nn"

local FIELDS = { in_channels = 3, out_ch = 3, ch = 4, ch_mult = { 1, 2, 2 }, num_res_blocks = 1,
  z_channels = 5, norm_groups = 2, scale_factor = 0.3611, shift_factor = 0.1159 }
local CONFIG = { block_out_channels = { 4, 8, 8 }, layers_per_block = 1, latent_channels = 5,
  norm_num_groups = 2, scaling_factor = 0.3611, shift_factor = 0.1159, use_quant_conv = false,
  use_post_quant_conv = false, act_fn = "silu", latents_mean = json.null }

local function made(change)
  return autoencoder_2d.new(nil, nn.merged(FIELDS, change), { dtype = "f32" })
end

describe("the picture autoencoder", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  -- the same weights in two layouts: parameters have one order under any names
  local function write(name, names)
    local params = G.params "f32"
    kl.new(nn.scope(params), made().sizes, names)
    dir:write_weights(name .. "/model.safetensors", params:seal(), function(p, i)
      return T.new("f32", p.shape):fill_normal(i, "w") * 0.3
    end)
    return dir.path .. "/" .. name
  end

  local function open(path, fields)
    return codec.open(path, { device = E.device("cpu", 1), fields = nn.merged(FIELDS, fields) })
  end

  it("encodes frames one by one, with the random numbers of pictures", function()
    local vae <close> = open(write("flux", "flux"))
    local clip = T.new("f32", { 3, 3, 18, 13 }):fill_normal(1, "clip")
    local noise = vae:noise(3, 18, 13, 7)
    assert.same({ 3, 5, 4, 3 }, noise.pictures.shape)
    local z = vae:encode(clip, noise)
    assert.same({ 5, 3, 4, 3 }, z.shape)
    local back, got = {}, T.new("f32", { 3, 3, 16, 12 })
    vae:decode(z, { frames = 3, height = 18, width = 13 }, function(some, at)
      back[#back + 1] = at
      got:slice(0, at, at + some.shape[1]):copy_from(some)
    end)
    assert.same({ 0, 1, 2 }, back)
    for i = 0, 2 do
      local one = vae:encode(clip:slice(0, i, i + 1),
        { pictures = noise.pictures:slice(0, i, i + 1) })
      assert.same(one:totable(), z:slice(1, i, i + 1):clone():totable())
      vae:decode(one, { frames = 1, height = 18, width = 13 }, function(some)
        assert.same(some:totable(), got:slice(0, i, i + 1):clone():totable())
      end)
    end
  end)

  it("reads files of diffusers with their config.json, and the same as files of its own", function()
    local ours <close> = open(write("ours", "flux"))
    local path = write("theirs", "diffusers")
    base.replace_file(path .. "/config.json", json.encode(CONFIG))
    -- config.json decides, although the recipe has other widths
    local theirs <close> = open(path, { ch = 8, norm_groups = 4 })
    local clip = T.new("f32", { 1, 3, 8, 12 }):fill_normal(1, "clip")
    assert.same(ours:encode(clip):totable(), theirs:encode(clip):totable())
    local z = T.new("f32", { 5, 1, 2, 3 }):fill_normal(2, "z")
    assert.same(ours:decode(z):totable(), theirs:decode(z):totable())
  end)

  it("has one latent frame for each frame", function()
    local auto = made()
    assert.same({ 5, 7, 4, 3 }, auto:latent(7, 18, 13))
    assert.same({ 7, 7, 7 }, { auto:most_frames(7), auto:head(7), auto:tail(9, 7) })
    assert.same({ 2, 3, 4 }, { auto:grid(2, 3, 4) })
  end)

  it("reports what does not fit", function()
    local path = write("other", "flux")
    fails("MR_E_CKPT", "ch is 8 in the recipe, but 'encoder%.conv_in%.weight' is %[4,3,3,3%]: its "
      .. "axis 0 has 4", open, path, { ch = 8 })
    fails("MR_E_CKPT", "z_channels is 6 in the recipe, but 'decoder%.conv_in%.weight'", open, path,
      { z_channels = 6 })
    fails("MR_E_CKPT", "%d+ tensors are missing; the first is '.*%.block%.1%.", open, path,
      { num_res_blocks = 2 })
    fails("MR_E_RECIPE", "level 0 of the autoencoder has 4 channels, which cannot be divided "
      .. "into 3 groups", made, { norm_groups = 3 })
    local function with(field, value)
      base.replace_file(path .. "/config.json", json.encode(nn.merged(CONFIG, { [field] = value })))
      return open, path
    end
    fails("MR_E_CKPT", "config%.json: 3 levels and 6 latent channels; the recipe has 3 and 5",
      with("latent_channels", 6))
    for text, row in pairs {
      ["layers_per_block is \"many\"; expected a whole number from 1 to 64"] =
        { "layers_per_block", "many" },
      ["layers_per_block is 1000000000; expected"] = { "layers_per_block", 1000000000 },
      ["norm_num_groups is 0; expected a whole number from 1"] = { "norm_num_groups", 0 },
      ["norm_num_groups is 1%.5; expected a whole number"] = { "norm_num_groups", 1.5 },
      ["scaling_factor is 0; expected a number from 1e%-06"] = { "scaling_factor", 0 },
      ["shift_factor is true; expected a number"] = { "shift_factor", true },
      ["block_out_channels is %[4,0,8%]; expected widths"] =
        { "block_out_channels", { 4, 0, 8 } },
      ["block_out_channels is \"abc\"; expected widths"] = { "block_out_channels", "abc" },
    } do
      fails("MR_E_CKPT", "config%.json: " .. text, with(table.unpack(row)))
    end
  end)

  it("reads scale and shift from config.json, in which null means none", function()
    local path = write("diffusers", "diffusers")
    for _, row in ipairs { { 0.5, 0.25, 0.5, 0.25 }, { json.null, json.null, 0.3611, 0 } } do
      base.replace_file(path .. "/config.json", json.encode(nn.merged(CONFIG,
        { scaling_factor = row[1], shift_factor = row[2] })))
      local vae <close> = open(path)
      assert.same({ row[3], row[4] }, { vae.auto.scale, vae.auto.shift })
    end
  end)
end)
