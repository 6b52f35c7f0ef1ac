--- Scenes as files and the table that lists them.
-- @module datasets.demo.clips
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local render = require "datasets.demo.render"

local clips = {}

local SIDE <const>, FPS <const> = 32, 8
-- near the best these encoders do: what is lost is chroma sharpness, halved by yuv420p
local encoders = {
  { extension = "mp4", codec = "h264", quality = 10 },
  { extension = "webm", codec = "vp8", quality = 6 },
}

local function csv_field(text)
  text = tostring(text)
  return text:find '[",\n]' and '"' .. text:gsub('"', '""') .. '"' or text
end

--- Store a clip as the demo's are.
---@param path string    without its extension
---@param pixels string  u8 [T][3][H][W]
---@param frames integer
---@param id integer     of its scene: which encoder
---@return string extension
function clips.store(path, pixels, frames, id)
  local encoder = encoders[id % #encoders + 1]
  data.encode(path .. "." .. encoder.extension, pixels, { frames = frames, height = SIDE,
    width = SIDE, fps = FPS, codec = encoder.codec, quality = encoder.quality })
  return encoder.extension
end

-- the file of a scene; its name
local function write_scene(folder, scene, seed, frames)
  local pixels = render.frames(scene, seed, frames, SIDE, SIDE)
  if frames == 1 then
    local name = ("still-%03d.png"):format(scene.id)
    data.png(folder .. "/" .. name, pixels, { height = SIDE, width = SIDE })
    return name
  end
  local name = ("clip-%03d"):format(scene.id)
  return name .. "." .. clips.store(folder .. "/" .. name, pixels, frames, scene.id)
end

--- Write scenes into a folder, and demo.csv of them, last.
---@param folder string
---@param scenes table[]  of moonreel's world: id, text, direction (nil: a still), ...
---@param seed integer    of what render draws
---@param frames integer  of a clip
function clips.write(folder, scenes, seed, frames)
  base.make_dir(folder)
  local rows = { "path,text,num_frames,height,width,aspect_ratio,fps" }
  for _, scene in ipairs(scenes) do
    local n = scene.direction and frames or 1
    local name = write_scene(folder, scene, seed, n)
    local row = { name, scene.text, n, SIDE, SIDE, 1.0, n > 1 and FPS or "" }
    for i, value in ipairs(row) do
      row[i] = csv_field(value)
    end
    rows[#rows + 1] = table.concat(row, ",")
  end
  base.replace_file(folder .. "/demo.csv", table.concat(rows, "\n") .. "\n")
end

return clips
