--- The Hunyuan video autoencoder at its released size with random weights: seconds and memory of
-- a clip, measured and planned. Measures; no spec runs it. The peer: hunyuan_peer.py beside it.
-- Use: moonreel spec/support/hunyuan_full.lua FRAMES HEIGHT WIDTH f32|bf16 PIECE_MIB encode|decode
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local core = require "moonreel.core.bench"
local families = require "moonreel.recipe.families"
local hunyuan = require "moonreel.models.hunyuan_vae"

local function gigabytes(bytes) return ("%.2f GB"):format(bytes / 1e9) end

-- a codec whose weights are drawn
local function random_codec(dtype, piece_size)
  local fields = families.of("vae", "hunyuan_vae"):defaults()
  fields.piece_size = piece_size
  local auto = hunyuan.new(nil, fields, { dtype = dtype })
  local coder = codec.plan({ autoencoder = auto, dtype = dtype, config = { vae = {} } },
    E.device("cpu"))
  coder.part.exec:init(1)
  return coder
end

local frames, height, width, dtype, piece_size, job = table.unpack(arg)
local size = { frames = math.tointeger(frames), height = math.tointeger(height),
  width = math.tointeger(width) }
local began = core.max_resident()
local coder <close> = random_codec(dtype, math.tointeger(piece_size))
local planned = coder:bytes(job, size.frames, size.height, size.width) + coder:weight_bytes()
local start = base.now_s()
if job == "encode" then
  coder:encode(T.new("u8", { size.frames, 3, size.height, size.width }))
else
  local z = T.new("f32", coder.auto:latent(size.frames, size.height, size.width))
  coder:decode(z:fill_normal(1, "latent"), size, function() end)
end
print(("%s of %d frames of %d x %d in %s: %.1f s; peak %s, planned %s"):format(job, size.frames,
  size.height, size.width, dtype, base.now_s() - start, gigabytes(core.max_resident() - began),
  gigabytes(planned)))
