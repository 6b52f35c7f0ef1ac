--- Captions to features: text encoders that lie apart from a run, with the weights and the
-- tokenizer of a folder. T5 v1.1 so far.
-- @module moonreel.embed
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local options = require "moonreel.text.options"
local residency = require "moonreel.embed.residency"
local source = require "moonreel.embed.source"
local token = require "moonreel.token"

local embed = {}

-- lengths are rounded up to a multiple of this: few shapes, and little that is computed for nothing
local ROUND = 16

-- places at a time where features are a function of their text alone
local PLACES = 512

---@class mr.Embedder
---@field width integer       of a feature
---@field max_length integer  tokens of a text
---@field residency string    "all" or "stream"
---@field tok mr.Tokenizer
local Encoder = {}
Encoder.__name = "mr.Embedder"
Encoder.__index = Encoder

local read_options = options.declare("embed.open", {
  { "device", "mr.Device", "that computes; the default device where absent" },
  { "dtype", "text", "f32 or bf16: of weights and features", default = "f32" },
  { "max_length", "integer", "tokens of a text, its end among them; what is longer is cut",
    default = 300 },
  { "padding", "text", "skip: only tokens of the text are computed, as in Open-Sora 1.2; attend: "
    .. "all places up to max_length, and all see all, as in 2.0", default = "skip" },
  { "residency", "text", "all: weights stay in memory; stream: each block is read from the files "
    .. "for every batch; auto: all where they take at most half of the free memory",
    default = "auto" },
  { "places", "integer", "texts of one length are computed so many places at a time, filled up "
    .. "where they are fewer: then features of a text do not depend on those beside it, which "
    .. "products of other sizes round in other ways; 0: all texts of one length at once",
    default = 0 },
  { "compat", "boolean", "special tokens may be spelled in a text", default = false },
  { "say", "function", "takes the line about the first text that is cut" },
})

local function one_of(field, value, ...)
  for _, known in ipairs { ... } do
    if value == known then
      return
    end
  end
  base.raise("MR_E_USAGE", ("embed.open: %s is '%s'; expected %s"):format(field, value,
    table.concat({ ... }, " or ")))
end

-- tokenizer, files and weights
local function load(self, o, device)
  self.tok = token.open(self.path, { max_length = o.max_length, compat = o.compat, say = o.say })
  self.source = source.open(self.path)
  self.sizes, self.width = self.source.sizes, self.source.sizes.d_model
  local way, bytes = residency.fitting(self.sizes, (device:memory()), o.dtype)
  self.residency = o.residency == "auto" and way or o.residency
  self.weight_bytes = bytes
  self.net = residency[self.residency](self.source, device, o.dtype)
end

--- Open the encoder of a folder: config.json, weights in any form that opens, spiece.model.
---@param path string
---@param given table|nil  device, dtype, max_length, padding, residency, compat, say
---@return mr.Embedder     t5("a caption") gives its features as a tensor
function embed.open(path, given)
  local o = read_options(given)
  one_of("dtype", o.dtype, "f32", "bf16")
  one_of("padding", o.padding, "skip", "attend")
  one_of("residency", o.residency, "auto", "all", "stream")
  if not base.exists(path) then
    base.raise("MR_E_USAGE", ("no folder '%s', and nothing is downloaded; try: a folder with "
      .. "config.json, weights and spiece.model of T5 v1.1"):format(path))
  end
  local self = setmetatable({ path = path, dtype = o.dtype, max_length = o.max_length,
    padding = o.padding, places = o.places }, Encoder)
  local good, problem = pcall(load, self, o, o.device or require("moonreel.core.exec").device())
  if not good then
    self:close()
    error(problem, 0)
  end
  return self
end

