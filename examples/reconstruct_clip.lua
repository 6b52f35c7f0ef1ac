--- What an autoencoder keeps of a clip: encoded, decoded, written next to it and compared.
--
--   moonreel examples/reconstruct_clip.lua WEIGHTS CLIP OUT.mp4 [frames] [height] [width] [dtype]
--
-- WEIGHTS is a file or folder of a released autoencoder of any family. Without sizes the clip's own
-- are taken, down to whole cells of the autoencoder, and one frame.
local T = require "moonreel.core.tensor"
local codec = require "moonreel.codec"
local media = require "moonreel.core.media"

local weights, path, out = arg[1], arg[2], arg[3]
local asked = {}
for i = 4, 6 do
  asked[i] = arg[i] and math.tointeger(tonumber(arg[i])) or not arg[i] and 0
end
if not (out and asked[4] and asked[5] and asked[6]) then
  io.stderr:write("usage: moonreel examples/reconstruct_clip.lua WEIGHTS CLIP OUT.mp4 [frames] ",
    "[height] [width] [dtype]; got: ", table.concat(arg, " "), "\n")
  return 2
end

local coder <close> = codec.open(weights, { dtype = arg[7] or "f32" })
local facts, side = media.scan(path), coder.auto.side
local size = { frames = math.max(asked[4], 1) }
for i, name in ipairs { "height", "width" } do
  size[name] = asked[4 + i] > 0 and asked[4 + i] or facts[name] // side * side
end
print(("%d of %d frames, %d x %d; needs %.2f GB to encode and %.2f GB to decode, and %.2f GB for "
  .. "weights"):format(size.frames, facts.frames, size.height, size.width,
  coder:bytes("encode", size.frames, size.height, size.width) / 1e9,
  coder:bytes("decode", size.frames, size.height, size.width) / 1e9, coder:weight_bytes() / 1e9))

local bytes = media.decode(path, size)
local clip <close> = T.from({ size.frames, 3, size.height, size.width }, bytes, "u8")
local z <close> = coder:encode(clip)
print(("latents [%s]: mean %.3f, root of the mean square %.3f"):format(table.concat(z.shape, ", "),
  z:mean(), z:norm() / math.sqrt(T.count(z.shape))))

-- pixels may come out smaller or larger where a side is no whole cell: compared is what both have
local back <close> = coder:decode(z, size)
local _, _, height, width = table.unpack(back.shape)
local function shared(x)
  return x:slice(2, 0, math.min(height, size.height)):slice(3, 0, math.min(width, size.width))
    :to "f32"
end
local off <close> = shared(back) - shared(clip)
local square <close> = off * off
local mean = square:mean()
media.encode(out, back:bytes(), { frames = back.shape[1], height = height, width = width,
  fps = facts.fps > 0 and facts.fps or 1 }) -- of a picture nothing is known
print(("%s: PSNR %s dB"):format(out,
  mean == 0 and "infinite" or ("%.2f"):format(10 * math.log(255 ^ 2 / mean, 10))))
