--- Clips that go through an autoencoder and back (job = "reconstruct"): memory and seconds of a
-- clip, by the programs of moonreel.codec. No file is opened and no program runs.
-- @module moonreel.plan.coded
local T = require "moonreel.core.tensor"
local codec = require "moonreel.codec"
local encoder = require "moonreel.encoder"
local listing = require "moonreel.text.listing"
local work = require "moonreel.plan.work"

local coded = {}

--- Assumed bytes of a written file for each pixel: H.264 at its default quality, and PNG.
coded.VIDEO_BYTES, coded.PICTURE_BYTES = 0.06, 2

-- copies of a decoded clip in u8, and in f32 while it is compared with the original: both clips,
-- their differences, the squares of these
local COPIES <const>, COMPARED <const> = 2, 4

-- memory of programs that stay: sums of all, largest of all
local SUMS <const> = { "inputs", "results", "consts", "host", "staging", "staged", "pinned" }
local MOST <const> = { "landing", "ring", "library", "workspace" }

local Coded = {}
Coded.__index = Coded

--- Plans the calls of an autoencoder.
---@param pipe table   from moonreel.models.pipeline coder
---@param given table  machine; facts, rates: as E.plan takes them; look(prog): live, profile of a
---   program at its peak
---@return moonreel.plan.Coded  weights: bytes; parameters; notes
function coded.new(pipe, given)
  local of = { facts = given.facts, rates = given.rates }
  local self = setmetatable({ pipe = pipe, given = given, machine = given.machine,
    look = given.look,
    codec = codec.plan(pipe, of), parameters = 0, notes = {} }, Coded)
  self.weights = self.codec:weight_bytes()
  for _, part in ipairs(self.codec.encoder.list) do
    for _, p in ipairs(part.params:list()) do
      self.parameters = self.parameters + (p.buffer and 0 or T.count(p.shape))
    end
  end
  return self
end

--- The frames of a clip that come back from its latents.
---@param b table  frames, height, width
---@return integer
function Coded:frames_back(b)
  local auto = self.pipe.autoencoder
  return math.min(b.frames, auto:most_frames(auto:latent(b.frames, b.height, b.width)[2]))
end

-- adds planned programs to a step; returns the steps of all of their runs. Later programs may
-- replace these, so all is read at once.
local function add(self, step, rows)
  local kinds, m = {}, step.memory
  step.kept = math.max(step.kept, rows.kept)
  for _, row in ipairs(rows) do
    local one = row.prog:memory()
    for _, kind in ipairs(SUMS) do
      m[kind] = m[kind] + one[kind]
    end
    for _, kind in ipairs(MOST) do
      m[kind] = math.max(m[kind], one[kind])
    end
    if one.arena > step.largest then
      step.largest, step.live, step.profile = one.arena, self.look(row.prog)
    end
    step.arenas[row.part] = math.max(step.arenas[row.part] or 0, one.arena)
    step.programs = step.programs + 1
    for _, kind in ipairs(row.prog:kinds()) do
      kinds[#kinds + 1] = setmetatable({ count = (kind.count or 1) * row.runs * step.batch },
        { __index = kind })
    end
  end
  return kinds
end

-- bytes in the host's memory for a clip: values that wait between programs, its latents, the
-- decoded clip
local function clip_bytes(self, b, step)
  local auto, frames = self.pipe.autoencoder, self:frames_back(b)
  local size = auto:latent(b.frames, b.height, b.width)
  local values = 3 * frames * size[3] * size[4] * auto.side ^ 2
  return step.kept + 4 * T.count(size) + math.ceil((COPIES + 4 * COMPARED) * values)
end

--- A batch of clips, which are encoded and decoded one after the other.
---@param b table  frames, height, width, batch
---@return table step  as moonreel.plan.compiled step has it, with parts encode and decode,
---   decode_by, and programs: their number; clips: bytes of a clip in host memory
function Coded:step(b)
  local m = {}
  for _, kind in ipairs(table.move(MOST, 1, #MOST, #SUMS + 1, { table.unpack(SUMS) })) do
    m[kind] = 0
  end
  local step = { memory = m, arenas = {}, largest = -1, kept = 0, programs = 0, batch = b.batch,
    by = {}, encoding = 0 }
  local there = add(self, step, self.codec:encoders(b.frames, b.height, b.width))
  local back = add(self, step, self.codec:decoders(self:frames_back(b), b.height, b.width))
  m.arena = 0
  for _, bytes in pairs(step.arenas) do
    m.arena = m.arena + bytes
  end
  local dtype = self.pipe.dtype
  local encode, _, encode_by = work.parts(self.machine, there, dtype)
  local decode, _, decode_by = work.parts(self.machine, back, dtype)
  local all = table.move(back, 1, #back, #there + 1, there)
  step.encode_by, step.decode_by = encode_by, decode_by
  step.ops = select(2, work.parts(self.machine, all, dtype))
  step.useful, step.clips = work.useful(all), clip_bytes(self, b, step)
  step.parts = { encode = encode.forward, decode = decode.forward, read = 0, forward = 0,
    recompute = 0, backward = 0 }
  return step
end

--- Share of the programs of all buckets that stay in memory.
---@param programs integer  of all buckets
---@return number
function coded.share(programs) return math.min(1, encoder.KEPT / programs) end

--- Pixels of a bucket's clip that are written: its own, and those that came back.
---@param b table
---@return integer
function Coded:pixels_written(b)
  return (b.frames + self:frames_back(b)) * b.height * b.width
end

--- Bytes of the files of a bucket's clip, as assumed.
---@param b table
---@return number
function Coded:file_bytes(b)
  return self:pixels_written(b) * (b.frames == 1 and coded.PICTURE_BYTES or coded.VIDEO_BYTES)
end

--- A note about the other way to process clips, if the autoencoder has one: what a clip of the
-- largest bucket needs by it.
---@param b table
---@return string|nil
function Coded:compare(b)
  local auto = self.pipe.autoencoder
  if not auto.other then
    return nil
  end
  local way, said = auto:other()
  local other <close> = coded.new({ autoencoder = way, dtype = self.pipe.dtype,
    config = self.pipe.config }, self.given)
  local now, step = self:step(b), other:step(b)
  local function text(one)
    return ("%s of workspace, encoded in %.3g s and decoded in %.3g s"):format(
      listing.size(one.memory.arena), one.parts.encode / b.batch, one.parts.decode / b.batch)
  end
  return ("a clip of %d frames of %d x %d takes %s; by model.%s it takes %s"):format(b.frames,
    b.height, b.width, text(now), said, text(step))
end

--- Frees the programs.
function Coded:close() self.codec:close() end
Coded.__close = Coded.close

return coded
