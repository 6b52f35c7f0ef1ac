--- Clips, indexes and batches: the Lua face of core/data and the media plug-in.
-- Pixels are u8 planar RGB, [T][3][H][W], in a string.
-- @module moonreel.data
local media = require "moonreel.core.media"

local data = {}

--- Write frames as a clip; the container follows the extension (.mp4, .webm, .mkv, ...).
---@param path string
---@param pixels string|lightuserdata  u8 [frames][3][height][width]; a light userdata needs options.bytes
---@param options table  frames, height, width; fps 24, codec ("h264" in .mp4, "vp9" in .webm; "vp8", "av1", ...),
--- quality (the encoder's constant quality, smaller is better), gop 48, pixel_format "yuv420p", matrix "bt709"
function data.encode(path, pixels, options)
  media.encode(path, pixels, options)
end

--- Write one picture as PNG.
---@param path string
---@param pixels string|lightuserdata  u8 [3][height][width]
---@param options table  height, width
function data.png(path, pixels, options)
  media.encode(path, pixels, options)
end

--- Open an encoder for a clip too long to hold: encoder:frame(pixels [3][H][W]), then encoder:finish().
--- Closed before finish(), nothing is left on disk.
---@param path string
---@param options table  as data.encode, without frames
---@return mr.Encoder
function data.encoder(path, options)
  return media.encoder(path, options)
end

--- Facts of a clip: frames, fps, width, height, codec, flags.
---@param path string
---@return table
function data.scan(path)
  return media.scan(path)
end

--- Decode frames start + i * interval, cropped to the target's aspect and scaled.
---@param path string
---@param options? table  frames, height, width (default: all, as shown), start 0, interval 1,
--- filter "bilinear" | "area" | "bicubic" | "lanczos", deadline_s 60
---@return string pixels  u8 [frames][3][height][width]
---@return table facts    as data.scan
function data.decode(path, options)
  return media.decode(path, options)
end

return data
