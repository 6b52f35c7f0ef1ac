--- Deep compression autoencoder for clips: 32 x 32 pixels of four frames become one cell of 128
-- channels, without a random draw. A single frame gives one latent frame. The sums of linear
-- attention connect every cell with the whole clip, so a long clip is processed in pieces, in one
-- sweep for each of the sums, with the same results. Ref: Chen et al. 2024, arXiv:2410.10733;
-- opensora-2.0.md 12.
-- @module moonreel.models.dc_ae
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local compare = require("moonreel.models.sizes").compare
local latents = require "moonreel.models.latents"
local losses = require "moonreel.losses"
local network = require "moonreel.models.dc_ae.network"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local pieces = require "moonreel.nn.pieces"
local tiles = require "moonreel.nn.tiles"
local volume = require "moonreel.nn.volume"
local weights = require "moonreel.models.dc_ae.weights"

local dc_ae = {}

--- Its weights are in separate files, are not trained and are not part of checkpoints.
dc_ae.apart = true

-- a clip of fewer pieces needs less memory as a whole, because pieces keep state
local WORTH <const> = 6
local AT_ONCE <const> = 8 -- default frames of a piece

--- What ranks can share of its clips.
dc_ae.cuts = { rows = true, channels = true }

local Autoencoder = latents.class(dc_ae.cuts)

-- converts the recipe's fields to those of the layers
local function sizes_of(fields)
  local levels = #fields.widths
  local c = { in_channels = fields.in_channels, out_channels = fields.out_channels,
    latent_channels = fields.latent_channels, widths = fields.widths,
    encoder_blocks = fields.encoder_blocks, decoder_blocks = fields.decoder_blocks, types = {},
    temporal = {} }
  for i = 1, levels do
    c.types[i] = i > levels - fields.attention_levels and "EViTS5_GLU" or "ResBlock"
    c.temporal[i] = false
  end
  for _, level in ipairs(fields.temporal_levels) do
    c.temporal[level + 1] = true
  end
  return c
end

local function refuse(...) base.raise("MR_E_RECIPE", (...):format(select(2, ...))) end

-- checks levels that join frames: each occurs once and is followed by a coarser level
local function check_levels(fields)
  local seen, last = {}, #fields.widths - 2
  for _, level in ipairs(fields.temporal_levels) do
    if level > last or seen[level] then
      refuse("temporal_levels has %d%s; expected levels from 0 to %d, each once; try: "
        .. "temporal_levels = { %d }", level, seen[level] and " twice" or "", last, last)
    end
    seen[level] = true
  end
end

