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

-- assumed seconds to open an encoder of files and close its file
local FILE_S <const> = 2e-3

-- Copies in host memory: of a decoded clip in u8, as it is and cut to the sides of the original; of
-- a piece that a program gives, in f32 with those of the ops that scale it, and in u8; in f32 of a
-- frame that is compared with the original, with those of the ops.
local COPIES <const>, PIECES <const>, COMPARED <const> = 2, 4.25, 9

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

-- memory of no program
local function no_memory()
  local m = { arena = 0 }
  for _, kinds in ipairs { SUMS, MOST } do
    for _, kind in ipairs(kinds) do
      m[kind] = 0
    end
  end
  return m
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

-- the most frames that a program gives at once
local function frames_at_once(auto, shape)
  local most = 0
  for _, call in ipairs(auto:calls("decode", shape)) do
    for _, gives in pairs(call.gives) do
      most = gives[1] == "pixels" and math.max(most, gives[3]) or most
    end
  end
  return most
end

-- bytes in the host's memory for a clip: values that wait between programs, its latents, the
-- decoded clip
local function clip_bytes(self, b, step)
  local auto, frames = self.pipe.autoencoder, self:frames_back(b)
  local size = auto:latent(b.frames, b.height, b.width)
  local frame = 3 * size[3] * size[4] * auto.side ^ 2
  local piece = 4 * frame * frames_at_once(auto, { frames = frames, height = b.height,
    width = b.width, size = size })
  return step.kept + 4 * T.count(size) + math.ceil(math.max(frames * frame + PIECES * piece,
    COPIES * frames * frame + COMPARED * 4 * frame))
end

--- A batch of clips, which are encoded and decoded one after the other.
---@param b table  frames, height, width, batch
---@return table step  as moonreel.plan.compiled step has it, with parts encode and decode,
---   decode_by, and programs: their number; clips: bytes of a clip in host memory
function Coded:step(b)
  local m = no_memory()
  local step = { memory = m, arenas = {}, largest = -1, kept = 0, programs = 0, batch = b.batch,
    by = {}, encoding = 0 }
  local there = add(self, step, self.codec:encoders(b.frames, b.height, b.width))
  local back = add(self, step, self.codec:decoders(self:frames_back(b), b.height, b.width))
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

-- pixels of a bucket's clip that are written: its own, and those that came back
local function pixels_written(self, b)
  return (b.frames + self:frames_back(b)) * b.height * b.width
end

--- Seconds in which a core writes both files of a bucket's clip.
---@param b table
---@return number
function Coded:file_s(b) return 2 * FILE_S + pixels_written(self, b) / self.machine.encode_rate end

--- Bytes of the files of a bucket's clip, as assumed.
---@param b table
---@return number
function Coded:file_bytes(b)
  return pixels_written(self, b) * (b.frames == 1 and coded.PICTURE_BYTES or coded.VIDEO_BYTES)
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
