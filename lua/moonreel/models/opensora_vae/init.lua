--- Video autoencoder of Open-Sora 1.2: each picture becomes a latent (kl.lua), then four latents of
-- pictures become one (temporal.lua), in independent pieces of 17 frames. Ref: hpcaitech/Open-Sora
-- v1.2 (bde3c420), OpenSoraVAE_V1_2; opensora-1.2.md 5.
-- @module moonreel.models.opensora_vae
local latents = require "moonreel.models.latents"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local kl = require "moonreel.models.autoencoder_2d.kl"
local losses = require "moonreel.models.opensora_vae.losses"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local shared = require "moonreel.nn.shared"
local sizes = require "moonreel.models.opensora_vae.sizes"
local temporal = require "moonreel.models.opensora_vae.temporal"
local volume = require "moonreel.nn.volume"
local weights = require "moonreel.models.opensora_vae.weights"

local vae = {}

--- Its weights are in separate files, are not trained and are not part of checkpoints.
vae.apart = true

-- scale of a picture's latent
local FACTOR = 0.18215
-- least variance of a latent's channel
local FLOOR = 1e-6

--- What ranks can share of its clips: rows, or whole pictures if there are enough at once.
vae.cuts = { rows = true }

local Autoencoder = latents.class(vae.cuts)

--- Default weights of the losses in training.
vae.loss_weights = { kl = 0, perceptual = 0 }

--- The autoencoder without its weights.
---@param fields table     of the recipe: micro_frame_size, micro_batch_size, vae_2d, vae_temporal
---@return mr.Autoencoder  `channels` per latent cell, `inner` before frames are joined; `side`:
---   pixels of a cell's side; `step`: frames of a latent frame; `frames` of a piece in time, nil:
---   all at once; `pictures` at once
function vae.new(_, fields)
  local known = sizes.of(fields)
  return setmetatable({apart = true, lengths = "any", channels = known.temporal.latent_channels,
    inner = known.spatial.latent_channels, side = kl.factor(known.spatial),
    step = temporal.factor(known.temporal), frames = fields.micro_frame_size,
    pictures = fields.micro_batch_size, fields = fields, maps = {weights}}, Autoencoder)
end

--- The autoencoder of an open file: whole, or only its half for pictures.
---@param layout string|nil  the layout of other names in the file, from weights.lua
---@param folder string      folder of config.json
---@param fields table       as in new
---@return mr.Autoencoder
function vae.of_file(layout, folder, fields)
  if layout == weights.pictures then
    return vae.of_pictures(fields, sizes.read(folder, fields).spatial)
  end
  return vae.new(nil, fields)
end

--- Only the half for pictures: the latents of a clip are those of its pictures, before they are
-- joined in time.
---@param fields table   as in new
---@param spatial table  its sizes, from sizes.read
---@return mr.Autoencoder
function vae.of_pictures(fields, spatial)
  local self = vae.new(nil, {micro_frame_size = fields.micro_frame_size,
    micro_batch_size = fields.micro_batch_size, vae_2d = spatial})
  self.alone, self.channels, self.step = true, self.inner, 1
  return self
end

--- An autoencoder of which one half trains, on the other half. Its parameters belong to the run.
---@param params mr.Params
---@param fields table  of the recipe: as in new, and trains: "pictures" or "frames"
---@return mr.Autoencoder
function vae.trained(params, fields)
  local self = vae.new(nil, fields)
  self.apart, self.trains = false, fields.trains or "pictures"
  -- ranks that share the tokens of a batch exchange nothing in it
  self.config = latents.ALONE
  self:declare(nn.scope(params), sizes.of(fields))
  return self
end

