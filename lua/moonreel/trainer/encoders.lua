--- What encoders take that lie apart from the run: a video autoencoder and a text encoder with
-- programs and weights of their own, by those programs. Nothing is opened and nothing runs.
-- @module moonreel.trainer.encoders
local codec = require "moonreel.codec"
local embed = require "moonreel.embed"
local encoder = require "moonreel.encoder"

local encoders = {}

--- Bytes per second at which a rank takes weights in bf16 out of a file that the host's memory
-- holds, where nothing was measured: read by one core, then copied to their places. A disk may be
-- slower.
encoders.READ_RATE = 0.7e9

local Encoders = {}
Encoders.__index = Encoders

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
    self.weights = self.weights + self.codec:weight_bytes()
  end
  if pipe.text.apart and not given.captions then
    self.text = embed.plan(pipe, of, given.memory_bytes)
    self.weights = self.weights + self.text.encoder:weight_bytes()
    local streams, rate = self.text.residency == "stream", given.read_rate or encoders.READ_RATE
    self.read_s = streams and self.text.weight_bytes / rate or 0
    self.notes = text_notes(pipe.text, streams, self.text.weight_bytes, rate)
  end
  return self
end

--- What encoding a batch takes.
---@param b table  frames, height, width, batch
---@return number seconds
---@return number bytes  of the largest program of each part: all parts keep their memory
---@return number read_s  in which weights are read, by each of the ranks that share the batch
function Encoders:batch(b)
  local seconds, bytes = 0, 0
  local function add(rows, times)
    for _, row in ipairs(rows) do
      seconds = seconds + times * row.runs * self.seconds(row.prog)
    end
    bytes = bytes + encoder.working_bytes(rows)
  end
  add(self.codec and self.codec:encoders(b.frames, b.height, b.width) or {}, b.batch)
  add(self.text and self.text:encoders(b.batch) or {}, 1)
  return seconds, bytes, self.read_s
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
