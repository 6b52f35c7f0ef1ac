--- Sizes of the autoencoder: those of config.json next to its weights, or else the released ones,
-- compared with the tensors.
-- @module moonreel.models.opensora_vae.sizes
local base = require "moonreel.core.base"
local compare = require("moonreel.models.sizes").compare
local json = require "moonreel.core.json"
local kl = require "moonreel.models.autoencoder_2d.kl"
local listing = require "moonreel.text.listing"
local read_config = require "moonreel.text.config"
local temporal = require "moonreel.models.opensora_vae.temporal"

local sizes = {}

-- the reference's buffers, per channel
local SCALE, SHIFT = { 3.85, 2.32, 2.33, 3.06 }, { -0.10, 0.34, 0.27, 0.98 }

local function text(value)
  local words = {}
  for i, one in ipairs(type(value) == "table" and value or {}) do
    words[i] = tostring(one)
  end
  return type(value) == "table" and listing.shape(words) or tostring(value)
end

-- is it an integer from 1 on, or a boolean, like the default?
local function alike(value, default)
  if math.type(default) == "integer" then
    return math.type(value) == "integer" and value >= math.min(default, 1) and value <= 1 << 16
  end
  return type(value) == type(default)
end

-- a number of blocks, or one for each level
local function levels(value, count)
  local good = type(value) == "table" and #value == count
  for _, blocks in ipairs(good and value or {}) do
    good = good and math.type(blocks) == "integer" and blocks >= 0 and blocks <= 64
  end
  return good
end