--- Latent size {C, T, H, W} of a clip: the last piece in time may be shorter.
function Autoencoder:latent(frames, height, width)
  local piece, step = self.frames or frames, self.step
  return {self.channels, frames // piece * -(-piece // step) + -(-(frames % piece) // step),
    height // self.side, width // self.side}
end

--- Frames in each piece of a clip.
---@param frames integer
---@return integer[]
function Autoencoder:pieces(frames)
  local list, left = {}, frames
  while left > 0 do
    list[#list + 1] = math.min(self.frames or frames, left)
    left = left - list[#list]
  end
  return list
end

--- Latent frames of a piece.
function Autoencoder:latent_frames(frames) return -(-frames // self.step) end

--- Largest number of frames that `latent` latent frames encode.
---@param latent integer
---@return integer
function Autoencoder:most_frames(latent)
  if not self.frames then
    return self.step * latent
  end
  local n = self:latent_frames(self.frames)
  return latent // n * self.frames + latent % n * self.step
end

--- Number of frames at the beginning of a clip that `latent` latent frames encode: whole pieces.
---@param latent integer
---@return integer
function Autoencoder:head(latent)
  local piece = self.frames or self.step
  local n = self:latent_frames(piece)
  if latent % n ~= 0 then
    base.raise("MR_E_USAGE", ("condition_frame_length: %d latent frames are not a whole number "
      .. "of pieces; expected a multiple of %d"):format(latent, n))
  end
  return latent // n * piece
end

--- Frames of the pieces at the end of a clip whose latents are the last ones.
---@param frames integer  of the clip
---@param latent integer
---@return integer
function Autoencoder:tail(frames, latent)
  local pieces, n = self:pieces(frames), 0
  for i = #pieces, 1, -1 do
    if latent > 0 then
      n, latent = n + pieces[i], latent - self:latent_frames(pieces[i])
    end
  end
  return n
end

--- Reads the sizes next to its weights.
---@param folder string  folder of config.json
function Autoencoder:read(folder) self.said = sizes.read(folder, self.fields) end

--- Refuses weights with other sizes than those that were read.
---@param shape_of fun(parameter: string): table?  in the file
---@param path string  of the weights
function Autoencoder:check(shape_of, path) sizes.check(self.said, shape_of, path) end

--- Its parts with weights: one, the whole autoencoder.
function Autoencoder:parts()
  return {{name = "autoencoder", declare = function(params)
    self:declare(nn.scope(params, "", {frozen = true}), self.said)
    return self
  end}}
end

-- a buffer with a number per channel
local function buffer(scope, name, values)
  return scope:add(name, {1, #values, 1, 1, 1}, {kind = "values",
    values = T.from({1, #values, 1, 1, 1}, values)}, {buffer = true, frozen = true})
end

-- refuses numbers that belong to another autoencoder
local function expect(config, what, came, expected)
  if came ~= expected then
    base.raise("MR_E_CKPT", ("%s: %s %d; this autoencoder has %d"):format(config.where, what, came,
      expected))
  end
end

--- Declares the parameters.
---@param scope mr.Scope   from nn.scope
---@param config table     from sizes.read
function Autoencoder:declare(scope, config)
  local function group(half)
    return self.trains and self.trains ~= half and {frozen = true} or nil
  end
  self.spatial = kl.new(scope:child("spatial_vae.module", group("pictures")), config.spatial)
  expect(config, "vae_2d: latent_channels", self.spatial.config.latent_channels, self.inner)
  expect(config, "vae_2d: pixels of a cell's side", self.spatial.factor, self.side)
  self.scale = buffer(scope, "scale", config.scale)
  self.shift = buffer(scope, "shift", config.shift)
  self.mean, self.deviation = self.shift, self.scale
  if self.alone then
    return
  end
  self.temporal = temporal.new(scope:child("temporal_vae", group("frames")), config.temporal)
  expect(config, "vae_temporal: in_out_channels", self.temporal.config.in_out_channels, self.inner)
  expect(config, "vae_temporal: latent_channels", self.temporal.config.latent_channels,
    self.channels)
  expect(config, "vae_temporal: frames of a latent frame", self.temporal.factor, self.step)
end

local draw, channels_last = volume.draw, volume.channels_last
local channels_first = volume.channels_first

-- the dtype in which the layers compute
local function dtype_of(self, g) return g:param(self.scale).dtype end

--- Latents of pictures, before they are joined in time.
---@param pixels mr.Value  u8 [N, 3, H, W], or f32 of -1..1
---@param noise mr.Value   f32 [N, C, H / 8, W / 8]
---@return mr.Value        f32 like noise
---@return table           mean, logvar of the draws: f32, channels last, before their factor
function Autoencoder:encode_pictures(g, pixels, noise)
  local x = volume.pixels(pixels, 1, dtype_of(self, g))
  local moments = shared.pictures(g, self.share, x, self.side, function(own)
    self:check_rows(g, pixels.shape[3])
    return self.spatial:encode(g, own)
  end)
  local z, normal = draw(moments, channels_last(noise, 1))
  return channels_first(ops.affine(z, {scale = FACTOR})), normal
end

-- the buffer of a number per channel, over [.., C] in f32
local function per_channel(g, name, C) return nn.cast(g:param(name), "f32"):reshape{C} end

--- Sums over each channel of the means of a batch's latents, for scale and shift; for clips that
-- are a single piece in time.
---@param pixels mr.Value  u8 [B, T, 3, H, W]
---@return mr.Value sum, mr.Value squares   f32 [C]
function Autoencoder:moments(g, pixels)
  -- a single rank measures them
  self = setmetatable({share = false}, {__index = self})
  local B, frames, _, H, W = table.unpack(pixels.shape)
  local cells = self:latent(frames, H, W)
  local function still(...) return (g:const(T.new("f32", {...}))) end
  local x = self:encode_pictures(g, pixels:reshape{B * frames, 3, H, W},
    still(B * frames, self.inner, cells[3], cells[4]))
  local _, normal = self:join(g, x, still(B * cells[2], cells[1], cells[3], cells[4]), frames)
  local axes = {0, 1, 2, 3}
  return (ops.sum(normal.mean, {axes = axes})),
    (ops.sum(normal.mean * normal.mean, {axes = axes}))
end

--- Shift and scale per channel from sums over n values.
---@return table shift, table scale
function Autoencoder:normalisation(sums, squares, n)
  local shift, scale = {}, {}
  for k = 1, self.channels do
    shift[k] = sums[k] / n
    scale[k] = math.max(squares[k] / n - shift[k] ^ 2, FLOOR) ^ 0.5
  end
  return shift, scale
end

--- Latents of a piece in time of clips, before scale and shift.
---@param x mr.Value      f32 [B frames, 4, h, w], from encode_pictures
---@param noise mr.Value  f32 [B latent frames, C, h, w]
---@param frames integer  of the piece
---@return mr.Value       f32 [B, latent frames, h, w, C]
---@return table          mean, logvar of the draws, in the same shape
function Autoencoder:join(g, x, noise, frames)
  x = nn.cast(channels_last(x, frames), dtype_of(self, g))
  local moments = shared.through(g, self.share, x, 1,
    function(own) return self.temporal:encode(g, own) end)
  return draw(moments, channels_last(noise, self:latent_frames(frames)))
end

--- Latents of the pictures in a piece in time of clips: the inverse of `join`.
---@param z mr.Value      f32 [B, latent frames, h, w, C]
---@param frames integer
---@return mr.Value       f32 [B frames, 4, h, w]
function Autoencoder:part(g, z, frames)
  local x = shared.through(g, self.share, nn.cast(z, dtype_of(self, g)), 1,
    function(own) return self.temporal:decode(g, own, frames) end)
  return nn.cast(channels_first(x), "f32")
end

--- Latents of a piece in time.
---@param x mr.Value      f32 [frames, 4, h, w], from encode_pictures
---@param noise mr.Value  f32 [latent frames, C, h, w]
---@return mr.Value       f32 like noise
function Autoencoder:encode_piece(g, x, noise)
  if self.alone then
    return x
  end
  local z = self:join(g, x, noise, x.shape[1])
  return channels_first((z - per_channel(g, self.shift, self.channels))
    / per_channel(g, self.scale, self.channels))
end

--- Latents of the pictures in a piece in time.
---@param z mr.Value      f32 [latent frames, C, h, w]
---@param frames integer
---@return mr.Value       f32 [frames, 4, h, w]
function Autoencoder:decode_piece(g, z, frames)
  if self.alone then
    return ops.copy(z)
  end
  local x = channels_last(z, z.shape[1]) * per_channel(g, self.scale, self.channels)
    + per_channel(g, self.shift, self.channels)
  return self:part(g, x, frames)
end

--- Decodes latents to pictures.
---@param x mr.Value  f32 [N, 4, h, w], from decode_piece
---@return mr.Value   f32 [N, 3, 8 h, 8 w], about -1..1, not clamped
function Autoencoder:decode_pictures(g, x)
  x = nn.cast(ops.affine(channels_last(x, 1), {scale = 1 / FACTOR}), dtype_of(self, g))
  local y = shared.pictures(g, self.share, x, 1,
    function(own) return self.spatial:decode(g, own) end)
  return nn.cast(channels_first(y), "f32")
end

--- The losses of a batch in training.
---@param io table   B; pixels u8 [B, T, 3, H, W]; seed, keys, epoch of the draws; tap(name, value):
---   nil or a function that sees the draws
---@return table     for moonreel.losses; with clips if it trains on pictures
function Autoencoder:losses(g, io)
  local _, frames, _, H, W = table.unpack(io.pixels.shape)
  return losses[self.trains](g, self, io, self:latent(frames, H, W))
end

-- ---- calls for a clip

local calls = {}

-- pictures [first, first + n) of a clip to latents
local function encode_pictures(self, s, size, first, n)
  local noise = {n, self.inner, size[3], size[4]}
  return {part = "autoencoder", key = ("encode pictures %s %dx3x%dx%d"):format(s.dtype, n, s.height,
    s.width), takes = {pixels = {"pixels", first, dtype = s.dtype,
      shape = {n, 3, s.height, s.width}}, noise = {"pictures", first, dtype = "f32",
      shape = noise}}, gives = {out = {"x", first, n}},
    nodes = function(g, auto, io)
      return (ops.copy((auto:encode_pictures(g, io.pixels, io.noise))))
    end}
end

-- latents of a piece of n pictures, joined in time: latent frames from `at` on
local function encode_piece(self, size, first, n, at)
  local t, h, w = self:latent_frames(n), size[3], size[4]
  return {part = "autoencoder", key = ("encode piece %dx%dx%d"):format(n, h, w),
    takes = {x = {"x", first, dtype = "f32", shape = {n, self.inner, h, w}},
      noise = {"frames", at, dtype = "f32", shape = {t, self.channels, h, w}}},
    gives = {out = {"z", at, t}},
    nodes = function(g, auto, io) return (ops.copy(auto:encode_piece(g, io.x, io.noise))) end}
end

-- pictures, several at once; a piece in time as soon as all of its pictures are there
function calls.encode(self, s)
  local size, list, joined, at = self:latent(s.frames, s.height, s.width), {}, 0, 0
  local pieces, piece = self:pieces(s.frames), 1
  for first = 0, s.frames - 1, self.pictures do
    local n = math.min(self.pictures, s.frames - first)
    list[#list + 1] = encode_pictures(self, s, size, first, n)
    while pieces[piece] and joined + pieces[piece] <= first + n do
      list[#list + 1] = encode_piece(self, size, joined, pieces[piece], at)
      joined, at, piece = joined + pieces[piece], at + self:latent_frames(pieces[piece]), piece + 1
    end
  end
  return list
end

-- latents of the pictures of a piece, from latent frames at and after
local function decode_piece(self, size, first, n, at)
  local t, h, w = self:latent_frames(n), size[3], size[4]
  return {part = "autoencoder", key = ("decode piece %dx%dx%d"):format(n, h, w),
    takes = {z = {"z", at, dtype = "f32", shape = {t, self.channels, h, w}}},
    gives = {out = {"x", first, n}},
    nodes = function(g, auto, io) return auto:decode_piece(g, io.z, n) end}
end

local function decode_pictures(self, size, first, n)
  local shape = {n, self.inner, size[3], size[4]}
  return {part = "autoencoder", key = "decode pictures " .. table.concat(shape, "x"),
    takes = {x = {"x", first, dtype = "f32", shape = shape}}, gives = {out = {"pixels", first, n}},
    nodes = function(g, auto, io) return auto:decode_pictures(g, io.x) end}
end

-- piece by piece, with several pictures of a piece at once
function calls.decode(self, s)
  local list, first, at = {}, 0, 0
  for _, n in ipairs(self:pieces(s.frames)) do
    list[#list + 1] = decode_piece(self, s.size, first, n, at)
    for from = 0, n - 1, self.pictures do
      list[#list + 1] = decode_pictures(self, s.size, first + from, math.min(self.pictures,
        n - from))
    end
    first, at = first + n, at + self:latent_frames(n)
  end
  return list
end

--- The calls for a clip, in order, for moonreel.encoder.
---@param job string   "encode": pixels and draws to z; "decode": z to pixels
---@param s table      frames, height, width; for encode: dtype of pixels; for decode: size of the
---   latents
---@return table[]
function Autoencoder:calls(job, s) return calls[job](self, s) end

--- The draws of a clip: normal draws with these shapes, each with its own purpose.
---@return table<string, table>  {purpose, shape} by the name of the value
function Autoencoder:draws(frames, height, width)
  local size = self:latent(frames, height, width)
  return {pictures = {"latent of pictures", {frames, self.inner, size[3], size[4]}},
    frames = {"latent of frames", {size[2], size[1], size[3], size[4]}}}
end

return vae
