--- Flux's autoencoder of pictures: encodes every frame of a clip separately to a latent, drawn from
-- a normal distribution. Ref: black-forest-labs/flux, ae; opensora-2.0.md 15.
-- @module moonreel.models.autoencoder_2d
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local compare = require("moonreel.models.sizes").compare
local kl = require "moonreel.models.autoencoder_2d.kl"
local latents = require "moonreel.models.latents"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local shared = require "moonreel.nn.shared"
local read_config = require "moonreel.text.config"
local volume = require "moonreel.nn.volume"
local weights = require "moonreel.models.autoencoder_2d.weights"

local pictures = {}

--- Its weights are in a separate file, are not trained and are not part of checkpoints.
pictures.apart = true

--- What ranks can share of its clips.
pictures.cuts = { rows = true }

local Autoencoder = latents.class(pictures.cuts)

-- converts the recipe's fields to those of the layers
local function sizes_of(fields)
  local widths = {}
  for i, times in ipairs(fields.ch_mult) do
    widths[i] = times * fields.ch
  end
  return { block_out_channels = widths, layers_per_block = fields.num_res_blocks,
    latent_channels = fields.z_channels, norm_num_groups = fields.norm_groups,
    in_channels = fields.in_channels, out_channels = fields.out_ch, use_quant_conv = false,
    use_post_quant_conv = false }
end

-- checks that channels of all levels can be divided into the groups of norms
local function check_groups(where, sizes)
  for i, width in ipairs(sizes.block_out_channels) do
    if width % sizes.norm_num_groups ~= 0 then
      base.raise("MR_E_RECIPE", ("%s: level %d of the autoencoder has %d channels, which cannot be "
        .. "divided into %d groups; expected a multiple of the number of groups"):format(where,
        i - 1, width, sizes.norm_num_groups))
    end
  end
end

--- The autoencoder without its weights.
---@param fields table     of the recipe
---@param run table        dtype
---@return mr.Autoencoder  each frame of a clip is a picture, so any number of frames is allowed
function pictures.new(_, fields, run)
  local sizes = sizes_of(fields)
  check_groups("vae.ch, ch_mult and norm_groups", sizes)
  return setmetatable({ apart = true, lengths = "any", channels = fields.z_channels, step = 1,
    side = kl.factor(sizes), sizes = sizes, where = "the recipe", scale = fields.scale_factor,
    shift = fields.shift_factor, dtype = run.dtype, maps = { weights } }, Autoencoder)
end

-- limits of numbers in config.json: type, least and largest value
local NUMBERS <const> = { in_channels = { "integer", 1, 1024 },
  out_channels = { "integer", 1, 1024 }, latent_channels = { "integer", 1, 1024 },
  layers_per_block = { "integer", 1, 64 },
  norm_num_groups = { "integer", 1, 1 << 16 }, scaling_factor = { "number", 1e-6, 1e6 },
  shift_factor = { "number", -1e6, 1e6 } }

-- a value of config.json; nil: it is not there
local function said_of(said, field)
  local value = said[field]
  if value == json.null then
    return nil
  end
  return value
end

-- a number of config.json, or the default
local function number_of(path, said, field, default)
  local value, row = said_of(said, field), NUMBERS[field]
  if value == nil then
    return default
  end
  local good = type(value) == "number" and value >= row[2] and value <= row[3]
    and (row[1] == "number" or math.type(value) == "integer")
  if not good then
    base.raise("MR_E_CKPT", ("%s: %s is %s; expected %s from %g to %g"):format(path, field,
      json.encode(value), row[1] == "integer" and "a whole number" or "a number", row[2], row[3]))
  end
  return value
end

-- the widths of its levels
local function widths_of(path, value)
  local good = type(value) == "table" and #value > 0
  for _, width in ipairs(good and value or {}) do
    good = good and math.type(width) == "integer" and width > 0 and width <= 1 << 14
  end
  if not good then
    base.raise("MR_E_CKPT", ("%s: block_out_channels is %s; expected widths, whole numbers of at "
      .. "most %d"):format(path, json.encode(value), 1 << 14))
  end
  return value
end

