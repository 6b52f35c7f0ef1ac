--- Memory and time of the separate encoders of a run: a video autoencoder and a text encoder with
-- their own programs and weights. They are planned from these programs; no file is opened and no
-- program runs.
-- @module moonreel.trainer.encoders
local codec = require "moonreel.codec"
local embed = require "moonreel.embed"
local encoder = require "moonreel.encoder"
local listing = require "moonreel.text.listing"

local encoders = {}

--- Bytes per second at which a rank reads weights in bf16 from a file in the page cache, if the
-- rate was not measured: one core reads them and copies them to their places. A disk may be slower.
encoders.READ_RATE = 0.7e9

local Encoders = {}
Encoders.__index = Encoders

-- notes about how the plan counts captions
local function text_notes(planned, streams, rate)
  local text, weights = planned.text, planned.weight_bytes
  local notes = { ("captions are planned with all of their %d tokens"):format(text.max_tokens
    or text.max_length) }
  if streams then
    notes[2] = ("the text encoder reads %.3g GB of blocks for every batch, at %.3g GB/s if its "
      .. "files stay in host memory: %.3g s; try: text_encoder.residency = \"all\", or "
      .. "cached text"):format(weights / 1e9, rate / 1e9, weights / rate)
  else
    notes[1] = notes[1] .. (planned.ranks > 1 and (", and weights of their encoder in memory that "
      .. "%d ranks share"):format(planned.ranks) or ", and all weights of their encoder in memory")
  end
  notes[#notes + 1] = text.whole
  return notes
end

-- adds one more text encoder; the first is that of the features
local function add_text(self, planned, given)
  local streams, rate = planned.residency == "stream", given.read_rate or encoders.READ_RATE
  self.texts[#self.texts + 1] = planned
  self.weights = self.weights + planned.encoder:weight_bytes()
  self.read_s = self.read_s + (streams and planned.weight_bytes / rate or 0)
  for _, note in ipairs(text_notes(planned, streams, rate)) do
    self.notes[#self.notes + 1] = note
  end
end

-- adds the second configuration of an autoencoder that has two
local function add_other(self, pipe, of)
  if pipe.autoencoder.other then
    local auto, said = pipe.autoencoder:other()
    self.other = { said = said, cells = 0, at = #self.notes + 1,
      codec = codec.plan({ autoencoder = auto, dtype = pipe.dtype, config = pipe.config }, of) }
    self.notes[self.other.at] = ("clips may also go through the autoencoder by vae.%s"):format(said)
  end
end

--- Plans the encoders of a pipeline.
---@param pipe mr.Pipeline
---@param given table  facts, rates: as E.plan takes them; memory_bytes: a text encoder may use half
---   of it; seconds: time of a program, and what decides it; talks: bytes that a rank sends in a
---   program, and its calls; absent: not counted; video, captions: true if they come from a cache;
---   conditions: mr.Conditions; nil: no conditions; read_rate: bytes per second of weights that are
---   read for every batch; absent: READ_RATE
---@return mr.Encoders  weights: bytes of both; notes: the assumptions
function encoders.new(pipe, given)
  local self = setmetatable({ seconds = given.seconds, talks = given.talks, weights = 0, read_s = 0,
    notes = {}, texts = {}, conditions = given.conditions }, Encoders)
  local of = { facts = given.facts, rates = given.rates }
  -- on a CPU, values between programs in host memory take memory of the device
  self.on_cpu = given.facts.device == "cpu"
  if pipe.autoencoder.apart and not given.video then
    self.codec = codec.plan(pipe, of)
    self.weights = self.weights + self.codec:weight_bytes()
    add_other(self, pipe, of)
  end
  for _, row in ipairs(not given.captions and pipe:texts_apart() or {}) do
    add_text(self, embed.plan(row[2], of, given.memory_bytes), given)
  end
  return self
end

-- seconds of planned programs, each as often as it runs; adds `times` of them to `by`
local function seconds_of(self, rows, by, times)
  local sum = 0
  for _, row in ipairs(rows) do
    local seconds, fields = self.seconds(row.prog)
    sum = sum + row.runs * seconds
    for field, part in pairs(by and fields or {}) do
      by[field] = (by[field] or 0) + times * row.runs * part
    end
  end
  return sum
end

-- text: seconds and bytes of a clip in planned programs
local function of_clip(self, rows)
  return ("%.3g s with %s in use%s"):format(seconds_of(self, rows),
    listing.size(encoder.working_bytes(rows)), rows.kept > 0
    and (" and %s kept between sweeps"):format(listing.size(rows.kept)) or "")
end

-- Adds a note: what the largest clip needs now, and in the other configuration of the autoencoder.
local function compare(self, b)
  local cells = b.frames * b.height * b.width
  if not self.other or cells <= self.other.cells then
    return
  end
  local one, other, words = self.codec, self.other.codec, {}
  for i, codec_of in ipairs { one, other } do
    words[i] = ("encoded in %s, decoded in %s"):format(
      of_clip(self, codec_of:encoders(b.frames, b.height, b.width)),
      of_clip(self, codec_of:decoders(b.frames, b.height, b.width)))
  end
  self.other.cells = cells
  self.notes[self.other.at] = ("a clip of %d frames of %d x %d is %s; by vae.%s it is %s"):format(
    b.frames, b.height, b.width, words[1], self.other.said, words[2])
end

-- Adds what planned programs send to other ranks, each as often as it runs, times `times`; nothing
-- if that is not counted.
local function add_talk(self, talk, rows, times)
  for _, row in ipairs(self.talks and rows or {}) do
    local bytes, calls = self.talks(row.prog)
    talk.bytes, talk.calls = talk.bytes + times * row.runs * bytes,
      talk.calls + times * row.runs * calls
  end
end

-- mean seconds for encoding the given frames of clips separately
local function seconds_given(self, b, by, clips, talk)
  local seconds = 0
  for frames, share in pairs(self.codec and self.conditions and self.conditions:shares(b.frames)
      or {}) do
    local rows = self.codec:encoders(frames, b.height, b.width)
    seconds = seconds + clips * share * seconds_of(self, rows, by, clips * share)
    add_talk(self, talk, rows, b.batch * share)
  end
  return seconds
end

--- The cost of encoding a batch.
---@param b table  frames, height, width, batch
---@return number seconds  of all ranks that share the batch
---@return number bytes  of the programs of all parts; on a CPU with the values that are kept
---   between them
---@return number read_s  seconds for reading weights, on each of the ranks that share the batch
---@return table by  the seconds by what decides them, if `seconds` of Encoders reports that
---@return table talk  bytes that a rank sends, and calls: of text if ranks share layers of its
---   encoders, of clips if ranks share clips
function Encoders:batch(b)
  local by, share = {}, self.codec and self.codec:shared()
  local talk = { text = { bytes = 0, calls = 0 }, clips = { bytes = 0, calls = 0 } }
  -- all ranks that share clips take part in each clip
  local clips = b.batch * (share and share.ranks or 1)
  local seconds, bytes = seconds_given(self, b, by, clips, talk.clips), 0
  compare(self, b)
  local function add(rows, times)
    seconds = seconds + times * seconds_of(self, rows, by, times)
    bytes = bytes + encoder.working_bytes(rows) + (self.on_cpu and rows.kept or 0)
  end
  local pictures = self.codec and self.codec:encoders(b.frames, b.height, b.width) or {}
  add(pictures, clips)
  add_talk(self, talk.clips, pictures, b.batch)
  for _, text in ipairs(self.texts) do
    local rows = text:encoders(b.batch)
    add(rows, text.ranks)
    add_talk(self, talk.text, rows, 1)
  end
  return seconds, bytes, self.read_s, by, talk
end

--- Frees the programs.
function Encoders:close()
  if self.codec then
    self.codec:close()
  end
  if self.other then
    self.other.codec:close()
  end
  for _, text in ipairs(self.texts) do
    text:close()
  end
end

return encoders
