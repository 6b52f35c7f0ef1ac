--- Reference files about pixels at another size: frames of videos, and pictures to the byte.
-- @module spec.golden.runner.transforms
local base = require "moonreel.core.base"
local media = require "moonreel.core.media"

local FRAMES, BYTE = 1e-5, 1 / 127.5

-- how far pixels of -1..1 are from the wanted ones
local function compare(result, name, got, want, tolerance)
  result:absolute(name, got:totable(), want:totable(), tolerance)
end

-- bytes as pixels of -1..1
local function scaled(bytes) return bytes:to("f32") * (2 / 255) + -1 end

-- both kinds of every case, of the same frames
local function opensora12(f, result)
  local case = 0
  while f.has[("video.%d.in"):format(case)] do
    local function tensor(name) return f:tensor(name:format(case)) end
    local pixels, size = tensor "video.%d.in", f:list(("video.%d.size"):format(case))
    local how = {height = size[1], width = size[2]}
    compare(result, "video." .. case, media.cover(pixels, how), tensor "video.%d.out", FRAMES)
    how.picture = true
    local picture = media.cover(pixels, how)
    compare(result, "image." .. case, picture:permute{0, 2, 3, 1}:clone(),
      tensor "image.%d.out_u8", 0)
    compare(result, "image." .. case, scaled(picture), tensor "image.%d.out", FRAMES)
    case = case + 1
  end
end

-- a case is a clip or a picture, rows of RGB
local function opensora20(f, result)
  local case = 0
  while f.meta["case" .. case] do
    local name, c = "case" .. case, f.meta["case" .. case]
    if c.kind ~= "video" and c.kind ~= "image" then
      base.raise("MR_E_DATA", ("%s: %s is of kind '%s'; expected video or image"):format(f.path,
        name, tostring(c.kind)))
    end
    local picture, pixels = c.kind == "image", f:tensor(name .. ".in")
    if picture then
      pixels = pixels:permute{2, 0, 1}:clone():reshape{1, 3, c.h, c.w}
    end
    local got = media.cover(pixels, {height = c.H, width = c.W, picture = picture})
    compare(result, name, picture and scaled(got) or got, f:tensor(name .. ".out"),
      picture and BYTE or FRAMES)
    case = case + 1
  end
end

return {{"^transforms", function(f, result)
  return (f.meta.case0 and opensora20 or opensora12)(f, result)
end}}
