--- What encoders take that stand outside the step's graph: a video autoencoder with programs and
-- weights of its own, by its programs; a text encoder by formula.
-- @module moonreel.plan.encoders
local closed = require "moonreel.plan.closed"
local codec = require "moonreel.codec"
local work = require "moonreel.plan.work"

local encoders = {}

local Encoders = {}
Encoders.__index = Encoders

-- text encoders by type: weights, and the operations of a caption
local texts = {}

function texts.t5(fields)
  local n = closed.t5.parameters
  return { parameters = n, flop = 2 * n * fields.model_max_length }
end

--- The encoders of a pipeline.
---@param settings table
---@param pipe mr.Pipeline
---@param m table        machine
---@param options table  of E.plan: facts, rates
---@return moonreel.plan.Encoders  weights: bytes of both; notes: what is told by formula
function encoders.new(settings, pipe, m, options)
  local self = setmetatable({ machine = m, dtype = pipe.dtype, weights = 0, notes = {} }, Encoders)
  if pipe.autoencoder.apart then
    self.codec = codec.plan(pipe, options)
    for _, row in ipairs(self.codec.exec:regions()) do
      self.weights = self.weights + row.bytes
    end
  end
  local fields = settings:plain("text_encoder")
  local text = texts[fields.type]
  if text then
    self.text = text(fields)
    self.weights = self.weights + 2 * self.text.parameters
    self.notes[1] = ("text_encoder '%s': its %.2f G weights and its seconds are told by formula, "
      .. "its working memory is not"):format(fields.type, self.text.parameters * 1e-9)
  end
  return self
end

--- What encoding a batch takes.
---@param b table  frames, height, width, batch
---@return number seconds
---@return number bytes  of the largest of their programs, while it runs
function Encoders:batch(b)
  local seconds, most = 0, 0
  for _, row in ipairs(self.codec and self.codec:encoders(b.frames, b.height, b.width) or {}) do
    local parts, m = work.parts(self.machine, row.prog:times(), self.dtype), row.prog:memory()
    seconds = seconds + row.runs * parts.forward
    most = math.max(most, m.arena + m.inputs + m.results + m.consts)
  end
  if self.text then
    seconds = seconds + self.text.flop / self.machine.rate.text
  end
  return b.batch * seconds, most
end

--- Give back programs.
function Encoders:close()
  if self.codec then
    self.codec:close()
  end
end

return encoders
