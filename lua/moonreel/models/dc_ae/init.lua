--- Deep compression autoencoder for clips: 32 x 32 pixels of four frames become one cell of 128
-- channels, without a random draw. One frame stays one. The sums of linear attention connect every
-- cell with the whole clip: a long clip is processed in pieces, in one sweep for each of the sums,
-- with the same results. Ref: Chen et al. 2024, arXiv:2410.10733; opensora-2.0.md 12.
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

--- Its weights lie in files of their own, train no further and are in no checkpoint of a run.
dc_ae.apart = true

local WORTH <const> = 6 -- pieces below which a whole clip takes less: as much is kept of a piece
local AT_ONCE <const> = 8 -- frames of a piece, where no recipe says so

--- What ranks can share of its clips.
dc_ae.cuts = { rows = true, channels = true }

local Autoencoder = latents.class(dc_ae.cuts)

-- the recipe's fields as those of the layers
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

-- levels that join frames: each once, and none that has no step to a coarser one
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

-- what the layers cannot be
local function check_sizes(c)
  local levels = #c.widths
  for _, field in ipairs { "encoder_blocks", "decoder_blocks" } do
    if #c[field] ~= levels then
      refuse("%s has %d entries; expected one for each of the %d widths; try: as many", field,
        #c[field], levels)
    end
  end
  for i, width in ipairs(c.widths) do
    local after = c.widths[i + 1]
    if c.types[i] == "EViTS5_GLU" and width % network.HEAD ~= 0 then
      refuse("widths[%d] is %d; expected a multiple of %d, the channels of a head; try: %d", i - 1,
        width, network.HEAD, (width // network.HEAD + 1) * network.HEAD)
    elseif after and (width * 4 % after ~= 0 or after * 4 % width ~= 0) then
      refuse("widths[%d] and widths[%d] are %d and %d; expected that four times each is a multiple "
        .. "of the other; try: %d and %d", i - 1, i, width, after, width, 2 * width)
    end
  end
  if c.widths[levels] % c.latent_channels ~= 0 then
    refuse("latent_channels is %d; expected a divisor of the last width, %d; try: %d",
      c.latent_channels, c.widths[levels], c.widths[levels])
  end
end

-- the tiles that a recipe asks for: {encode, decode}, each {space, time}
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

--- What is known of the autoencoder without its weights.
---@param fields table     of the recipe
---@param run table        dtype; compat: clips in the reference's tiles, where fields ask for them,
---   and one latent frame is one frame, though four frames have one, too
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
    -- the neighbours of queries, keys and values are 5 x 5 x 5
    reach = sizes.types[#sizes.types] == "EViTS5_GLU" and 2 or nil,
    tiles = how, maps = { weights } }, Autoencoder)
  if next(how.encode) then
    -- tiles are the only way
    self.other = false
  end
  return self
end

--- Weights of the losses where it trains and a recipe says none, as the reference has them; a
-- discriminator may look at what comes back.
dc_ae.loss_weights = { perceptual = 0.5, adversary = true }

--- An autoencoder that trains. Its parameters are the run's.
---@param params mr.Params
---@param fields table     of the recipe
---@param run table        as of new
---@return mr.Autoencoder
function dc_ae.trained(params, fields, run)
  local self = dc_ae.new(nil, fields, run)
  self.apart, self.config = false, latents.ALONE
  self.network = network.new(nn.scope(params), self.sizes)
  return self
end

--- The other way that clips may go, in pieces or as a whole; results are the same.
---@return mr.Autoencoder
---@return string          what asks for it
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

--- What has to fall into equal parts where ranks share channels: a rank has whole heads.
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

--- Frames at the end of a clip whose latents hold the last ones.
function Autoencoder:tail(frames, latent) return math.min(self.step * latent, frames) end

--- Refuse weights of other sizes.
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

--- What has weights of its own: all of it.
function Autoencoder:parts()
  return { { name = "autoencoder", declare = function(params)
    return network.new(nn.scope(params, "", { frozen = true }), self.sizes)
  end } }
end

-- ---- training

--- Clips through the network and back, as a batch, without scale.
---@param x mr.Value  [B, T, H, W, C] of -1..1, in the dtype of the layers
---@param recompute function|nil  of a layer: computed again in the backward pass
---@return mr.Value   f32 like x
function Autoencoder:reconstruct(g, x, recompute)
  local still = x.shape[2] == 1
  local z = self:down(g, x, function(own) return self.network:encode(g, own, recompute) end)
  return nn.cast(self:up(g, z,
    function(own) return self.network:decode(g, own, still, recompute) end), "f32")
end

--- The losses of a batch, where it trains.
---@param io table   pixels u8 [B, T, 3, H, W]; recompute: of reconstruct, or nil
---@return table     as moonreel.losses takes it
function Autoencoder:losses(g, io)
  self:clip_of(io.pixels)
  local y = self:reconstruct(g, self:layers_of(io.pixels), io.recompute)
  return losses.of_clips(self:target_of(io.pixels), y,
    "decoder.project_out.op_list.2.conv.weight", nil, self.share)
end

-- ---- what runs for a clip

-- sides that are whole cells, which the steps between levels need
local function check_sides(self, s)
  if s.height % self.side ~= 0 or s.width % self.side ~= 0 then
    base.raise("MR_E_SHAPE", ("pictures of %d x %d: this autoencoder takes multiples of %d; try: "
      .. "%d x %d"):format(s.height, s.width, self.side,
      math.max(s.height // self.side, 1) * self.side,
      math.max(s.width // self.side, 1) * self.side))
  end
end

-- from what the caller brings to what layers take, and from what they give to what goes out
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

-- ---- all of it at once

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

-- ---- in pieces

-- what comes in with a piece of n frames or latents, {value, rows, size, row}
local function source_of(self, job, s, n)
  if job == "encode" then
    return { "pixels", n, { s.height, s.width, self.sizes.in_channels },
      { dtype = s.dtype, shape = { n, self.sizes.in_channels, s.height, s.width } } }
  end
  local C, _, h, w = table.unpack(s.size)
  return { "z", n, { h, w, C }, { dtype = "f32", shape = { n, C, h, w } } }
end

-- frames of a piece: a whole number of latents, and of pieces; nil: the clip is one
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

-- One sweep makes the sums of each attention, over what those before it have given; the last one
-- goes to the end. Between sweeps the features before an attention are kept.
local function in_pieces(self, job, s, n)
  local list = network.new(nn.scope(G.params(self.dtype)), self.sizes)[job .. "r"]
  local calls, first, rows = { values = {} }, 1, job == "encode" and n or n // self.step
  local count, source = s.frames // n, source_of(self, job, s, rows)
  -- sides of latents tell those of pictures
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

--- What runs for a clip, in order, as moonreel.encoder takes it.
---@param job string   "encode": pixels to z; "decode": z to pixels
---@param s table      frames, height, width; of encode: dtype of pixels; size of the latents
---@return table[]
function Autoencoder:calls(job, s)
  if job == "encode" then
    check_sides(self, s)
  end
  -- ranks that share a clip have a part of it each, as a piece is
  local n = not next(self.tiles[job]) and not self.share and piece_of(self, s.frames)
  return n and in_pieces(self, job, s, n) or { whole[job](self, s) }
end

return dc_ae
