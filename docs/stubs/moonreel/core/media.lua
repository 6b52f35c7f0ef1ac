---@meta moonreel.core.media
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Clips: encode, scan, decode. Pixels are u8 planar RGB, [T][3][H][W], as text.
---@class moonreel.core.media
local media = {}

---@class moonreel.core.media.encoder.options
---@field frames? integer Number of frames in the pixels; encode() only. Default: 1.
---@field height? integer Rows of a frame, required. Default: 0.
---@field width? integer Columns of a frame, required. Default: 0.
---@field fps? number Frames per second, at most 1000. Default: 24.
---@field rate_num? integer Numerator of the rate, instead of fps; 0: from fps. Default: 0.
---@field rate_den? integer Denominator of the rate. Default: 1.
---@field codec? string h264, vp9, vp8, av1, hevc, ...; default: by container.
---@field pixel_format? string Default: yuv420p.
---@field quality? integer Constant quality of the encoder, smaller is better; 0: default. Default: 0.
---@field gop? integer Most frames between key frames; 0: 48. Default: 0.
---@field orient? integer Orientation when displayed, 0 to 7, as a display matrix. Default: 0.
---@field sar_num? integer Width of a pixel. Default: 1.
---@field sar_den? integer Height of a pixel. Default: 1.
---@field matrix? string bt709 (default), bt601, smpte240m or bt2020.
---@field full_range? boolean Values of 0 to 255 instead of 16 to 235. Default: false.
---@field untagged? boolean Leave the colour tags out. Default: false.
---@field options? string More options of the encoder, name=value:name=value.
---@field mux_options? string More options of the container.
---@field bytes? integer Size of the pixels behind a light userdata. Default: 0.

--- Start a clip that is written frame by frame.
---@param path string
---@param options moonreel.core.media.encoder.options
---@return mr.Encoder
function media.encoder(path, options) end

---@class moonreel.core.media.encode.options
---@field frames? integer Number of frames in the pixels; encode() only. Default: 1.
---@field height? integer Rows of a frame, required. Default: 0.
---@field width? integer Columns of a frame, required. Default: 0.
---@field fps? number Frames per second, at most 1000. Default: 24.
---@field rate_num? integer Numerator of the rate, instead of fps; 0: from fps. Default: 0.
---@field rate_den? integer Denominator of the rate. Default: 1.
---@field codec? string h264, vp9, vp8, av1, hevc, ...; default: by container.
---@field pixel_format? string Default: yuv420p.
---@field quality? integer Constant quality of the encoder, smaller is better; 0: default. Default: 0.
---@field gop? integer Most frames between key frames; 0: 48. Default: 0.
---@field orient? integer Orientation when displayed, 0 to 7, as a display matrix. Default: 0.
---@field sar_num? integer Width of a pixel. Default: 1.
---@field sar_den? integer Height of a pixel. Default: 1.
---@field matrix? string bt709 (default), bt601, smpte240m or bt2020.
---@field full_range? boolean Values of 0 to 255 instead of 16 to 235. Default: false.
---@field untagged? boolean Leave the colour tags out. Default: false.
---@field options? string More options of the encoder, name=value:name=value.
---@field mux_options? string More options of the container.
---@field bytes? integer Size of the pixels behind a light userdata. Default: 0.

--- Write a whole clip, or one picture.
---@param path string
---@param pixels string|lightuserdata
---@param options moonreel.core.media.encode.options
function media.encode(path, pixels, options) end

--- Facts of a clip: frames, fps, width, height, codec, ...
---@param path string
---@return table
function media.scan(path) end

--- Decode every frame of a clip without returning them. Returns its facts; raises if a frame is damaged.
---@param path string
---@return table
function media.watch(path) end

---@class moonreel.core.media.decode.options
---@field frames? integer Number of frames; 0: all from `start` on. Default: 0.
---@field height? integer Rows; 0: those of the displayed clip. Default: 0.
---@field width? integer Columns; 0: those of the displayed clip. Default: 0.
---@field start? integer The first frame, counted from 0. Default: 0.
---@field interval? integer Step from one returned frame to the next. Default: 1.
---@field filter? string bilinear (default), area, bicubic or lanczos.
---@field deadline_s? number Seconds; 0: 60. Default: 0.

--- Frames, and the facts of the clip.
---@param path string
---@param options? moonreel.core.media.decode.options
---@return string
---@return table
function media.decode(path, options) end

---@class moonreel.core.media.cover.options
---@field height? integer Rows, required. Default: 0.
---@field width? integer Columns, required. Default: 0.
---@field picture? boolean Scale as pictures, to u8; else as frames, to f32 of -1..1. Default: false.

--- Scale frames u8 [n, 3, H, W] to cover a size, and crop the centre, as Open-Sora does.
---@param pixels mr.Tensor
---@param options moonreel.core.media.cover.options
---@return mr.Tensor
function media.cover(pixels, options) end

return media
