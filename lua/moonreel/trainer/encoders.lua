--- What encoders take that lie apart from the run: a video autoencoder and a text encoder with
-- programs and weights of their own, by those programs. Nothing is opened and nothing runs.
-- @module moonreel.trainer.encoders
local codec = require "moonreel.codec"
local embed = require "moonreel.embed"

local encoders = {}

--- Bytes per second at which a rank takes weights in bf16 out of a file that the host's memory
-- holds, where nothing was measured: read by one core, then copied to their places. A disk may be
-- slower.
encoders.READ_RATE = 0.7e9

local Encoders = {}
Encoders.__index = Encoders

--- Bytes of all regions of an executor.
---@param exec mr.Exec
---@return integer
function encoders.weight_bytes(exec)
  local bytes = 0
  for _, row in ipairs(exec:regions()) do
    bytes = bytes + row.bytes
  end
  return bytes
end

-- what a reader must know of how captions are counted
local function text_notes(text, streams, weights, rate)
  local notes = { ("captions are planned with all of their %d tokens"):format(text.max_length) }
  if streams then
    notes[2] = ("the text encoder reads %.3g GB of blocks for every batch, at %.3g GB/s where its "
      .. "files stay in the host's memory: %.3g s; try: text_encoder.residency = \"all\", or "
      .. "cached text"):format(weights / 1e9, rate / 1e9, weights / rate)
  else
    notes[1] = notes[1] .. ", and all weights of their encoder in memory"
  end
  return notes
end

--- The encoders of a pipeline.
---@param pipe mr.Pipeline
---@param given table  facts, rates as E.plan takes them; memory_bytes: that a text encoder may have
---   half of; seconds: what a program takes; video, captions: true where they come from a cache;
---   read_rate: bytes per second of weights that are read for every batch, absent: READ_RATE
---@return mr.Encoders  weights: bytes of both; notes: what is assumed
function encoders.new(pipe, given)
  local self = setmetatable({ seconds = given.seconds, weights = 0, read_s = 0,
    notes = {} }, Encoders)
  local of = { facts = given.facts, rates = given.rates }
  if pipe.autoencoder.apart and not given.video then
    self.codec = codec.plan(pipe, of)
    self.weights = self.weights + encoders.weight_bytes(self.codec.exec)
  end
  if pipe.text.apart and not given.captions then
    self.text = embed.plan(pipe, of, given.memory_bytes)
    for _, part in ipairs(self.text.parts) do
      self.weights = self.weights + encoders.weight_bytes(part.exec)
    end
    local streams, rate = self.text.residency == "stream", given.read_rate or encoders.READ_RATE
    self.read_s = streams and self.text.weight_bytes / rate or 0
    self.notes = text_notes(pipe.text, streams, self.text.weight_bytes, rate)
  end
  return self
end

-- working bytes of a program
local function bytes_of(prog)
  local m = prog:memory()
  return m.arena + m.inputs + m.results + m.consts
end

--- What encoding a batch takes.
---@param b table  frames, height, width, batch
---@return number seconds
---@return number bytes  of the largest program of each part: all parts keep their memory
---@return number read_s  in which weights are read, by each of the ranks that share the batch
function Encoders:batch(b)
  local seconds, clips, captions = 0, 0, 0
  for _, row in ipairs(self.codec and self.codec:encoders(b.frames, b.height, b.width) or {}) do
    seconds = seconds + b.batch * row.runs * self.seconds(row.prog)
    clips = math.max(clips, bytes_of(row.prog))
  end
  for _, row in ipairs(self.text and self.text:encoders(b.batch) or {}) do
    seconds, captions = seconds + row.runs * self.seconds(row.prog), captions + bytes_of(row.prog)
  end
  return seconds, clips + captions, self.read_s
end

--- Give back programs.
function Encoders:close()
  if self.codec then
    self.codec:close()
  end
  if self.text then
    self.text:close()
  end
end

return encoders
