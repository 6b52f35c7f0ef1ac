--- Renders the demo's clips into real files: `moonreel datasets/demo/build.lua OUT [SEED [FRAMES
-- [motion]]]`: clips of 6 frames, or of so many, in which shapes go as far; with `motion` they
-- begin in the middle, and their captions are of their motion alone.
-- OUT/demo.csv lists them (path from OUT, text, num_frames, height, width, aspect_ratio, fps) and
-- is written last. Half of the clips are MP4 (libx264), half WebM (libvpx), stills are PNG. Same
-- seed, same libraries: same bytes.
package.path = (arg[0]:match("^(.*/)") or "./") .. "../../?.lua;" .. package.path
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local render = require "datasets.demo.render"
local world = require "datasets.demo.world"

local CLIPS, STILLS = 250, 50
local SIDE, FPS = 32, 8
-- near the best these encoders do: what is lost is chroma sharpness, halved by yuv420p
local encoders = {
  { extension = "mp4", codec = "h264", quality = 10 },
  { extension = "webm", codec = "vp8", quality = 6 },
}

local function csv_field(text)
  text = tostring(text)
  return text:find('[",\n]') and '"' .. text:gsub('"', '""') .. '"' or text
end

local out, seed = arg[1], math.tointeger(tonumber(arg[2] or 1))
local length = math.tointeger(tonumber(arg[3] or 6))
local told = arg[4] == "motion"
if not out or not seed or not length or length < 2 or arg[4] and not told then
  base.raise("MR_E_USAGE", "build.lua: expected OUT [SEED [FRAMES [motion]]], a folder, an "
    .. "integer, a number of frames from 2 on and the word")
end

base.make_dir(out)
local rows = { "path,text,num_frames,height,width,aspect_ratio,fps" }
for _, scene in ipairs(world.scenes(seed, CLIPS, STILLS)) do
  local frames = scene.direction and length or 1
  scene.outwards = told
  local pixels = render.frames(scene, seed, frames, SIDE, SIDE)
  local name
  if frames == 1 then
    name = ("still-%03d.png"):format(scene.id)
    data.png(out .. "/" .. name, pixels, { height = SIDE, width = SIDE })
  else
    local encoder = encoders[scene.id % #encoders + 1]
    name = ("clip-%03d.%s"):format(scene.id, encoder.extension)
    data.encode(out .. "/" .. name, pixels, {
      frames = frames, height = SIDE, width = SIDE, fps = FPS, codec = encoder.codec,
        quality = encoder.quality,
    })
  end
  local text = told and frames > 1 and world.motion(scene, scene.id) or scene.text
  local row = { name, text, frames, SIDE, SIDE, 1.0, frames > 1 and FPS or "" }
  for i, value in ipairs(row) do
    row[i] = csv_field(value)
  end
  rows[#rows + 1] = table.concat(row, ",")
end
base.replace_file(out .. "/demo.csv", table.concat(rows, "\n") .. "\n")
print(("%s: %d clips and %d stills, seed %d"):format(out, CLIPS, STILLS, seed))
