--- Captions to features: text encoders separate from a run, with the weights and the tokenizer of a
-- folder.
-- @module moonreel.embed
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local ckpt = require "moonreel.ckpt"
local encoder = require "moonreel.encoder"
local holds = require "moonreel.ckpt.model"
local options = require "moonreel.text.options"
local residency = require "moonreel.embed.residency"
local source = require "moonreel.embed.source"

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
  { "places", "integer", "texts of one length are computed this many at a time, filled up "
    .. "where they are fewer: then features of a text do not depend on those next to it, which "
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
local function load(self, enc, o, device)
  self.source = source.open(self.path, enc)
  self.max_length = math.min(o.max_length, enc.max_tokens or o.max_length)
  self.tok = enc:tokenizer(self.path, { max_length = self.max_length, compat = o.compat,
    say = o.say })
  self.enc, self.width = enc, enc.width
  local way, bytes = residency.fitting(enc, (device:memory()), o.dtype)
  self.residency = residency.of(enc, o.residency, way)
  self.weight_bytes = bytes
  self.encoder = encoder.new(enc, { device = device, dtype = o.dtype, way = self.residency,
    load = function(part, i) self.source:load(part, i) end })
end

-- an encoder that may be known already, with the weights of a folder
local function opened(path, o, enc)
  if not base.exists(path) then
    base.raise("MR_E_USAGE", ("no folder '%s', and nothing is downloaded; try: a folder with "
      .. "config.json, weights and the tokenizer of a text encoder"):format(path))
  end
  local self = setmetatable({ path = path, dtype = o.dtype,
    padding = o.padding, places = o.places }, Encoder)
  local good, problem = pcall(function()
    if not enc then
      local file <close> = ckpt.open(path)
      enc = holds.family(file, "text_encoder", "clip"):open "init".of_file(path, o)
    end
    load(self, enc, o, o.device or require("moonreel.core.exec").device())
  end)
  if not good then
    self:close()
    error(problem, 0)
  end
  return self
end

--- Open the encoder of a folder, whose family is known by its tensors: config.json, weights in any
-- form that opens, the tokenizer.
---@param path string
---@param given table|nil  device, dtype, max_length, padding, residency, compat, say
---@return mr.Embedder     text("a caption") gives its features as a tensor
function embed.open(path, given)
  local o = read_options(given)
  one_of("dtype", o.dtype, "f32", "bf16")
  one_of("padding", o.padding, "skip", "attend")
  one_of("residency", o.residency, "auto", "all", "stream")
  return opened(path, o)
end

-- texts of a length that are computed together, `places` of them; 0: any number
local function capacity(places, L) return places > 0 and math.max(1, places // L) or math.huge end

-- tokens of a text, which an encoder of one vector has more of than features
local function most_tokens(text) return text.max_tokens or text.max_length end

--- Give a text encoder of a pipeline its weights.
---@param text mr.Text        lies apart
---@param device mr.Device
---@param steady boolean|nil  a caption's features do not depend on the others of its batch
---@return mr.Embedder        close it
function embed.new(text, device, steady)
  text.embedder = opened(text.path, { device = device, dtype = text.dtype,
    compat = text.compat, max_length = most_tokens(text), residency = text.residency,
    padding = text.padding, places = steady and PLACES or 0 }, text)
  return text.embedder
end

local Embedders = {}
Embedders.__index = Embedders

--- Give all text encoders of a pipeline that lie apart their weights; errors name the field.
---@param settings table      baked
---@param pipe mr.Pipeline
---@param device mr.Device
---@param steady boolean|nil  as of new
---@return table              close it
function embed.open_all(settings, pipe, device, steady)
  local all = setmetatable({}, Embedders)
  local good, problem = pcall(function()
    for i, row in ipairs(pipe:texts_apart()) do
      all[i] = blame.field(settings, row[1] .. ".from_pretrained", embed.new, row[2], device,
        steady)
    end
  end)
  if not good then
    all:close()
    error(problem, 0)
  end
  return all
end

function Embedders:close()
  for _, one in ipairs(self) do
    one:close()
  end
end

-- what calls take of a group of texts
local function shape_of(n, L, dtype, padding)
  return { n = n, L = L, dtype = dtype, lengths = padding == "skip" }
end

local Plan = {}
Plan.__index = Plan

--- What a text encoder takes in training, without its weights.
---@param text mr.Text      lies apart
---@param given table       options of E.plan
---@param free integer      bytes that residency = "auto" may have half of
---@return mr.EmbedPlan     residency; weight_bytes: of all weights; ranks: that share each layer;
---   encoder; close it
function embed.plan(text, given, free)
  local way, bytes = residency.fitting(text, free, text.dtype)
  -- one that is open has decided
  local wish = text.embedder and text.embedder.residency or text.residency
  local self = setmetatable({ weight_bytes = bytes, text = text,
    ranks = text.split and text.split.ranks or 1, residency = residency.of(text, wish, way) }, Plan)
  self.encoder = encoder.new(text, { device = given, dtype = text.dtype, way = self.residency })
  return self
end

--- What runs to encode B captions of full length.
---@param B integer
---@return table[] rows  {prog, runs, part}
function Plan:encoders(B)
  local text, L = self.text, most_tokens(self.text)
  local n = capacity(PLACES, L)
  local rows = self.encoder:plan("encode", shape_of(n, L, text.dtype, text.padding))
  for _, row in ipairs(rows) do
    row.runs = row.runs * -(-B // n)
  end
  return rows
end

--- Give back programs; harmless twice.
function Plan:close() self.encoder:close() end

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

-- one group's call: its values have names of its own
local function renamed(call, k)
  local function of_group(map)
    local out = {}
    for name, row in pairs(map) do
      local copy = table.move(row, 2, #row, 2, { row[1] .. " " .. k })
      out[name] = setmetatable(copy, { __index = row })
    end
    return out
  end
  return setmetatable({ takes = of_group(call.takes), gives = of_group(call.gives) },
    { __index = call })
end

-- run all groups: each call of one for all of them before the next, so that weights are read once
local function run_groups(self, groups)
  local lists, calls, values, wanted, rows = {}, {}, {}, {}, {}
  for k, group in ipairs(groups) do
    lists[k] = self.enc:calls("encode", shape_of(#group.lists, group.L, self.dtype, self.padding),
      self.residency)
    for name, value in pairs(self.enc:values(self.source, group, self.dtype, rows)) do
      values[name .. " " .. k] = value
    end
    wanted["y " .. k] = group
  end
  for i = 1, #(lists[1] or {}) do
    for k, list in ipairs(lists) do
      calls[#calls + 1] = renamed(list[i], k)
    end
  end
  self.encoder:run(calls, values, wanted, function(prog, output, _, _, name)
    wanted[name].y = prog:get(output)
  end)
end

-- what a group of texts gives to a row of the batch: a vector, or the features of its tokens
local function put(self, y, b, group, i, n)
  local from, to = group.y:slice(0, i - 1, i), y:slice(0, b - 1, b)
  if self.enc.vector then
    to:copy_from(from:reshape(to.shape))
    return
  end
  to:slice(1, 0, n):reshape { n, self.width }:copy_from(
    from:reshape { group.L, self.width }:slice(0, 0, n))
end

--- Features of texts given as ids.
---@param lists integer[][]  1 to max_length ids each
---@return mr.Tensor y       [B, max_length, width]; zero behind the ids where padding is skipped.
---   Of an encoder that gives one vector [B, 1, width]
---@return mr.Tensor len     i32 [B], ids of each; 1 for a vector
function Encoder:encode(lists)
  local skip, vector = self.padding == "skip", self.enc.vector
  local groups, len = grouped(self, lists), {}
  for b, ids in ipairs(lists) do
    len[b] = vector and 1 or #ids
  end
  for _, group in ipairs(groups) do
    group.counts = {}
    for i, ids in ipairs(group.lists) do
      group.counts[i] = #ids
      group.lists[i] = skip and ids or padded(self, ids)
    end
  end
  run_groups(self, groups)
  local y = T.new(self.dtype, { #lists, vector and 1 or self.max_length, self.width })
  for _, group in ipairs(groups) do
    for i, b in ipairs(group.at) do
      put(self, y, b, group, i, skip and len[b] or self.max_length)
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
  local y, len = self:encode { self.tok:ids(caption) }
  return y:reshape { y.shape[2], self.width }:slice(0, 0, len[0]):clone()
end

function Encoder:__tostring()
  local how = { all = "all in memory", stream = "streams its blocks" }
  return ("mr.Embedder: %s, %s, %s, %s"):format(self.path, self.enc:about(), self.dtype,
    how[self.residency])
end

--- Bytes of tensors read from the files so far.
---@return integer
function Encoder:bytes_read() return self.source.bytes_read end

--- Give back the memory of the weights; harmless twice.
function Encoder:close()
  if self.encoder then
    self.encoder:close()
  end
  if self.source then
    self.source:close()
  end
end
Encoder.__close = Encoder.close

return embed
