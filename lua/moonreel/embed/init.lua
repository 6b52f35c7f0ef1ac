--- Converts captions to features: text encoders that are separate from a run, with the weights and
-- the tokenizer of a folder.
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

-- lengths are rounded up to a multiple of this, to have few shapes and little padding
local ROUND = 16

-- number of texts computed at a time when features must not depend on other texts
local PLACES = 512

---@class mr.Embedder
---@field width integer       elements of a feature
---@field max_length integer  the most tokens of a text
---@field residency string    "all" or "stream"
---@field tok mr.Tokenizer
local Encoder = {}
Encoder.__name = "mr.Embedder"
Encoder.__index = Encoder

local read_options = options.declare("embed.open", {
  { "device", "mr.Device", "device to compute on; absent: the default device" },
  { "dtype", "text", "dtype of weights and features: f32 or bf16", default = "f32" },
  { "max_length", "integer", "the most tokens of a text including its end; longer texts are cut",
    default = 300 },
  { "padding", "text", "skip: only tokens of the text are computed, as in Open-Sora 1.2; attend: "
    .. "all positions up to max_length are computed and attended, as in 2.0", default = "skip" },
  { "residency", "text", "all: keep weights in memory; stream: read each block from the files "
    .. "for every batch; auto: all if they need at most half of the free memory",
    default = "auto" },
  { "places", "integer", "number of texts of one length computed at a time, padded if "
    .. "there are fewer, so that the features of a text do not depend on the other texts (matrix "
    .. "products of other sizes round differently); 0: all texts of one length at once",
    default = 0 },
  { "compat", "boolean", "a text may contain the spelling of special tokens", default = false },
  { "say", "function", "called with a message about the first text that is cut" },
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

-- loads tokenizer, files and weights
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

-- opens the weights of a folder for an encoder, which may be known already
local function opened(path, o, enc)
  if not base.exists(path) then
    base.raise("MR_E_USAGE", ("there is no folder '%s', and nothing is downloaded; try: a "
      .. "folder with config.json, weights and the tokenizer of a text encoder"):format(path))
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

--- Opens the encoder of a folder. Its family is recognized by its tensors. The folder has
-- config.json, weights in any supported form, and the tokenizer.
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

-- the number of texts of one length that are computed together; places = 0: any number
local function capacity(places, L) return places > 0 and math.max(1, places // L) or math.huge end

-- the most tokens of a text; an encoder of one vector has more tokens than features
local function most_tokens(text) return text.max_tokens or text.max_length end

--- Loads the weights of a text encoder of a pipeline.
---@param text mr.Text        encoder with separate weights
---@param device mr.Device
---@param steady boolean|nil  a caption's features do not depend on the others of its batch
---@return mr.Embedder        the caller closes it
function embed.new(text, device, steady)
  text.embedder = opened(text.path, { device = device, dtype = text.dtype,
    compat = text.compat, max_length = most_tokens(text), residency = text.residency,
    padding = text.padding, places = steady and PLACES or 0 }, text)
  return text.embedder
end

local Embedders = {}
Embedders.__index = Embedders

--- Loads the weights of all separate text encoders of a pipeline; errors name the field.
---@param settings table      baked
---@param pipe mr.Pipeline
---@param device mr.Device
---@param steady boolean|nil  as for embed.new
---@return table              the caller closes it
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

-- the arguments of calls for a group of texts
local function shape_of(n, L, dtype, padding)
  return { n = n, L = L, dtype = dtype, lengths = padding == "skip" }
end

local Plan = {}
Plan.__index = Plan

--- Plans the memory of a text encoder in training, without its weights.
---@param text mr.Text      encoder with separate weights
---@param given table       options of E.plan
---@param free integer      free bytes; residency = "auto" may use half of them
---@return mr.EmbedPlan     residency; weight_bytes: of all weights; ranks: that share each layer;
---   encoder; the caller closes it
function embed.plan(text, given, free)
  local way, bytes = residency.fitting(text, free, text.dtype)
  -- an open encoder has decided already
  local wish = text.embedder and text.embedder.residency or text.residency
  local self = setmetatable({ weight_bytes = bytes, text = text,
    ranks = text.split and text.split.ranks or 1, residency = residency.of(text, wish, way) }, Plan)
  self.encoder = encoder.new(text, { device = given, dtype = text.dtype, way = self.residency })
  return self
end

--- The programs that encode B captions of full length.
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

--- Frees the programs. It may be called twice.
function Plan:close() self.encoder:close() end

-- groups texts of similar length, which are computed together
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

-- the ids padded to the full length, if padding is attended
local function padded(self, ids)
  local all = table.move(ids, 1, #ids, 1, {})
  for i = #all + 1, self.max_length do
    all[i] = self.tok.pad_id
  end
  return all
end

-- a call of one group, with renamed values
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

-- runs all groups: each call for all groups before the next call, so that weights are read once
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

-- writes the result for a text into a row of the batch: a vector, or the features of its tokens
local function put(self, y, b, group, i, n)
  local from, to = group.y:slice(0, i - 1, i), y:slice(0, b - 1, b)
  if self.enc.vector then
    to:copy_from(from:reshape(to.shape))
    return
  end
  to:slice(1, 0, n):reshape { n, self.width }:copy_from(
    from:reshape { group.L, self.width }:slice(0, 0, n))
end

--- Encodes texts given as ids.
---@param lists integer[][]  1 to max_length ids each
---@return mr.Tensor y       [B, max_length, width], zero after the ids if padding is skipped; [B,
---   1, width] for an encoder that gives one vector
---@return mr.Tensor len     i32 [B], number of ids of each text; 1 for a vector
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

--- Encodes captions in the form that the graph of a run takes.
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

--- Encodes one caption.
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

--- The bytes of tensors read from the files so far.
---@return integer
function Encoder:bytes_read() return self.source.bytes_read end

--- Frees the weights. It may be called twice.
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
