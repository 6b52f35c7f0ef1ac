--- Text encoder "clip": one vector of a caption, the state at its end of text. It declares no
-- parameters in the run's table; moonreel.embed computes the vectors, which are an input of the
-- step. Ref: opensora-2.0.md 14.
-- @module moonreel.models.clip
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local features = require "moonreel.models.features"
local network = require "moonreel.models.clip.network"
local sizes = require "moonreel.models.clip.sizes"
local weights = require "moonreel.models.clip.weights"

local clip = {}

--- Its weights are in separate files and are not part of checkpoints; `files` also decide its
-- vectors.
clip.apart, clip.files = true, { "vocab.json", "merges.txt" }

--- It gives one vector of a caption.
clip.vector = true

local KEPT = 8  -- compiled shapes

local Text = features.class(sizes)

-- The encoder before a folder is opened. No place before the end of text attends to places after
-- it, so those need not be computed.
local function new(o)
  o.apart, o.vector, o.padding, o.maps = true, true, "skip", { weights }
  return setmetatable(o, Text)
end

--- The encoder of a recipe. A released one is known by its name even if its files are not there.
---@param _ mr.Params
---@param config table  from_pretrained; model_max_length, or at_most: that number, or its places if
---   they are fewer
---@param run table     dtype, compat
---@return mr.Text      apart; vector; its width; max_tokens of a text
function clip.new(_, config, run)
  local path = config.from_pretrained
  if not path then
    base.raise("MR_E_RECIPE", "clip.from_pretrained is not set; expected the folder of a CLIP: "
      .. "config.json, weights, vocab.json and merges.txt")
  end
  local s = sizes:of_folder(path) or sizes.of_name(path)
  if not s then
    base.raise("MR_E_RECIPE", ("clip.from_pretrained: no config.json in '%s', and nothing is "
      .. "downloaded; try: a folder with config.json, weights, vocab.json and merges.txt of a CLIP")
      :format(path))
  end
  local places = s.max_position_embeddings
  local tokens = config.model_max_length or math.min(config.at_most, places)
  if tokens > places then
    base.raise("MR_E_RECIPE", ("clip.model_max_length is %d, but the CLIP of '%s' has %d places; "
      .. "try: clip.model_max_length = %d"):format(tokens, path, places, places))
  end
  return new { path = path, sizes = s, width = s.hidden_size, dtype = run.dtype, max_length = 1,
    max_tokens = tokens, compat = run.compat }
end

--- The encoder of an open folder; its sizes come from the tensors.
---@param path string
---@param o table     dtype
---@return mr.Text
function clip.of_file(path, o) return new { path = path, dtype = o.dtype } end

-- ---- files

--- Reads its sizes from tensors and config.json.
---@param shape_of fun(name: string): integer[]|nil
---@param path string
function Text:read(shape_of, path)
  self.sizes = sizes:read(path, shape_of, self.blocks)
  self.width = self.sizes.hidden_size
  self.max_tokens = math.min(self.max_tokens or math.huge, self.sizes.max_position_embeddings)
end

--- Its sizes as text.
function Text:about()
  return ("%d blocks of %d"):format(self.sizes.num_hidden_layers, self.width)
end

-- ---- calls

--- Its parts with weights: one, the whole encoder.
function Text:parts()
  return { { name = "whole", kept = KEPT,
    declare = function(params) return network.new(params, self.sizes) end } }
end

--- The calls for texts of one length: from x, their words, and at, the places of their ends, to y.
---@param _ string   job "encode"
---@param s table    n texts of L places in dtype
function Text:calls(_, s)
  return { { part = "whole", key = ("%dx%d"):format(s.n, s.L),
    takes = { x = { "x", 0, dtype = s.dtype, shape = { s.n, 1, s.L, self.width } },
      at = { "at", 0, dtype = "i32", shape = { s.n, 1 } } },
    gives = { out = { "y", 0, s.n } },
    nodes = function(g, net, io) return net:pooled(net:forward(g, io.x), io.at) end } }
end

--- The place of the end of text: the first one with the largest id.
---@param ids integer[]
---@return integer       from 1
function clip.end_of(ids)
  local at = 1
  for i, id in ipairs(ids) do
    at = id > ids[at] and i or at
  end
  return at
end

--- The inputs of calls for a group of texts.
---@param source mr.TextSource
---@param group table   lists of ids; L: places of each
---@param dtype string
---@param rows table    rows that the batch has read so far, by id; new rows are added
---@return table        x [B, 1, L, width], at i32 [B, 1]
function Text:values(source, group, dtype, rows)
  local at = {}
  for b, ids in ipairs(group.lists) do
    at[b] = (b - 1) * group.L + clip.end_of(ids) - 1
  end
  return { x = self:words(source, group, dtype, rows), at = T.from({ #at, 1 }, at, "i32") }
end

return clip
