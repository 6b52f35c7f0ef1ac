--- A video autoencoder at its released size with random weights: seconds and memory of a clip,
-- measured and planned. Measures; no spec runs it. The peer: hunyuan_peer.py beside it.
-- Use: moonreel spec/support/autoencoder_full.lua FAMILY FRAMES HEIGHT WIDTH f32|bf16 encode|decode
--      [FIELD=NUMBER ...], as hunyuan_vae 17 144 256 bf16 decode piece_size=32
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local core = require "moonreel.core.bench"
local families = require "moonreel.recipe.families"

local function gigabytes(bytes) return ("%.2f GB"):format(bytes / 1e9) end

-- a codec whose weights are drawn
local function random_codec(family, dtype, changes)
  local fields = families.of("vae", family):defaults()
  for _, change in ipairs(changes) do
    local name, value = change:match("^(.-)=(.*)$")
    fields[name] = assert(math.tointeger(value), change)
  end
  local auto = require("moonreel.models." .. family).new(nil, fields, { dtype = dtype })
  local coder = codec.plan({ autoencoder = auto, dtype = dtype, config = { vae = {} } },
    E.device("cpu"))
  coder.part.exec:init(1)
  return coder
end

local family, frames, height, width, dtype, job = table.unpack(arg)
local size = { frames = math.tointeger(frames), height = math.tointeger(height),
  width = math.tointeger(width) }
local began = core.max_resident()
local coder <close> = random_codec(family, dtype, { table.unpack(arg, 7) })
local weights = coder:weight_bytes()
local planned = coder:bytes(job, size.frames, size.height, size.width) + weights
local start = base.now_s()
if job == "encode" then
  coder:encode(T.new("u8", { size.frames, 3, size.height, size.width }))
else
  local z = T.new("f32", coder.auto:latent(size.frames, size.height, size.width))
  coder:decode(z:fill_normal(1, "latent"), size, function() end)
end
print(("%s: %s of %d frames of %d x %d in %s: %.1f s; peak %s, planned %s, of both %s weights")
  :format(family, job, size.frames, size.height, size.width, dtype, base.now_s() - start,
    gigabytes(core.max_resident() - began), gigabytes(planned), gigabytes(weights)))