-- texts of a length that are computed together, of so many places; 0: any number
local function capacity(places, L) return places > 0 and math.max(1, places // L) or math.huge end

--- Give the text encoder of a pipeline its weights, where they lie apart from the run.
---@param pipe mr.Pipeline
---@param device mr.Device
---@param steady boolean|nil  a caption's features do not depend on the others of its batch
---@return mr.Embedder|nil  close it; nil: the encoder is a part of the run
function embed.new(pipe, device, steady)
  local text = pipe.text
  if not text.apart then
    return nil
  end
  text.embedder = embed.open(text.path, { device = device, dtype = text.dtype,
    compat = text.compat, max_length = text.max_length, residency = text.residency,
    places = steady and PLACES or 0 })
  return text.embedder
end

local Plan = {}
Plan.__index = Plan

--- What the text encoder of a pipeline takes in training, without its weights.
---@param pipe mr.Pipeline  its encoder lies apart
---@param given table       options of E.plan
---@param free integer      bytes that residency = "auto" may have half of
---@return mr.EmbedPlan     residency; weight_bytes: of all weights; parts: mr.Part[]; close it
function embed.plan(pipe, given, free)
  local text = pipe.text
  local way, bytes = residency.fitting(text.sizes, free, text.dtype)
  -- one that is open has decided
  local wish = text.embedder and text.embedder.residency or text.residency
  local self = setmetatable({ weight_bytes = bytes, max_length = text.max_length,
    residency = wish == "auto" and way or wish }, Plan)
  self.parts, self.programs = residency.plan(self.residency, text.sizes, given, text.dtype)
  return self
end

--- What runs to encode B captions of full length.
---@param B integer
---@return table[] rows  {prog, runs}
function Plan:encoders(B)
  local n = capacity(PLACES, self.max_length)
  local rows = self.programs(n, self.max_length)
  for _, row in ipairs(rows) do
    row.runs = row.runs * -(-B // n)
  end
  return rows
end

--- Give back programs; harmless twice.
function Plan:close()
  for _, part in ipairs(self.parts) do
    part:close()
  end
end

-- texts of about one length, which are computed together
local function grouped(self, lists)
  local groups, of = {}, {}
  for b, ids in ipairs(lists) do
    local L = self.max_length
    if self.padding == "skip" then
      L = math.min(L, (#ids + ROUND - 1) // ROUND * ROUND)
    end
    local group = of[L]
    if not group or #group.lists == capacity(self.places, L) then
      group = { L = L, at = {}, lists = {} }
      of[L], groups[#groups + 1] = group, group
    end
    group.at[#group.at + 1], group.lists[#group.lists + 1] = b, ids
  end
  for _, group in ipairs(self.places > 0 and groups or {}) do
    for i = #group.lists + 1, capacity(self.places, group.L) do
      group.lists[i] = { self.tok.pad_id }
    end
  end
  return groups
end

-- ids up to the full length, where padding is attended
local function padded(self, ids)
  local all = table.move(ids, 1, #ids, 1, {})
  for i = #all + 1, self.max_length do
    all[i] = self.tok.pad_id
  end
  return all
end

--- Features of texts given as ids.
---@param lists integer[][]  1 to max_length ids each
---@return mr.Tensor y       [B, max_length, width]; zero behind the ids where padding is skipped
---@return mr.Tensor len     i32 [B], ids of each
function Encoder:encode(lists)
  local skip, groups, len, rows = self.padding == "skip", grouped(self, lists), {}, {}
  for b, ids in ipairs(lists) do
    len[b] = #ids
  end
  for _, group in ipairs(groups) do
    local counts = {}
    for i, ids in ipairs(group.lists) do
      counts[i] = #ids
      group.lists[i] = skip and ids or padded(self, ids)
    end
    group.x = self.source:words(group.lists, group.L, self.dtype, rows)
    group.len = skip and T.from({ #counts }, counts, "i32") or nil
  end
  self.net:run(groups)
  local y = T.new(self.dtype, { #lists, self.max_length, self.width })
  for _, group in ipairs(groups) do
    for i, b in ipairs(group.at) do
      local n = skip and len[b] or self.max_length
      y:slice(0, b - 1, b):slice(1, 0, n):reshape { n, self.width }:copy_from(
        group.x:slice(0, i - 1, i):slice(2, 0, n):reshape { n, self.width })
    end
  end
  return y, T.from({ #lists }, len, "i32")
end

--- Features of captions as the graph of a run takes them.
---@param captions string[]
---@return table  y [B, max_length, width], len i32 [B]
function Encoder:tokens(captions)
  local lists = {}
  for b, caption in ipairs(captions) do
    lists[b] = self.tok:ids(caption)
  end
  local y, len = self:encode(lists)
  return { y = y, len = len }
end

--- Features of one caption.
---@param caption string
---@return mr.Tensor      [tokens, width]
function Encoder:__call(caption)
  local ids = self.tok:ids(caption)
  local y = self:encode { ids }
  return y:reshape { self.max_length, self.width }:slice(0, 0, #ids):clone()
end

function Encoder:__tostring()
  local how = { all = "all in memory", stream = "streams its blocks" }
  return ("mr.Embedder: %s, %d blocks of %d, %s, %s"):format(self.path, self.sizes.num_layers,
    self.width, self.dtype, how[self.residency])
end

--- Bytes of tensors read from the files so far.
---@return integer
function Encoder:bytes_read() return self.source.bytes_read end

--- Give back the memory of the weights; harmless twice.
function Encoder:close()
  if self.net then
    self.net:close()
  end
  if self.source then
    self.source:close()
  end
end
Encoder.__close = Encoder.close

return embed
