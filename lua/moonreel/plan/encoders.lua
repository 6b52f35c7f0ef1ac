--- What encoders take that lie apart from the run: a video autoencoder and a text encoder with
-- programs and weights of their own, by those programs.
-- @module moonreel.plan.encoders
local codec = require "moonreel.codec"
local embed = require "moonreel.embed"
local work = require "moonreel.plan.work"

local encoders = {}

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

--- The encoders of a pipeline.
---@param pipe mr.Pipeline
---@param m table        machine
---@param options table  facts, rates as E.plan takes them; video, captions: true where they come
---   from a cache
---@return moonreel.plan.Encoders  weights: bytes of both; notes: what is assumed
function encoders.new(pipe, m, options)
  local self = setmetatable({ machine = m, dtype = pipe.dtype, weights = 0, notes = {} }, Encoders)
  local of = { facts = options.facts, rates = options.rates }
  if pipe.autoencoder.apart and not options.video then
    self.codec = codec.plan(pipe, of)
    self.weights = self.weights + encoders.weight_bytes(self.codec.exec)
  end
  if pipe.text.apart and not options.captions then
    self.text, self.captions = embed.plan(pipe, of)
    self.weights = self.weights + encoders.weight_bytes(self.text.exec)
    self.notes[1] = ("captions are planned with all of their %d tokens, and all weights of their "
      .. "encoder in memory"):format(pipe.text.max_length)
  end
  return self
end

-- seconds and working bytes of one run of a program
local function run_of(self, prog)
  local m = prog:memory()
  return work.parts(self.machine, prog:times(), self.dtype).forward,
    m.arena + m.inputs + m.results + m.consts
end

--- What encoding a batch takes.
---@param b table  frames, height, width, batch
---@return number seconds
---@return number bytes  of the largest program of each encoder: both keep their memory
function Encoders:batch(b)
  local seconds, bytes = 0, 0
  for _, row in ipairs(self.codec and self.codec:encoders(b.frames, b.height, b.width) or {}) do
    local one, most = run_of(self, row.prog)
    seconds, bytes = seconds + b.batch * row.runs * one, math.max(bytes, most)
  end
  if self.text then
    local prog, runs = self.captions(b.batch)
    local one, most = run_of(self, prog)
    seconds, bytes = seconds + runs * one, bytes + most
  end
  return seconds, bytes
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
