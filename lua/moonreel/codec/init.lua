--- Encodes clips to latents and decodes them, by the calls of an autoencoder. Programs are compiled
-- for each size on first use. The memory needed is that of the largest call, for a clip of any
-- length.
-- @module moonreel.codec
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local encoder = require "moonreel.encoder"
local fits = require "moonreel.codec.fits"
local holds = require "moonreel.ckpt.model"
local lengths = require "moonreel.codec.lengths"
local listing = require "moonreel.text.listing"
local options = require "moonreel.text.options"
local ops = require "moonreel.core.op"
local share_clips = require("moonreel.models.latents").share
local shared = require "moonreel.nn.shared"
local start = require "moonreel.ckpt.start"

local codec = {}

---@class mr.Codec
local Codec = {}
Codec.__name = "mr.Codec"
Codec.__index = Codec

-- ---- weights

-- refuses weights that lack tensors or have unknown ones; buffers have initial values
local function refuse(path, report, list)
  local first, missing, buffer = report.differ[1], {}, {}
  if first then
    base.raise("MR_E_CKPT", ("%s: '%s' is %s; expected %s, by the sizes in config.json"):format(
      path, first.name,
      listing.shape(first.file), listing.shape(first.model)))
  end
  for _, p in ipairs(list) do
    buffer[p.name] = p.buffer
  end
  for _, name in ipairs(report.missing) do
    missing[#missing + 1] = not buffer[name] and name or nil
  end
  if report.fresh[1] then
    base.raise("MR_E_CKPT", ("%s: the file has only the spatial half of the autoencoder, with "
      .. "names of %s; %d tensors of the temporal half are missing; try: codec.open at the prompt "
      .. "to encode pictures, or the file as ckpt_path of a recipe like tiny/vae, which trains the "
      .. "temporal half"):format(path,
      report.layout, #report.fresh))
  end
  if missing[1] then
    base.raise("MR_E_CKPT", ("%s: %d tensors are missing; the first is '%s'"):format(path, #missing,
      missing[1]))
  end
  if report.unexpected[1] then
    base.raise("MR_E_CKPT", ("%s: %d tensors do not belong to this autoencoder; the first is '%s'")
      :format(path, #report.unexpected, report.unexpected[1]))
  end
end

-- opens weights, which may be in a subfolder, and finds the folder of config.json
local function open(path)
  if not base.exists(path) then
    base.raise("MR_E_CKPT", ("there is no file or folder '%s', and nothing is downloaded; "
      .. "try: vae.from_pretrained = \"FOLDER\" with config.json and its weights"):format(path))
  end
  return ckpt.open(path), base.exists(path .. "/.") and path or path:match("^(.*)/") or "."
end

-- fills the parameters of a part from files
local function fill(auto, part, source)
  local list, exec = part.params:list(), part.exec
  local plan = start.plan(source, list, auto.maps)
  if auto.check then
    auto:check(function(name)
      local found = plan.found[name] and plan.found[name].weights
      return found and source:info(found).shape
    end, source.path)
  end
  exec:init(0)
  refuse(source.path, start.read(source, list, { maps = auto.maps, finite = true }, function(p, t)
    exec:set_param(p.frozen and "frozen" or "w", p.name, t)
  end), list)
end

-- makes a codec of an autoencoder and its calls, which are all calls of one part
local function of_calls(auto, calls)
  return setmetatable({ auto = auto, encoder = calls, part = calls.list[1] }, Codec)
end

-- makes a codec of an autoencoder with separate weights
local function apart(auto, device, dtype, source, folder)
  if auto.read then
    auto:read(folder)
  end
  local calls = encoder.new(auto, { device = device, dtype = dtype,
    load = source and function(part) fill(auto, part, source) end or nil })
  local self = of_calls(auto, calls)
  self.device, self.dtype = device, dtype
  return self
end

--- Creates the codec of an autoencoder whose parameters are declared and filled.
---@param auto mr.Autoencoder
---@param params mr.Params
---@param exec mr.Exec      contains the parameters; the caller closes it
---@return mr.Codec
function codec.of(auto, params, exec)
  return of_calls(auto, encoder.over(auto, params, exec))
end

--- Creates the codec of a pipeline.
---@param pipe mr.Pipeline
---@param exec mr.Exec       executor of the run; contains the autoencoder's weights unless they are
---   in a separate file
---@param device mr.Device
---@return mr.Codec          the caller closes it
function codec.new(pipe, exec, device)
  local auto = pipe.autoencoder
  if not auto.apart then
    return codec.of(auto, pipe.params, exec)
  end
  local path = pipe.config.vae.from_pretrained
  if not path then
    base.raise("MR_E_RECIPE", "vae.from_pretrained is not set, so the autoencoder has no "
      .. "weights; try: vae.from_pretrained = \"FOLDER\" with config.json and its weights")
  end
  local source <close>, folder = open(path)
  return apart(auto, device, pipe.dtype, source, folder)
end

local read_open = options.declare("codec.open", {
  { "device", "mr.Device", "device to compute on; absent: the default device" },
  { "dtype", "text", "dtype of weights and layers: f32 or bf16", default = "f32" },
  { "micro_frame_size", "integer", "frames per piece in time", default = 17 },
  { "micro_batch_size", "integer", "pictures at once", default = 4 },
  { "fields", "table", "further fields of its record, as a recipe sets them", default = {} },
  { "comm", "mr.Comm", "ranks that share each clip; all of them make the same calls" },
  { "by", "text", "what the ranks share: rows or channels", default = "rows" },
})

-- finds the family of an autoencoder by the names of its tensors, and makes it with fields of its
-- record
local function of_file(source, folder, o)
  local family = holds.family(source, "vae")
  local fields = family:defaults()
  for _, given in ipairs { { micro_frame_size = o.micro_frame_size,
      micro_batch_size = o.micro_batch_size }, o.fields } do
    for name, value in pairs(given) do
      fields[name] = value
    end
  end
  local made = family:open "init"
  local map = family:open "weights"
  if made.of_file then
    return made.of_file(start.plan(source, {}, { map }).layout, folder, fields)
  end
  return made.new(nil, fields, { dtype = o.dtype })
end

--- Opens the video autoencoder of a folder or file. Its family is recognized by its tensors. The
-- folder has config.json and the weights of a whole autoencoder, or of the half for pictures, whose
-- latents are [C, T, h, w].
---@param path string
---@param given table|nil  device, dtype, micro_frame_size, micro_batch_size, fields, comm
---@return mr.Codec        vae:encode(clip), vae:decode(z); the caller closes it
function codec.open(path, given)
  local o = read_open(given)
  if o.dtype ~= "f32" and o.dtype ~= "bf16" then
    base.raise("MR_E_USAGE", ("codec.open: dtype is '%s'; expected f32 or bf16"):format(o.dtype))
  end
  local source <close>, folder = open(path)
  local auto = of_file(source, folder, o)
  if o.comm and o.comm:size() > 1 then
    share_clips(auto, shared.new { comm = o.comm, by = o.by, field = "ranks" })
  end
  local self = apart(auto, o.device or E.device(), o.dtype, source, folder)
  self.path = path
  return self
end

--- Creates a codec that only plans: it opens no weights and runs nothing.
---@param pipe mr.Pipeline   its autoencoder has separate weights
---@param given table        options of E.plan
---@return mr.Codec          the caller closes it
function codec.plan(pipe, given)
  local path = pipe.config.vae.from_pretrained or ""
  local folder = base.exists(path .. "/.") and path or path:match("^(.*)/") or "."
  return apart(pipe.autoencoder, given, pipe.dtype, nil, folder)
end

function Codec:__tostring()
  return ("mr.Codec: %s, %d latent channels"):format(self.path or "of a run", self.auto.channels)
end

--- Frees programs and weights. It may be called twice.
function Codec:close()
  self.encoder:close()
  if self.planned then
    self.planned:close()
  end
end
Codec.__close = Codec.close

--- The ranks that share each clip; all of them encode and decode it together.
---@return mr.Shared|nil  nil: this rank processes whole clips
function Codec:shared() return self.auto.share end

--- The bytes of its weights.
---@return integer
function Codec:weight_bytes() return self.encoder:weight_bytes() end

-- ---- clips to latents

--- The noise for the draws of a clip. It depends only on seed, key and epoch.
---@param frames integer
---@param height integer
---@param width integer
---@param seed integer
---@param key integer|nil     key of the sample
---@param epoch integer|nil
---@param part string|nil     name of a part that is encoded separately from the sample's clip, with
---   its own draws
---@return table|nil          f32 tensors with names of the family; nil: the encoder draws nothing
function Codec:noise(frames, height, width, seed, key, epoch, part)
  if not self.auto.draws then
    return nil
  end
  local noise = {}
  for name, row in pairs(self.auto:draws(frames, height, width)) do
    local purpose, shape = part and row[1] .. "_" .. part or row[1], row[2]
    noise[name] = T.new("f32", shape):fill_normal(seed, purpose, key or 0, epoch or 0)
  end
  return noise
end

-- the arguments of calls for a clip: its sizes and those of its latents
local function shape_of(self, frames, height, width, dtype)
  lengths.check(self.auto, frames)
  return { frames = frames, height = height, width = width, dtype = dtype,
    size = self.auto:latent(frames, height, width) }
end

--- The programs that encode a clip of u8.
---@return table[] rows  {prog, runs, part}
function Codec:encoders(frames, height, width)
  return self.encoder:plan("encode", shape_of(self, frames, height, width, "u8"))
end

--- The programs that decode a clip.
---@return table[] rows  {prog, runs, part}
function Codec:decoders(frames, height, width)
  return self.encoder:plan("decode", shape_of(self, frames, height, width))
end

--- The working memory of a job in bytes, without weights. Nothing is allocated.
---@param job string      "encode" or "decode"
---@param frames integer  a number that the autoencoder accepts
---@return integer
function Codec:bytes(job, frames, height, width)
  if not self.planned then
    local device = self.device
    local plan = type(device) == "table" and device or { facts = device:facts() }
    self.planned = of_calls(self.auto, encoder.new(self.auto, { dtype = self.dtype,
      device = plan }))
    -- on a CPU, values that programs leave in host memory count as device memory
    self.on_cpu = plan.facts.device == "cpu"
  end
  local rows = job == "encode" and self.planned:encoders(frames, height, width)
    or self.planned:decoders(frames, height, width)
  return encoder.working_bytes(rows) + (self.on_cpu and rows.kept or 0)
end

--- The same for one of several ranks that share the rows of a clip.
---@param ranks integer
---@param job string      as for Codec:bytes
---@return integer|nil    nil: this autoencoder cannot share rows, or the clip has too few
function Codec:bytes_by(ranks, job, ...)
  if not (self.auto.cuts and self.auto.cuts.rows) or self.auto.share then
    return nil
  end
  -- a rank with neighbours on both sides, if there is one
  local share = shared.new { ranks = ranks, rank = ranks > 2 and 1 or 0 }
  local one = setmetatable({ device = self.device, dtype = self.dtype,
    auto = setmetatable({ share = share }, { __index = self.auto }) }, Codec)
  local good, bytes = pcall(one.bytes, one, job, ...)
  if one.planned then
    one.planned:close()
  end
  if not good and bytes.code ~= "MR_E_SHAPE" then
    error(bytes, 0)
  end
  return good and bytes or nil
end

-- runs calls; if they do not fit into memory, the error says what does
local function run_calls(self, job, shape, values, wanted, take)
  local good, problem = pcall(function()
    self.encoder:run(self.auto:calls(job, shape), values, wanted, take)
  end)
  if not good then
    fits.explain(self, job, shape, problem)
    error(problem, 0)
  end
end

-- Encodes a clip: take(prog, output, first, n) is called before a program writes latent frames to
-- an output. It does not wait for programs: results are passed on the device.
local function encode(self, pixels, noise, take)
  local frames, height, width = pixels.shape[1], pixels.shape[3], pixels.shape[4]
  local size = self.auto:latent(frames, height, width)
  if size[3] < 1 or size[4] < 1 then
    base.raise("MR_E_SHAPE", ("pixels are %d x %d, which is smaller than a latent cell"):format(
      height,
      width))
  end
  local values = { pixels = pixels }
  for name, one in pairs(noise or self:noise(frames, height, width, 0) or {}) do
    values[name] = one
  end
  run_calls(self, "encode", shape_of(self, frames, height, width, pixels.dtype), values,
    { z = true }, function(...) take(size, ...) end)
  return size
end

--- Encodes a clip to clean latents.
---@param pixels mr.Tensor  u8 [T, 3, H, W]; with separate weights also f32, -1..1
---@param noise table|nil   result of Codec:noise; absent: that of seed 0
---@return mr.Tensor        f32 [C, t, h, w]
function Codec:encode(pixels, noise)
  local z
  encode(self, pixels, noise, function(size, prog, output, first, n)
    z = z or T.new("f32", { size[2], size[1], size[3], size[4] })
    local latents <close> = prog:get(output)
    z:slice(0, first, first + n):copy_from(latents)
  end)
  return z:permute { 1, 0, 2, 3 }
end

--- Encodes a clip into an input of a program on the codec's device, without waiting, after the
-- clips that were encoded into it before.
---@param pixels mr.Tensor  as for Codec:encode
---@param noise table|nil   result of Codec:noise
---@param to mr.Program
---@param input string      f32 [B, t, C, h, w]
---@param b integer         index in B, from 0
---@param place table|nil   for a part of a clip: at: its first latent frame; frames: t
function Codec:encode_into(pixels, noise, to, input, b, place)
  local at = place and place.at or 0
  encode(self, pixels, noise, function(size, prog, output, first, n)
    local frame, frames = size[1] * size[3] * size[4], place and place.frames or size[2]
    prog:pass(output, 0, n * frame, to, input, (b * frames + at + first) * frame)
  end)
end

-- ---- latents to clips

-- decoded pictures as u8
local function decoded(self, z, size)
  if not size and not self.auto.apart then
    base.raise("MR_E_USAGE", "decode: size is missing; expected {frames, height, width}")
  end
  size = size or { frames = self.auto:most_frames(z.shape[2]) }
  local all
  self:decode(z, size, function(pictures, first)
    local some <close> = codec.pixels(pictures)
    all = all or T.new("u8", { size.frames, table.unpack(some.shape, 2) })
    all:slice(0, first, first + some.shape[1]):copy_from(some)
  end)
  return all
end

--- Decodes latents to pictures, piece by piece in order; without `take` it returns all of them.
---@param z mr.Tensor      f32 [C, t, h, w]
---@param size table|nil   frames, height, width of the clip; pictures may be smaller. Nil: the most
---   frames that the latents can give
---@param take nil|fun(pictures: mr.Tensor, first: integer)  receives f32 [n, 3, H, W], about -1..1,
---   of frames from `first` on; valid only during the call
---@return mr.Tensor|nil   u8 [T, 3, H, W], without `take`
function Codec:decode(z, size, take)
  if not take then
    return decoded(self, z, size)
  end
  lengths.check(self.auto, size.frames)
  local most = self.auto:most_frames(z.shape[2])
  if size.frames > most then
    base.raise("MR_E_SHAPE", ("a clip of %d frames: these latents decode to at most %d frames; "
      .. "try: frames = %d"):format(size.frames, most, most))
  end
  local frames_first <close> = z:permute { 1, 0, 2, 3 }:clone()
  local shape = { frames = size.frames, height = size.height, width = size.width, size = z.shape }
  run_calls(self, "decode", shape, { z = frames_first }, { pixels = true },
    function(prog, output, first)
      local pictures <close> = prog:get(output)
      take(pictures, first)
    end)
end

--- Converts pictures to the pixels that files contain.
---@param pictures mr.Tensor  f32, about -1..1
---@return mr.Tensor          u8
function codec.pixels(pictures)
  local scaled <close> = ops.affine(pictures, { scale = 127.5, shift = 128 })
  return scaled:to("u8")
end

return codec
