--- Hunyuan video autoencoder: encodes a clip of 4 n + 1 frames to n + 1 latent frames, drawn from a
-- normal distribution. A latent frame depends on earlier frames through convolutions and attention,
-- and on all frames through the norms. Ref: Kong et al. 2024, arXiv:2412.03603; opensora-2.0.md 11.
-- @module moonreel.models.hunyuan_vae
local base = require "moonreel.core.base"
local compare = require("moonreel.models.sizes").compare
local latents = require "moonreel.models.latents"
local losses = require "moonreel.losses"
local network = require "moonreel.models.hunyuan_vae.network"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local tiles = require "moonreel.nn.tiles"
local volume = require "moonreel.nn.volume"
local weights = require "moonreel.models.hunyuan_vae.weights"

local hunyuan = {}

--- Its weights are in separate files, are not trained and are not part of checkpoints.
hunyuan.apart = true

local BYTES = { f32 = 4, bf16 = 2 } -- bytes of an element
local PIECE = 128                    -- default in MiB

--- What ranks can share of its clips.
hunyuan.cuts = { rows = true, channels = true }

local Autoencoder = latents.class(hunyuan.cuts)

-- refuses sizes that the layers cannot have
local function check_fields(fields)
  local levels, space, time = #fields.block_out_channels, fields.spatial_compression_ratio,
    fields.time_compression_ratio
  for i, width in ipairs(fields.block_out_channels) do
    if width % fields.norm_num_groups ~= 0 then
      base.raise("MR_E_RECIPE", ("block_out_channels[%d] is %d channels, which cannot be divided "
        .. "into norm_num_groups = %d groups; try: %d"):format(i - 1, width, fields.norm_num_groups,
        (width // fields.norm_num_groups + 1) * fields.norm_num_groups))
    end
  end
  if 1 << levels - 1 ~= space or not (time == 4 and levels >= 3 or time == space) then
    base.raise("MR_E_RECIPE", ("%d levels with spatial_compression_ratio = %d and "
      .. "time_compression_ratio = %d; expected %d in space, and in time 4 or the same; try: "
      .. "spatial_compression_ratio = %d, time_compression_ratio = %d"):format(levels, space, time,
      1 << levels - 1, 1 << levels - 1, levels >= 3 and 4 or 1 << levels - 1))
  end
end

-- the tiles of a recipe: {encode, decode}, each {space, time}
local function tiles_by(fields)
  local how = { encode = {}, decode = {} }
  if fields.use_spatial_tiling then
    how.encode.space, how.decode.space = tiles.of("sample_size", fields.sample_size,
      fields.spatial_compression_ratio, fields.tile_overlap_factor, 0)
  end
  if fields.use_temporal_tiling then
    how.encode.time, how.decode.time = tiles.of("sample_tsize", fields.sample_tsize,
      fields.time_compression_ratio, fields.tile_overlap_factor, 1)
  end
  return how
end

-- elements of a piece; nil: whole clips
local function elements_of(fields, dtype)
  return fields.piece_size > 0 and (fields.piece_size << 20) // BYTES[dtype] or nil
end

--- The autoencoder without its weights.
---@param fields table     of the recipe
---@param run table        dtype; compat: clips are processed in the reference's tiles, if fields
---   ask for them
---@return mr.Autoencoder
function hunyuan.new(_, fields, run)
  check_fields(fields)
  local step = fields.time_compression_ratio
  return setmetatable({ apart = true, lengths = ("%dn+1"):format(step), step = step,
    side = fields.spatial_compression_ratio, channels = fields.latent_channels, sizes = fields,
    scale = fields.scale_factor, shift = fields.shift_factor, dtype = run.dtype,
    most = elements_of(fields, run.dtype), run = run,
    tiles = run.compat and tiles_by(fields) or { encode = {}, decode = {} }, maps = { weights } },
    Autoencoder)
end

--- Default weights of the losses in training, as in the reference; a discriminator may judge the
-- reconstruction.
hunyuan.loss_weights = { kl = 5e-4, perceptual = 0.5, adversary = true }

--- An autoencoder that trains. Its parameters belong to the run.
---@param params mr.Params
---@param fields table     of the recipe
---@param run table        as in new
---@return mr.Autoencoder
function hunyuan.trained(params, fields, run)
  local self = hunyuan.new(nil, fields, run)
  self.apart, self.config = false, latents.ALONE
  self.network = network.new(nn.scope(params), fields)
  return self
end

--- The other way to process clips, in pieces or as a whole; results are the same.
---@return mr.Autoencoder
---@return string          the field that selects it
function Autoencoder:other()
  local size = self.most and 0 or PIECE
  local other = hunyuan.new(nil, nn.merged(self.sizes, { piece_size = size }), self.run)
  other:share_over(self.share)
  return other, ("piece_size = %d"):format(size)
end

--- Latent size {C, T, H, W} of a clip; a rest that is no whole cell counts as one.
function Autoencoder:latent(frames, height, width)
  return { self.channels, (frames - 1) // self.step + 1, (height - 1) // self.side + 1,
    (width - 1) // self.side + 1 }
end

--- Counts that have to be divisible if ranks share channels: a rank has whole groups.
---@return table[]  {field, n}
function Autoencoder:channel_counts()
  return { { "norm_num_groups", self.sizes.norm_num_groups } }
end

--- Largest number of frames that `latent` latent frames encode.
function Autoencoder:most_frames(latent) return self.step * (latent - 1) + 1 end

--- Number of frames at the beginning of a clip that `latent` latent frames encode.
function Autoencoder:head(latent) return self:most_frames(latent) end

--- Number of frames at the end of a clip whose latents are the last ones: they begin like a clip.
function Autoencoder:tail(frames, latent) return math.min(self:most_frames(latent), frames) end

--- Refuses weights of other sizes.
---@param shape_of fun(parameter: string): table?  in the file
---@param path string  of the weights
function Autoencoder:check(shape_of, path)
  local s = self.sizes
  local rows = {
    { "in_channels", "encoder.conv_in.conv.weight", 2, s.in_channels },
    { "latent_channels", "decoder.conv_in.conv.weight", 2, s.latent_channels },
    { "out_channels", "decoder.conv_out.conv.weight", 1, s.out_channels },
  }
  for i, width in ipairs(s.block_out_channels) do
    rows[#rows + 1] = { ("block_out_channels[%d]"):format(i - 1),
      ("encoder.down_blocks.%d.resnets.0.conv1.conv.weight"):format(i - 1), 1, width }
  end
  compare(rows, "the recipe", shape_of, path)
end

--- Its parts with weights: one, the whole autoencoder.
function Autoencoder:parts()
  return { { name = "autoencoder", declare = function(params)
    return network.new(nn.scope(params, "", { frozen = true }), self.sizes)
  end } }
end

-- ---- training

--- Encodes and decodes a batch of clips.
---@param x mr.Value      [B, T, H, W, C] of -1..1, in the dtype of the layers
---@param noise mr.Value  f32 [B, t, h, w, latent_channels], for the draws
---@param recompute function|nil  of a layer: recomputed in the backward pass
---@return mr.Value       f32 in the shape of x
---@return table          mean, logvar of the draws
function Autoencoder:reconstruct(g, x, noise, recompute)
  local z, normal = volume.draw(self:down(g, x,
    function(own) return self.network:encode(g, own, nil, recompute) end), noise)
  return nn.cast(self:up(g, nn.cast(z, self.dtype),
    function(own) return self.network:decode(g, own, nil, recompute) end), "f32"), normal
end

--- The losses of a batch in training.
---@param io table   B; pixels u8 [B, T, 3, H, W]; seed, keys, epoch of the draws; tap(name, value):
---   nil or a function that sees the draws; recompute: as in reconstruct, or nil
---@return table     for moonreel.losses
function Autoencoder:losses(g, io)
  local frames, height, width = self:clip_of(io.pixels)
  local C, t, h, w = table.unpack(self:latent(frames, height, width))
  local noise = ops.random_normal(io.seed, io.keys, io.epoch,
    { purpose = base.name_word "latent of clips", dims = { t, C, h, w } })
  if io.tap then
    io.tap("latent of clips", noise)
  end
  local y, normal = self:reconstruct(g, self:layers_of(io.pixels),
    volume.channels_last(noise:reshape { io.B * t, C, h, w }, t), io.recompute)
  return losses.of_clips(self:target_of(io.pixels), y, "decoder.conv_out.conv.weight", normal,
    self.share)
end

-- ---- calls for a clip

local calls = {}

function calls.encode(self, s)
  local cells = { s.size[2], s.size[1], s.size[3], s.size[4] }
  return { part = "autoencoder",
    key = ("encode %s %dx%dx%d"):format(s.dtype, s.frames, s.height, s.width),
    takes = { pixels = { "pixels", 0, dtype = s.dtype,
      shape = { s.frames, 3, s.height, s.width } },
      noise = { "clip", 0, dtype = "f32", shape = cells } },
    gives = { out = { "z", 0, s.size[2] } },
    nodes = function(g, net, io)
      local x = volume.pixels(io.pixels, s.frames, self.dtype)
      local moments = tiles.through(g, x, self.tiles.encode, function(tile)
        return self:down(g, tile, function(own) return net:encode(g, own, self.most) end)
      end)
      local z = volume.draw(moments, volume.channels_last(io.noise, s.size[2]))
      return (ops.copy(volume.channels_first(self:scaled(z))))
    end }
end

function calls.decode(self, s)
  local cells = { s.size[2], s.size[1], s.size[3], s.size[4] }
  return { part = "autoencoder", key = "decode " .. table.concat(cells, "x"),
    takes = { z = { "z", 0, dtype = "f32", shape = cells } },
    gives = { out = { "pixels", 0, self:most_frames(s.size[2]) } },
    nodes = function(g, net, io)
      local z = nn.cast(self:unscaled(volume.channels_last(io.z, s.size[2])), self.dtype)
      local x = tiles.through(g, z, self.tiles.decode, function(tile)
        return self:up(g, tile, function(own) return net:decode(g, own, self.most) end)
      end)
      return nn.cast(volume.channels_first(x), "f32")
    end }
end

--- The calls for a clip, in order, for moonreel.encoder.
---@param job string   "encode": pixels and draws to z; "decode": z to pixels
---@param s table      frames, height, width; for encode: dtype of pixels; size of the latents
---@return table[]
function Autoencoder:calls(job, s) return { calls[job](self, s) } end

--- The draws of a clip: one normal draw for its latents.
---@return table<string, table>  {purpose, shape} by the name of the value
function Autoencoder:draws(frames, height, width)
  local size = self:latent(frames, height, width)
  return { clip = { "latent of clips", { size[2], size[1], size[3], size[4] } } }
end

return hunyuan
