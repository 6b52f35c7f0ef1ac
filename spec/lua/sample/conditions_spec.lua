--- Latents of references: how files are scaled before they are encoded.
-- Covers: lua/moonreel/sample/conditions.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local conditions = require "moonreel.sample.conditions"
local data = require "moonreel.data"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local media = require "moonreel.core.media"
local opensora_vae = require "moonreel.models.opensora_vae"
local weights = require "datasets.demo.weights"

describe("references", function()
  local dir, coder
  setup(function()
    dir = folder.new()
    weights.vae(dir.path .. "/vae", 5)
    local params = G.params "f32"
    params:seal()
    local fields = {micro_frame_size = 5, micro_batch_size = 4,
      from_pretrained = dir.path .. "/vae"}
    coder = codec.new({autoencoder = opensora_vae.new(nil, fields), params = params, dtype = "f32",
      config = {vae = fields}}, nil, E.device("cpu", 1))
  end)
  teardown(function()
    coder:close()
    dir:remove()
  end)

  local SIZE = {height = 16, width = 24}

  local function latents(path, compat)
    local item = {seed = 3, paths = {path}, strategy = ""}
    return conditions.new(coder, item, SIZE, compat).references[1]
  end

  local function encoded(pixels)
    return coder:encode(pixels, coder:noise(pixels.shape[1], 16, 24, 3, 1, 0)):clone()
  end

  -- pixels of a file at its own size, and the file
  local function write(name, frames, height, width)
    local bytes, path = {}, dir.path .. "/" .. name
    for i = 1, frames * 3 * height * width do
      bytes[i] = string.char(base.mix(frames, tostring(i // 40)) % 256)
    end
    data.encode(path, table.concat(bytes), {frames = frames, height = height, width = width})
    local pixels = data.decode(path)
    return path, T.from({frames, 3, height, width}, pixels, "u8")
  end

  it("are scaled as the reference scales pictures under compat", function()
    local path, pixels = write("a.png", 1, 40, 37)
    local want = media.cover(pixels, {height = 16, width = 24, picture = true})
    assert.same(encoded(want):totable(), latents(path, true):totable())
    assert.is_false(latents(path):bytes() == latents(path, true):bytes())
  end)

  it("are given as bytes, scaled as shown, to an autoencoder that needs no more", function()
    local references = require "moonreel.sample.references"
    local path = write("bytes.mkv", 3, 32, 64)
    for _, how in ipairs {{compat = true, exact = false}, {compat = false, exact = true}} do
      local pixels = references.pixels({path}, 1, SIZE, how)
      assert.same({"u8", 3}, {pixels.dtype, pixels.shape[1]})
      assert.equal(data.decode(path, {height = 16, width = 24}), pixels:bytes())
    end
    assert.equal("f32", references.pixels({path}, 1, SIZE, {compat = true, exact = true}).dtype)
  end)

  it("that cannot be read are reported with their number", function()
    local path = dir:write("no.png", "no picture")
    local item = {seed = 3, paths = {path}, strategy = ""}
    fails("MR_E_DECODE", "reference_path: reference 0 cannot be read: .-/no%.png: ",
      conditions.new, coder, item, SIZE)
  end)

  it("are scaled as the reference scales videos under compat, some frames at a time",
    function()
    local path, pixels = write("a.mkv", 19, 32, 64)
    local want = media.cover(pixels, SIZE)
    assert.equal("f32", want.dtype)
    assert.same(encoded(want):totable(), latents(path, true):totable())
    assert.same({4, 7, 2, 3}, latents(path, true).shape)
  end)
end)
