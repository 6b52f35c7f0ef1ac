--- Clips to latents and back: the programs of an autoencoder, compiled per size when first needed.
-- A clip is taken in pieces, so that memory is that of the largest piece whatever its length.
-- @module moonreel.codec
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local compiled = require "moonreel.nn.compiled"
local listing = require "moonreel.text.listing"
local opensora_vae = require "moonreel.models.opensora_vae"
local options = require "moonreel.text.options"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local start = require "moonreel.ckpt.start"

local codec = {}

-- compiled programs: a clip takes four at most, and a run has clips of many sizes
local KEPT = 16

---@class mr.Codec
local Codec = {}
Codec.__name = "mr.Codec"
Codec.__index = Codec

-- ---- weights

-- what the file lacks, or has no place for; buffers begin with numbers of their own
local function refuse(path, report, list)
  local first, missing, buffer = report.differ[1], {}, {}
  if first then
    base.raise("MR_E_CKPT", ("%s: '%s' is %s, its sizes give %s"):format(path, first.name,
      listing.shape(first.file), listing.shape(first.model)))
  end
  for _, p in ipairs(list) do
    buffer[p.name] = p.buffer
  end
  for _, name in ipairs(report.missing) do
    missing[#missing + 1] = not buffer[name] and name or nil
  end
  if report.fresh[1] then
    base.raise("MR_E_CKPT", ("%s: the half for pictures alone, with names of %s: %d tensors of the "
      .. "half for frames are missing; try: codec.open at the prompt for its pictures, or it as "
      .. "ckpt_path of a recipe like tiny/vae, which trains the other half"):format(path,
      report.layout, #report.fresh))
  end
  if missing[1] then
    base.raise("MR_E_CKPT", ("%s: %d tensors are missing, the first is '%s'"):format(path, #missing,
      missing[1]))
  end
  if report.unexpected[1] then
    base.raise("MR_E_CKPT", ("%s: %d tensors have no place in this autoencoder, the first is '%s'")
      :format(path, #report.unexpected, report.unexpected[1]))
  end
end

-- open weights, which may lie in a subfolder, with the folder of config.json
local function open(path)
  if not base.exists(path) then
    base.raise("MR_E_CKPT", ("no file or folder '%s', and nothing is downloaded; try: "
      .. "vae.from_pretrained = \"FOLDER\" with config.json and its weights"):format(path))
  end
  return ckpt.open(path), base.exists(path .. "/.") and path or path:match("^(.*)/") or "."
end

-- the parameters of an autoencoder that lies apart
local function declare(auto, dtype, config)
  local params = G.params(dtype)
  auto:declare(nn.scope(params, "", {frozen = true}), config)
  params:seal()
  return params
end

-- parameters and their executor, filled from files
local function load(auto, device, dtype, source, folder)
  local config, map = auto.sizes.read(folder, auto.fields), auto.weights
  local params = declare(auto, dtype, config)
  local list, maps = params:list(), {map}
  local plan = start.plan(source, list, maps)
  auto.sizes.check(config, function(name)
    local found = plan.found[name] and plan.found[name].weights
    return found and source:info(found).shape
  end, source.path)
  local exec = E.new(device, params, {})
  local good, err = pcall(function()
    exec:init(0)
    refuse(source.path, start.read(source, list, {maps = maps}, function(p, t)
      exec:set_param("frozen", p.name, t)
    end), list)
  end)
  if not good then
    exec:close()
    error(err, 0)
  end
  return params, exec
end

--- The codec of an autoencoder whose parameters are declared and filled.
---@param auto mr.Autoencoder
---@param params mr.Params
---@param exec mr.Exec      holds the parameters; borrowed
---@return mr.Codec
function codec.of(auto, params, exec)
  return setmetatable({auto = auto, params = params, exec = exec,
    compiled = compiled.new(params, exec, KEPT)}, Codec)
end

--- The codec of a pipeline.
---@param pipe mr.Pipeline
---@param exec mr.Exec       of the run: holds the autoencoder's numbers where no file of its own
---   does
---@param device mr.Device
---@return mr.Codec          close it
function codec.new(pipe, exec, device)
  local auto = pipe.autoencoder
  if not auto.apart then
    return codec.of(auto, pipe.params, exec)
  end
  local path = pipe.config.vae.from_pretrained
  if not path then
    base.raise("MR_E_RECIPE", "vae.from_pretrained is none: the autoencoder has no weights; try: "
      .. "vae.from_pretrained = \"FOLDER\" with config.json and its weights")
  end
  local source <close>, folder = open(path)
  local self = codec.of(auto, load(auto, device, pipe.dtype, source, folder))
  self.own = self.exec
  return self
end

local read_open = options.declare("codec.open", {
  { "device", "mr.Device", "that computes; the default device where absent" },
  { "dtype", "text", "f32 or bf16: of weights and layers", default = "f32" },
  { "micro_frame_size", "integer", "frames per piece in time", default = 17 },
  { "micro_batch_size", "integer", "pictures at once", default = 4 },
})

--- Open the video autoencoder of a folder or file: config.json and weights of OpenSora VAE 1.2, or
-- of its half for pictures alone, whose latents are [C, T, h, w].
---@param path string
---@param given table|nil  device, dtype, micro_frame_size, micro_batch_size
---@return mr.Codec        vae:encode(clip), vae:decode(z); close it
function codec.open(path, given)
  local o = read_open(given)
  if o.dtype ~= "f32" and o.dtype ~= "bf16" then
    base.raise("MR_E_USAGE", ("codec.open: dtype is '%s'; expected f32 or bf16"):format(o.dtype))
  end
  local source <close>, folder = open(path)
  local auto = opensora_vae.new(nil, o)
  if start.plan(source, {}, {auto.weights}).layout == auto.weights.pictures then
    auto = opensora_vae.of_pictures(o, auto.sizes.read(folder, o).spatial)
  end
  local self = codec.of(auto, load(auto, o.device or E.device(), o.dtype, source, folder))
  self.own, self.path = self.exec, path
  return self
end

--- A codec that only tells what its programs take: no weights are opened, nothing runs.
---@param pipe mr.Pipeline   its autoencoder lies apart
---@param given table        options of E.plan
---@return mr.Codec          close it
function codec.plan(pipe, given)
  local auto, path = pipe.autoencoder, pipe.config.vae.from_pretrained or ""
  local folder = base.exists(path .. "/.") and path or path:match("^(.*)/") or "."
  local params = declare(auto, pipe.dtype, auto.sizes.read(folder, auto.fields))
  local self = codec.of(auto, params, E.plan(params, given))
  self.own = self.exec
  return self
end

function Codec:__tostring()
  return ("mr.Codec: %s, %d latent channels"):format(self.path or "of a run", self.auto.channels)
end

--- Give back programs and weights; harmless twice.
function Codec:close()
  self.compiled.programs = {}
  if self.own then
    self.own:close()
  end
end
Codec.__close = Codec.close

-- ---- programs

-- the program of a name and sizes; build(g) adds the nodes and returns the result
local function program(self, name, sizes, build)
  return self.compiled:get(name .. " " .. table.concat(sizes, "x"), build)
end

local function run(prog, inputs)
  for name, tensor in pairs(inputs) do
    prog:set(name, tensor)
  end
  prog:run()
  return prog:get("out")
end

--- Noise of a clip's two draws, a pure function of seed, key and epoch.
---@param frames integer
---@param height integer
---@param width integer
---@param seed integer
---@param key integer|nil     of the sample
---@param epoch integer|nil
---@return table|nil          pictures f32 [T, 4, h, w], frames f32 [t, C, h, w]; nil: nothing is
---   drawn
function Codec:noise(frames, height, width, seed, key, epoch)
  if not self.auto.apart then
    return nil
  end
  local size = self.auto:latent(frames, height, width)
  local function normal(n, channels, purpose)
    return T.new("f32", {n, channels, size[3], size[4]}):fill_normal(seed, purpose, key or 0,
      epoch or 0)
  end
  return {pictures = normal(frames, self.auto.inner, "latent of pictures"),
    frames = normal(size[2], size[1], "latent of frames")}
end

-- f(first, n) for pieces of at most `most` of n things, from 0
local function in_pieces(n, most, f)
  for first = 0, n - 1, most do
    f(first, math.min(most, n - first))
  end
end

-- ---- clips to latents

-- n pictures of a clip
local function pictures_program(self, n, height, width, dtype)
  local auto = self.auto
  return program(self, "encode pictures " .. dtype, {n, 3, height, width}, function(g)
    local size = auto:latent(1, height, width)
    return (ops.copy((auto:encode_pictures(g, g:input("pixels", dtype, {n, 3, height, width}),
      g:input("noise", "f32", {n, auto.inner, size[3], size[4]})))))
  end)
end

-- latents of n pictures, joined in time: [t, C, h, w]
local function piece_program(self, n, h, w)
  local auto = self.auto
  return program(self, "encode piece", {n, h, w}, function(g)
    return ops.copy(auto:encode_piece(g, g:input("x", "f32", {n, auto.inner, h, w}),
      g:input("noise", "f32", {auto:latent_frames(n), auto.channels, h, w})))
  end)
end

-- a list of programs, each with how often it runs, and what adds one
local function counted()
  local rows, at = {}, {}
  return rows, function(prog)
    local row = at[prog] or {prog = prog, runs = 0}
    row.runs = row.runs + 1
    if not at[prog] then
      at[prog], rows[#rows + 1] = row, row
    end
  end
end

--- What runs to encode a clip of u8 with an autoencoder that lies apart.
---@return table[] rows  {prog, runs}
function Codec:encoders(frames, height, width)
  local auto, size, rows, add = self.auto, self.auto:latent(frames, height, width), counted()
  in_pieces(frames, auto.pictures, function(_, n)
    add(pictures_program(self, n, height, width, "u8"))
  end)
  for _, n in ipairs(auto:pieces(frames)) do
    add(piece_program(self, n, size[3], size[4]))
  end
  return rows
end

local function encode_whole(self, pixels)
  local shape = pixels.shape
  local dims = {1, table.unpack(shape)}
  return run(program(self, "encode", shape, function(g)
    return self.auto:encode(g, g:input("pixels", "u8", dims))
  end), {pixels = pixels:reshape(dims)})
end

-- Encode with an autoencoder that lies apart, piece by piece: take(prog, first, n) when latent
-- frames from `first` on are about to be the output of a program. Nothing here waits for a run:
-- what one leaves is passed to the next.
local function encode_pieces(self, pixels, noise, size, take)
  local auto, pieces = self.auto, self.auto:pieces(pixels.shape[1])
  local height, width, h, w = pixels.shape[3], pixels.shape[4], size[3], size[4]
  local picture = auto.inner * h * w
  local piece, filled, at = 1, 0, 0
  in_pieces(pixels.shape[1], auto.pictures, function(first, n)
    local prog = pictures_program(self, n, height, width, pixels.dtype)
    prog:set("pixels", pixels:slice(0, first, first + n))
    prog:set("noise", noise.pictures:slice(0, first, first + n))
    prog:run()
    local from = 0
    while from < n do
      local length = pieces[piece]
      local some = math.min(n - from, length - filled)
      local joins = piece_program(self, length, h, w)
      prog:pass("out", from * picture, some * picture, joins, "x", filled * picture)
      from, filled = from + some, filled + some
      if filled == length then
        local t = auto:latent_frames(length)
        joins:set("noise", noise.frames:slice(0, at, at + t))
        joins:run()
        take(joins, at, t)
        piece, filled, at = piece + 1, 0, at + t
      end
    end
  end)
end

-- sizes of a clip's latents
local function latent_size(self, pixels)
  local frames, height, width = pixels.shape[1], pixels.shape[3], pixels.shape[4]
  local size = self.auto:latent(frames, height, width)
  if size[3] < 1 or size[4] < 1 then
    base.raise("MR_E_SHAPE", ("pixels are %d x %d, smaller than a latent cell"):format(height,
      width))
  end
  return size
end

--- Clean latents of a clip.
---@param pixels mr.Tensor  u8 [T, 3, H, W]; of an autoencoder with files of its own also f32, -1..1
---@param noise table|nil   of Codec:noise; of seed 0 where absent
---@return mr.Tensor        f32 [C, t, h, w]
function Codec:encode(pixels, noise)
  local size = latent_size(self, pixels)
  if not self.auto.apart then
    return encode_whole(self, pixels):reshape(size)
  end
  noise = noise or self:noise(pixels.shape[1], pixels.shape[3], pixels.shape[4], 0)
  local z = T.new("f32", {size[2], size[1], size[3], size[4]})
  encode_pieces(self, pixels, noise, size, function(prog, first, n)
    local latents <close> = prog:get("out")
    z:slice(0, first, first + n):copy_from(latents)
  end)
  return z:permute{1, 0, 2, 3}
end

--- The same into an input of a program on the codec's device, without waiting: behind the clips
-- that were encoded into it before.
---@param pixels mr.Tensor  as Codec:encode takes it, of an autoencoder that lies apart
---@param noise table       of Codec:noise
---@param to mr.Program
---@param input string      f32 [B, t, C, h, w]
---@param b integer         which of B, from 0
function Codec:encode_into(pixels, noise, to, input, b)
  local size = latent_size(self, pixels)
  local frame = size[1] * size[3] * size[4]
  encode_pieces(self, pixels, noise, size, function(prog, first, n)
    prog:pass("out", 0, n * frame, to, input, (b * size[2] + first) * frame)
  end)
end

-- ---- latents to clips

-- latents of n pictures from those that were joined in time
local function piece_back_program(self, n, cells)
  local auto = self.auto
  return program(self, "decode piece", {n, cells[2], cells[3]}, function(g)
    local z = g:input("z", "f32", {auto:latent_frames(n), table.unpack(cells)})
    return auto:decode_piece(g, z, n)
  end)
end

-- pictures of latents [n, C, h, w]
local function pictures_back_program(self, shape)
  return program(self, "decode pictures", shape, function(g)
    return self.auto:decode_pictures(g, g:input("x", "f32", shape))
  end)
end

--- What runs to decode a clip with an autoencoder that lies apart.
---@return table[] rows  {prog, runs}
function Codec:decoders(frames, height, width)
  local auto, size, rows, add = self.auto, self.auto:latent(frames, height, width), counted()
  local cells = {size[1], size[3], size[4]}
  for _, n in ipairs(auto:pieces(frames)) do
    add(piece_back_program(self, n, cells))
    in_pieces(n, auto.pictures, function(_, count)
      add(pictures_back_program(self, {count, auto.inner, cells[2], cells[3]}))
    end)
  end
  return rows
end

local function decode_whole(self, z, size, take)
  local shape = {1, table.unpack(z.shape)}
  local prog = program(self, "decode", {z.shape[2], size.height, size.width}, function(g)
    return self.auto:decode(g, g:input("z", "f32", shape), size.height, size.width)
  end)
  local x <close> = run(prog, {z = z:reshape(shape)})
  take(x:reshape{table.unpack(x.shape, 2)}:permute{1, 0, 2, 3}, 0)
end

-- all pictures of latents as files hold them
local function decoded(self, z, size)
  if not size and not self.auto.apart then
    base.raise("MR_E_USAGE", "decode: size is missing; expected {frames, height, width}")
  end
  size = size or {frames = self.auto:most_frames(z.shape[2])}
  local all
  self:decode(z, size, function(pictures, first)
    local some <close> = codec.pixels(pictures)
    all = all or T.new("u8", {size.frames, table.unpack(some.shape, 2)})
    all:slice(0, first, first + some.shape[1]):copy_from(some)
  end)
  return all
end

--- Pictures of latents, piece by piece in order; without `take` all of them.
---@param z mr.Tensor      f32 [C, t, h, w]
---@param size table|nil   frames, height, width of the clip; pictures may come out smaller. Nil: as
---   many frames as the latents may stand for
---@param take nil|fun(pictures: mr.Tensor, first: integer)  gets f32 [n, 3, H, W], about -1..1, of
---   frames first and after; lent for the call
---@return mr.Tensor|nil   u8 [T, 3, H, W], where nothing takes them
function Codec:decode(z, size, take)
  local auto = self.auto
  if not take then
    return decoded(self, z, size)
  end
  if not auto.apart then
    return decode_whole(self, z, size, take)
  end
  local frames_first <close>, first, at = z:permute{1, 0, 2, 3}:clone(), 0, 0
  local cells = {z.shape[1], z.shape[3], z.shape[4]}
  for _, n in ipairs(auto:pieces(size.frames)) do
    local t = auto:latent_frames(n)
    local x <close> = run(piece_back_program(self, n, cells),
      {z = frames_first:slice(0, at, at + t)})
    in_pieces(n, auto.pictures, function(from, count)
      local some = x:slice(0, from, from + count)
      local pictures <close> = run(pictures_back_program(self, some.shape), {x = some})
      take(pictures, first + from)
    end)
    first, at = first + n, at + t
  end
end

--- Pixels of pictures as files hold them.
---@param pictures mr.Tensor  f32, about -1..1
---@return mr.Tensor          u8
function codec.pixels(pictures)
  local scaled <close> = ops.affine(pictures, {scale = 127.5, shift = 128})
  return scaled:to("u8")
end

return codec
