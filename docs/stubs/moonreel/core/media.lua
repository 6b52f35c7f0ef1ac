---@meta moonreel.core.media
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Clips: encode, scan, decode. Pixels are u8 planar RGB, [T][3][H][W], as text.
---@class moonreel.core.media
local media = {}

---@class moonreel.core.media.encoder.options
---@field frames? integer How many the pixels hold; encode() alone. Default: 1.
---@field height? integer Rows of a frame, required. Default: 0.
---@field width? integer Columns of a frame, required. Default: 0.
---@field fps? number Frames per second, at most 1000. Default: 24.
---@field rate_num? integer The rate as a fraction, in place of fps; 0: from fps. Default: 0.
---@field rate_den? integer Its lower half. Default: 1.
---@field codec? string h264, vp9, vp8, av1, hevc, ...; by container where absent.
---@field pixel_format? string yuv420p where absent.
---@field quality? integer The encoder's constant quality, smaller is better; 0: a good one. Default: 0.
---@field gop? integer Frames between key frames at most; 0: 48. Default: 0.
---@field orient? integer Turned when shown, 0 to 7: a display matrix. Default: 0.
---@field sar_num? integer Width of a pixel. Default: 1.
---@field sar_den? integer Height of a pixel. Default: 1.
---@field matrix? string bt709 where absent; bt601, smpte240m or bt2020.
---@field full_range? boolean Values of 0 to 255 instead of 16 to 235. Default: false.
---@field untagged? boolean Leave the colour tags out. Default: false.
---@field options? string More options of the encoder, name=value:name=value.
---@field mux_options? string More options of the container.
---@field bytes? integer Size of the pixels behind a light userdata. Default: 0.

--- Begin a clip that is given frame by frame.
---@param path string
---@param options moonreel.core.media.encoder.options
---@return mr.Encoder
function media.encoder(path, options) end

---@class moonreel.core.media.encode.options
---@field frames? integer How many the pixels hold; encode() alone. Default: 1.
---@field height? integer Rows of a frame, required. Default: 0.
---@field width? integer Columns of a frame, required. Default: 0.
---@field fps? number Frames per second, at most 1000. Default: 24.
---@field rate_num? integer The rate as a fraction, in place of fps; 0: from fps. Default: 0.
---@field rate_den? integer Its lower half. Default: 1.
---@field codec? string h264, vp9, vp8, av1, hevc, ...; by container where absent.
---@field pixel_format? string yuv420p where absent.
---@field quality? integer The encoder's constant quality, smaller is better; 0: a good one. Default: 0.
---@field gop? integer Frames between key frames at most; 0: 48. Default: 0.
---@field orient? integer Turned when shown, 0 to 7: a display matrix. Default: 0.
---@field sar_num? integer Width of a pixel. Default: 1.
---@field sar_den? integer Height of a pixel. Default: 1.
---@field matrix? string bt709 where absent; bt601, smpte240m or bt2020.
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

--- Decode every frame of a clip and hand out none: its facts, or what is damaged.
---@param path string
---@return table
function media.watch(path) end

---@class moonreel.core.media.decode.options
---@field frames? integer How many; 0: all there are from `start` on. Default: 0.
---@field height? integer Rows; 0: as the clip is shown. Default: 0.
---@field width? integer Columns; 0: as the clip is shown. Default: 0.
---@field start? integer The first frame, counted from 0. Default: 0.
---@field interval? integer Frames from one wanted to the next. Default: 1.
---@field filter? string bilinear where absent; area, bicubic or lanczos.
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
---@field picture? boolean As pictures are scaled, which gives u8; else as frames are, which gives f32 of -1..1. Default: false.

--- Frames u8 [n, 3, H, W] scaled so that they cover a size, and the middle of them, as Open-Sora does it.
---@param pixels mr.Tensor
---@param options moonreel.core.media.cover.options
---@return mr.Tensor
function media.cover(pixels, options) end

return media