-- refuses sizes that the layers cannot have
local function check_sizes(c)
  local levels = #c.widths
  for _, field in ipairs { "encoder_blocks", "decoder_blocks" } do
    if #c[field] ~= levels then
      refuse("%s has %d entries; expected one for each of the %d widths", field,
        #c[field], levels)
    end
  end
  for i, width in ipairs(c.widths) do
    local after = c.widths[i + 1]
    if c.types[i] == "EViTS5_GLU" and width % network.HEAD ~= 0 then
      refuse("widths[%d] is %d; expected a multiple of %d, the channels of a head; try: %d", i - 1,
        width, network.HEAD, (width // network.HEAD + 1) * network.HEAD)
    elseif after and (width * 4 % after ~= 0 or after * 4 % width ~= 0) then
      refuse("widths[%d] and widths[%d] are %d and %d; expected four times each to be a multiple "
        .. "of the other; try: %d and %d", i - 1, i, width, after, width, 2 * width)
    end
  end
  if c.widths[levels] % c.latent_channels ~= 0 then
    refuse("latent_channels is %d; expected a divisor of the last width, %d; try: %d",
      c.latent_channels, c.widths[levels], c.widths[levels])
  end
end

-- the tiles of a recipe: {encode, decode}, each {space, time}
local function tiles_by(fields, side, step)
  local how = { encode = {}, decode = {} }
  if fields.use_spatial_tiling then
    how.encode.space, how.decode.space = tiles.of("spatial_tile_size", fields.spatial_tile_size,
      side, fields.tile_overlap_factor, 0)
  end
  if fields.use_temporal_tiling then
    how.encode.time, how.decode.time = tiles.of("temporal_tile_size", fields.temporal_tile_size,
      step, fields.tile_overlap_factor, 0)
  end
  return how
end

--- The autoencoder without its weights.
---@param fields table     of the recipe
---@param run table        dtype; compat: clips are processed in the reference's tiles, if fields
---   ask for them, and one latent frame decodes to one frame, although four frames also give one
---@return mr.Autoencoder
function dc_ae.new(_, fields, run)
  local sizes = sizes_of(fields)
  check_levels(fields)
  check_sizes(sizes)
  local side, step = 1 << #sizes.widths - 1, 1 << #fields.temporal_levels
  local how = run.compat and tiles_by(fields, side, step) or { encode = {}, decode = {} }
  local self = setmetatable({ apart = true, step = step, compat = run.compat and true or false,
    lengths = step > 1 and ("%dn or 1"):format(step) or "any", grouped = step > 1,
    at_once = fields.frames_at_once, fields = fields, run = run,
    side = side, channels = sizes.latent_channels, sizes = sizes,
    scale = fields.scaling_factor or 1, dtype = run.dtype,
    -- the neighbourhood of queries, keys and values is 5 x 5 x 5
    reach = sizes.types[#sizes.types] == "EViTS5_GLU" and 2 or nil,
    tiles = how, maps = { weights } }, Autoencoder)
  if next(how.encode) then
    -- there is no other way than tiles
    self.other = false
  end
  return self
end

--- Default weights of the losses in training, as in the reference; a discriminator may judge the
-- reconstruction.
dc_ae.loss_weights = { perceptual = 0.5, adversary = true }

--- An autoencoder that trains. Its parameters belong to the run.
---@param params mr.Params
---@param fields table     of the recipe
---@param run table        as in new
---@return mr.Autoencoder
function dc_ae.trained(params, fields, run)
  local self = dc_ae.new(nil, fields, run)
  self.apart, self.config = false, latents.ALONE
  self.network = network.new(nn.scope(params), self.sizes)
  return self
end

--- The other way to process clips, in pieces or as a whole; results are the same.
---@return mr.Autoencoder
---@return string          the field that selects it
function Autoencoder:other()
  local frames = self.at_once > 0 and 0 or AT_ONCE
  local other = dc_ae.new(nil, nn.merged(self.fields, { frames_at_once = frames }), self.run)
  other:share_over(self.share)
  return other, ("frames_at_once = %d"):format(frames)
end

--- Latent size {C, T, H, W} of a clip.
function Autoencoder:latent(frames, height, width)
  return { self.channels, (frames - 1) // self.step + 1, height // self.side, width // self.side }
end

--- Counts that have to be divisible if ranks share channels: a rank has whole heads.
---@return table[]  {what, n}
function Autoencoder:channel_counts()
  local counts, c = {}, self.sizes
  for i, width in ipairs(c.widths) do
    local heads = c.types[i] == "EViTS5_GLU"
    counts[i] = heads and { ("the number of heads of widths[%d]"):format(i - 1),
      width // network.HEAD } or { ("widths[%d]"):format(i - 1), width }
  end
  return counts
end

--- Largest number of frames that `latent` latent frames encode.
function Autoencoder:most_frames(latent)
  return latent == 1 and self.compat and 1 or self.step * latent
end

--- Number of frames at the beginning of a clip that `latent` latent frames encode.
function Autoencoder:head(latent) return self:most_frames(latent) end

--- Number of frames at the end of a clip whose latents are the last ones.
function Autoencoder:tail(frames, latent) return math.min(self.step * latent, frames) end

--- Refuses weights of other sizes.
---@param shape_of fun(parameter: string): table?  in the file
---@param path string  of the weights
function Autoencoder:check(shape_of, path)
  local c = self.sizes
  compare({
    { "widths[0]", "encoder.project_in.conv.weight", 1, c.widths[1] },
    { "in_channels", "encoder.project_in.conv.weight", 2, c.in_channels },
    { "the last of widths", "encoder.project_out.main.op_list.0.conv.weight", 2,
      c.widths[#c.widths] },
    { "latent_channels", "encoder.project_out.main.op_list.0.conv.weight", 1, c.latent_channels },
    { "out_channels", "decoder.project_out.op_list.2.conv.weight", 1, c.out_channels },
  }, "the recipe", shape_of, path)
end

--- Its parts with weights.
function Autoencoder:parts()
  return { { name = "autoencoder", declare = function(params)
    return network.new(nn.scope(params, "", { frozen = true }), self.sizes)
  end } }
end

-- ---- training

--- Encodes and decodes a batch of clips, without scale.
---@param x mr.Value  [B, T, H, W, C] of -1..1, in the dtype of the layers
---@param recompute function|nil  of a layer: recomputed in the backward pass
---@return mr.Value   f32 in the shape of x
function Autoencoder:reconstruct(g, x, recompute)
  local still = x.shape[2] == 1
  local z = self:down(g, x, function(own) return self.network:encode(g, own, recompute) end)
  return nn.cast(self:up(g, z,
    function(own) return self.network:decode(g, own, still, recompute) end), "f32")
end

--- The losses of a batch in training.
---@param io table   pixels u8 [B, T, 3, H, W]; recompute: as in reconstruct, or nil
---@return table     for moonreel.losses
function Autoencoder:losses(g, io)
  self:clip_of(io.pixels)
  local y = self:reconstruct(g, self:layers_of(io.pixels), io.recompute)
  return losses.of_clips(self:target_of(io.pixels), y,
    "decoder.project_out.op_list.2.conv.weight", nil, self.share)
end

-- ---- calls for a clip

-- checks that sides are whole cells, which the steps between levels need
local function check_sides(self, s)
  if s.height % self.side ~= 0 or s.width % self.side ~= 0 then
    base.raise("MR_E_SHAPE", ("pictures of %d x %d: this autoencoder needs multiples of %d; try: "
      .. "%d x %d"):format(s.height, s.width, self.side,
      math.max(s.height // self.side, 1) * self.side,
      math.max(s.width // self.side, 1) * self.side))
  end
end

-- conversions from the caller's inputs to the layers' inputs, and from their results to the outputs
local ends = { encode = {}, decode = {} }

function ends.encode.into(self, pixels)
  return volume.pixels(pixels, pixels.shape[1], self.dtype)
end

function ends.encode.out(self, x)
  local z = ops.affine(nn.cast(x, "f32"), { scale = 1 / self.scale })
  return (ops.copy(volume.channels_first(z)))
end

function ends.decode.into(self, z)
  z = ops.affine(volume.channels_last(z, z.shape[1]), { scale = self.scale })
  return nn.cast(z, self.dtype)
end

function ends.decode.out(_, x) return nn.cast(volume.channels_first(x), "f32") end

-- ---- whole clips

local whole = {}

function whole.encode(self, s)
  return { part = "autoencoder",
    key = ("encode %s %dx%dx%d"):format(s.dtype, s.frames, s.height, s.width),
    takes = { pixels = { "pixels", 0, dtype = s.dtype,
      shape = { s.frames, 3, s.height, s.width } } },
    gives = { out = { "z", 0, s.size[2] } },
    nodes = function(g, net, io)
      return ends.encode.out(self, tiles.through(g, ends.encode.into(self, io.pixels),
        self.tiles.encode, function(tile)
          return self:down(g, tile, function(own) return net:encode(g, own) end)
        end))
    end }
end

function whole.decode(self, s)
  local cells, still = { s.size[2], s.size[1], s.size[3], s.size[4] }, self.compat or s.frames == 1
  return { part = "autoencoder",
    key = ("decode %s to %d"):format(table.concat(cells, "x"), s.frames == 1 and 1 or self.step),
    takes = { z = { "z", 0, dtype = "f32", shape = cells } },
    gives = { out = { "pixels", 0, s.frames == 1 and 1 or self:most_frames(s.size[2]) } },
    nodes = function(g, net, io)
      return ends.decode.out(self, tiles.through(g, ends.decode.into(self, io.z),
        self.tiles.decode, function(tile)
          return self:up(g, tile, function(own) return net:decode(g, own, still) end)
        end))
    end }
end

-- ---- pieces

-- the input of a piece with n frames or latents, {value, rows, size, row}
local function source_of(self, job, s, n)
  if job == "encode" then
    return { "pixels", n, { s.height, s.width, self.sizes.in_channels },
      { dtype = s.dtype, shape = { n, self.sizes.in_channels, s.height, s.width } } }
  end
  local C, _, h, w = table.unpack(s.size)
  return { "z", n, { h, w, C }, { dtype = "f32", shape = { n, C, h, w } } }
end

-- frames of a piece: a whole number of latents and of pieces; nil: the whole clip
local function piece_of(self, frames)
  if self.at_once == 0 or frames <= WORTH * self.at_once then
    return nil
  end
  local most = self.at_once // self.step * self.step
  for n = math.max(most, self.step), self.step, -self.step do
    if frames % n == 0 then
      return n < frames and n or nil
    end
  end
end

-- One sweep computes the sums of each attention, from the results of earlier sweeps; the last sweep
-- goes to the end. Between sweeps the features before an attention are kept.
local function in_pieces(self, job, s, n)
  local list = network.new(nn.scope(G.params(self.dtype)), self.sizes)[job .. "r"]
  local calls, first, rows = { values = {} }, 1, job == "encode" and n or n // self.step
  local count, source = s.frames // n, source_of(self, job, s, rows)
  -- sides of latents determine those of pictures
  local sides = { s.size[3], s.size[4], rows, s.dtype or "z" }
  local function sweep(upto, adds)
    local from, comes, kept = first, source, nil
    local name = ("%s %s to %s"):format(job, table.concat(sides, "x"), adds or "the end")
    pieces.append(calls, { part = "autoencoder", key = name, name = name, dtype = self.dtype,
      adds = adds, layers = function(e, net)
        local layers = net and net[job .. "r"] or list
        local x = e:source(comes[1], comes[2], comes[3],
          comes[4] and function(v) return ends[job].into(self, v) end, comes[4])
        x = nn.chain(layers, e, x, from, upto - 1)
        if not adds then
          e:give(x, job == "encode" and "z" or "pixels",
            function(v) return ends[job].out(self, v) end)
          return
        end
        layers[upto]:add(e, x)
        if upto > from then
          kept = e:give(x, "before " .. adds)
        end
      end }, count)
    if kept then
      first, source = upto, { "before " .. adds, kept.rows, kept.size }
    end
  end
  for _, at in ipairs(network.attentions(list)) do
    sweep(at, list[at].name)
  end
  sweep(#list + 1)
  return calls
end

--- The calls for a clip, in order, for moonreel.encoder.
---@param job string   "encode": pixels to z; "decode": z to pixels
---@param s table      frames, height, width; for encode: dtype of pixels; size of the latents
---@return table[]
function Autoencoder:calls(job, s)
  if job == "encode" then
    check_sides(self, s)
  end
  -- ranks that share a clip each have a part of it, like a piece
  local n = not next(self.tiles[job]) and not self.share and piece_of(self, s.frames)
  return n and in_pieces(self, job, s, n) or { whole[job](self, s) }
end

return dc_ae