-- the fields of `defaults` with the values of a table in config.json
local function fields_of(path, place, given, defaults)
  local out = {}
  for field, default in pairs(defaults) do
    local value = given[field]
    if value == nil or value == json.null then
      value = default
    end
    local good = alike(value, default) or field == "layers_per_block"
      and levels(value, #(given.block_out_channels or defaults.block_out_channels))
    good = good and (type(default) ~= "table" or #value > 0)
    for _, one in ipairs(good and type(default) == "table" and value or {}) do
      good = good and alike(one, default[1])
    end
    if not good then
      base.raise("MR_E_CKPT", ("%s: %s%s is %s; expected a value like %s"):format(path, place,
        field, text(value), text(default)))
    end
    out[field] = value
  end
  return out
end

-- a number per channel
local function channels_of(path, field, value, default)
  if value == nil then
    return default
  end
  local good = type(value) == "table" and #value == #default
  for _, one in ipairs(good and value or {}) do
    good = good and type(one) == "number"
  end
  if not good then
    base.raise("MR_E_CKPT", ("%s: %s is %s; expected %d numbers"):format(path, field, text(value),
      #default))
  end
  return value
end

-- the numbers of buffers if they are not given: the reference's for its four channels
local function normal_of(channels)
  if channels == #SCALE then
    return SCALE, SHIFT
  end
  local ones, zeros = {}, {}
  for i = 1, channels do
    ones[i], zeros[i] = 1, 0
  end
  return ones, zeros
end

--- The sizes in a recipe.
---@param fields table   of its record: vae_2d, vae_temporal; each may be absent
---@return table config  as from sizes.read
function sizes.of(fields)
  local config = { where = "the recipe",
    spatial = fields_of("the recipe", "vae_2d.", fields.vae_2d or {}, kl.defaults),
    temporal = fields_of("the recipe", "vae_temporal.", fields.vae_temporal or {},
      temporal.defaults) }
  config.scale, config.shift = normal_of(config.temporal.latent_channels)
  return config
end

--- The sizes next to weights; if there are none, those of the recipe.
---@param folder string    where config.json may be
---@param fields table|nil of the recipe, as in sizes.of
---@return table config    spatial, temporal: as kl.defaults and temporal.defaults; scale, shift;
---   where: the source
function sizes.read(folder, fields)
  local path = folder .. "/config.json"
  if not base.exists(path) and fields and (fields.vae_2d or fields.vae_temporal) then
    return sizes.of(fields)
  end
  local given = base.exists(path) and read_config(path) or nil
  local all = given or {}
  -- the half for pictures alone has its fields at the top level
  local pictures = type(all.vae_2d) == "table" and all.vae_2d or all
  local frames = type(all.vae_temporal) == "table" and all.vae_temporal or {}
  return { where = given and path or "the released sizes",
    spatial = fields_of(path, pictures ~= all and "vae_2d." or "", pictures, kl.defaults),
    temporal = fields_of(path, "vae_temporal.", frames, temporal.defaults),
    scale = channels_of(path, "scale", all.scale, SCALE),
    shift = channels_of(path, "shift", all.shift, SHIFT) }
end

-- rows {field, parameter, axis from 1, required value}
local function rows_of(config)
  local rows, s, t = {}, config.spatial, config.temporal
  local function row(...) rows[#rows + 1] = { ... } end
  local at = "spatial_vae.module."
  row("in_channels", at .. "encoder.conv_in.weight", 2, s.in_channels)
  for i, width in ipairs(s.block_out_channels) do
    -- a level without blocks has no tensors
    row(("block_out_channels[%d]"):format(i - 1),
      ("%sencoder.down_blocks.%d.resnets.0.conv1.weight"):format(at, i - 1), 1, width)
  end
  row("latent_channels", at .. "decoder.conv_in.weight", 2, s.latent_channels)
  row("out_channels", at .. "decoder.conv_out.weight", 1, s.out_channels)
  row("filters", "temporal_vae.encoder.conv_in.conv.weight", 1, t.filters)
  row("in_out_channels", "temporal_vae.encoder.conv_in.conv.weight", 2, t.in_out_channels)
  row("latent_channels", "temporal_vae.decoder.conv1.conv.weight", 2, t.latent_channels)
  for i, multiple in ipairs(t.channel_multipliers) do
    row(("channel_multipliers[%d] x filters"):format(i - 1),
      ("temporal_vae.encoder.block_res_blocks.%d.0.conv1.conv.weight"):format(i - 1), 1,
      multiple * t.filters)
  end
  return rows
end

-- checks that channels can be divided into the groups of norms
local function check_groups(config, field, groups, of, widths)
  for i, width in ipairs(widths) do
    if width % groups ~= 0 then
      base.raise("MR_E_CKPT", ("%s: %s is %d, but %s[%d] gives %d channels, which cannot be "
        .. "divided into this number of groups"):format(config.where, field, groups, of, i - 1,
        width))
    end
  end
end

-- checks that the blocks which config.json lists for a level exist
local function check_blocks(config, shape_of, source, field, count, form)
  for i = 0, count - 1 do
    if not shape_of(form:format(i)) then
      base.raise("MR_E_CKPT", ("%s: %s is %d in %s, but there is no '%s'"):format(source, field,
        count, config.where, form:format(i)))
    end
  end
end

--- Refuses weights of other sizes.
---@param config table        from sizes.read
---@param shape_of fun(parameter: string): table?  shape in the file
---@param source string       path of the weights
function sizes.check(config, shape_of, source)
  compare(rows_of(config), config.where, shape_of, source)
  local s, t = config.spatial, config.temporal
  if s.norm_group_channels == 0 then
    check_groups(config, "norm_num_groups", s.norm_num_groups, "block_out_channels",
      s.block_out_channels)
  end
  if math.type(s.layers_per_block) == "integer" then
    check_blocks(config, shape_of, source, "layers_per_block", s.layers_per_block,
      "spatial_vae.module.encoder.down_blocks.0.resnets.%d.conv1.weight")
  end
  if shape_of("temporal_vae.encoder.conv_in.conv.weight") then
    local widths = {}
    for i, multiple in ipairs(t.channel_multipliers) do
      widths[i] = multiple * t.filters
    end
    check_groups(config, "num_groups", t.num_groups, "channel_multipliers", widths)
    check_blocks(config, shape_of, source, "num_res_blocks", t.num_res_blocks,
      "temporal_vae.encoder.block_res_blocks.0.%d.conv1.conv.weight")
  end
end

return sizes