--- Reads the sizes in config.json next to its weights, in the form of diffusers.
---@param folder string  folder of config.json
function Autoencoder:read(folder)
  local path = folder .. "/config.json"
  local said = base.exists(path) and read_config(path) or {}
  local widths = said_of(said, "block_out_channels")
  if not widths then
    return
  end
  local sizes = nn.merged(self.sizes)
  for field, was in pairs(sizes) do
    sizes[field] = NUMBERS[field] and number_of(path, said, field, was) or was
  end
  sizes.block_out_channels = widths_of(path, widths)
  if kl.factor(sizes) ~= self.side or sizes.latent_channels ~= self.channels then
    base.raise("MR_E_CKPT", ("%s: %d levels and %d latent channels; the recipe has %d and %d")
      :format(path, #sizes.block_out_channels, sizes.latent_channels,
      #self.sizes.block_out_channels, self.channels))
  end
  check_groups(path, sizes)
  self.sizes, self.where = sizes, path
  self.scale = number_of(path, said, "scaling_factor", self.scale)
  -- files of diffusers have null if nothing is subtracted
  self.shift = number_of(path, said, "shift_factor",
    said.shift_factor == json.null and 0 or self.shift)
end

--- Latent size {C, T, H, W} of a clip.
function Autoencoder:latent(frames, height, width)
  return { self.channels, frames, height // self.side, width // self.side }
end

--- Largest number of frames that `latent` latent frames encode.
function Autoencoder.most_frames(_, latent) return latent end

--- Number of frames at the beginning of a clip that `latent` latent frames encode.
function Autoencoder.head(_, latent) return latent end

--- Number of frames at the end of a clip whose latents are the last ones.
function Autoencoder.tail(_, _, latent) return latent end

--- Refuses weights of other sizes.
---@param shape_of fun(parameter: string): table?  in the file
---@param path string  of the weights
function Autoencoder:check(shape_of, path)
  local sizes = self.sizes
  compare({
    { "ch", "encoder.conv_in.weight", 1, sizes.block_out_channels[1] },
    { "in_channels", "encoder.conv_in.weight", 2, sizes.in_channels },
    { "z_channels", "decoder.conv_in.weight", 2, sizes.latent_channels },
    { "ch times the last of ch_mult", "decoder.conv_in.weight", 1,
      sizes.block_out_channels[#sizes.block_out_channels] },
    { "out_ch", "decoder.conv_out.weight", 1, sizes.out_channels },
  }, self.where, shape_of, path)
end

--- Its parts with weights: one, the whole autoencoder.
function Autoencoder:parts()
  return { { name = "autoencoder", declare = function(params)
    return kl.new(nn.scope(params, "", { frozen = true }), self.sizes, "flux")
  end } }
end

-- ---- calls for a clip

local calls = {}

function calls.encode(self, s, at)
  local cells = { 1, self.channels, s.size[3], s.size[4] }
  return { part = "autoencoder", key = ("encode %s %dx%d"):format(s.dtype, s.height, s.width),
    takes = { pixels = { "pixels", at, dtype = s.dtype, shape = { 1, 3, s.height, s.width } },
      noise = { "pictures", at, dtype = "f32", shape = cells } },
    gives = { out = { "z", at, 1 } },
    nodes = function(g, net, io)
      local x = volume.pixels(io.pixels, 1, self.dtype)
      local moments = shared.through(g, self.share, x, self.side, function(own)
        self:check_rows(g, s.height)
        return net:encode(g, own)
      end)
      local z = volume.draw(moments, volume.channels_last(io.noise, 1))
      return (ops.copy(volume.channels_first(self:scaled(z))))
    end }
end

function calls.decode(self, s, at)
  local cells = { 1, self.channels, s.size[3], s.size[4] }
  return { part = "autoencoder", key = ("decode %dx%d"):format(s.size[3], s.size[4]),
    takes = { z = { "z", at, dtype = "f32", shape = cells } },
    gives = { out = { "pixels", at, 1 } },
    nodes = function(g, net, io)
      local z = nn.cast(self:unscaled(volume.channels_last(io.z, 1)), self.dtype)
      local x = shared.through(g, self.share, z, 1, function(own) return net:decode(g, own) end)
      return nn.cast(volume.channels_first(x), "f32")
    end }
end

--- The calls for a clip, picture by picture, for moonreel.encoder.
---@param job string   "encode": pixels and draws to z; "decode": z to pixels
---@param s table      frames, height, width; for encode: dtype of pixels; size of the latents
---@return table[]
function Autoencoder:calls(job, s)
  local list = {}
  for at = 0, s.frames - 1 do
    list[at + 1] = calls[job](self, s, at)
  end
  return list
end

--- The draws of a clip: a normal draw for each picture.
---@return table<string, table>  {purpose, shape} by the name of the value
function Autoencoder:draws(frames, height, width)
  local size = self:latent(frames, height, width)
  return { pictures = { "latent of pictures", { frames, size[1], size[3], size[4] } } }
end

return pictures
