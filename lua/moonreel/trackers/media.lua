--- Rendered videos and pictures of a run, in the form that trackers show. A journal line with
-- `files` names them: {{path = "samples/...", name = ..., caption = ...}, ...} or only paths,
-- relative to the folder of the run or stage. `step` is the step of the rendered checkpoint.
-- @module moonreel.trackers.media
local base = require "moonreel.core.base"
local temporary = require "moonreel.data.temporary"

local media = {}

local pictures = { png = true, jpg = true, jpeg = true, gif = true }
local clips = { mp4 = true, webm = true, gif = true }
local PLAYED_MAX <const> = 320 -- the most pixels of the longer side of a GIF

--- The existing files that a line names.
---@param line table  line of the journal
---@param dir string  the folder of the run or stage
---@return table[]  {path, name, caption, kind = "png" ..., clip = true for a video}
function media.of(line, dir)
  local list = {}
  for _, one in ipairs(type(line.files) == "table" and line.files or {}) do
    one = type(one) == "table" and one or { path = one }
    local path = type(one.path) == "string" and one.path or ""
    local kind = (path:match "%.(%w+)$" or ""):lower()
    if (pictures[kind] or clips[kind]) and not ("/" .. path):find "/%.%./"
        and base.exists(dir .. "/" .. path) then
      list[#list + 1] = { path = dir .. "/" .. path, kind = kind, clip = clips[kind],
        name = type(one.name) == "string" and one.name or path:match "([^/]+)%.%w+$",
        caption = type(one.caption) == "string" and one.caption or nil }
    end
  end
  return list
end

-- converts a clip to a GIF with FFmpeg
local function to_gif(path)
  local core = require "moonreel.core.media"
  local facts = core.scan(path)
  local scale = math.min(1, PLAYED_MAX / math.max(facts.width, facts.height))
  local h, w = math.max(8, math.floor(facts.height * scale)),
    math.max(8, math.floor(facts.width * scale))
  local pixels = core.decode(path, { height = h, width = w, filter = "area" })
  local dir <close> = temporary.folder()
  local name = dir.path .. "/clip.gif"
  core.encode(name, pixels, { height = h, width = w, codec = "gif",
    pixel_format = "rgb8", frames = #pixels // (3 * h * w),
    fps = facts.fps > 0 and facts.fps or 8 })
  return base.read_file(name), h, w
end

--- The height and width of a picture, in pixels.
---@param data string  PNG, JPEG or GIF
---@param path string  path for messages
---@return integer height
---@return integer width
function media.size(data, path)
  if data:sub(1, 4) == "\x89PNG" and #data >= 24 then
    local w, h = string.unpack(">I4I4", data, 17)
    return h, w
  elseif data:sub(1, 3) == "GIF" and #data >= 10 then
    local w, h = string.unpack("<I2I2", data, 7)
    return h, w
  end
  local facts = require "moonreel.core.media".scan(path)
  return facts.height, facts.width
end

--- The picture or GIF for a page that shows pictures.
---@param one table  entry of media.of
---@return string data
---@return integer height
---@return integer width
function media.picture(one)
  if pictures[one.kind] then
    local data = base.read_file(one.path)
    return data, media.size(data, one.path)
  end
  return to_gif(one.path)
end

return media
