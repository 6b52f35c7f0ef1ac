--- Text encoder "bytes": bytes and hashed n-grams, one transformer layer, trained with the rest.
-- @module moonreel.models.bytes
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"

local bytes = {}

bytes.defaults = {width = 128, rows = 4096, ngrams = 6, max_length = 56, num_heads = 4}

local Encoder = {}
Encoder.__index = Encoder

--- Declares the parameters.
---@param params mr.Params
---@param config table  fields of bytes.defaults
function bytes.new(params, config)
  local c = nn.merged(bytes.defaults, config)
  if c.width % (2 * c.num_heads) ~= 0 then
    base.raise("MR_E_RECIPE",
      ("text_encoder.width %d is not an even multiple of num_heads %d"):format(c.width,
      c.num_heads))
  end
  local scope = nn.scope(params, "text_encoder")
  local self = setmetatable({
    config = c, width = c.width, max_length = c.max_length, cache = {}, cached = 0,
    byte = nn.Embedding(scope, "byte", 256, c.width, 0.5),
    ngram = nn.Embedding(scope, "ngram", c.rows, c.width, 0.5),
    position = scope:add("position", {c.max_length, c.width}, {kind = "normal", scale = 0.1}),
  }, Encoder)
  local layer = scope:child("layer")
  self.norm1 = nn.LayerNorm(layer, "norm1", c.width)
  self.attn = nn.SelfAttention(layer, "attn", c.width, {heads = c.num_heads})
  self.norm2 = nn.LayerNorm(layer, "norm2", c.width)
  self.mlp = nn.Mlp(layer, "mlp", c.width, 4 * c.width, c.width)
  self.norm = nn.LayerNorm(scope, "norm", c.width)
  return self
end

-- ids of one caption: bytes [L], n-grams ending at each byte [L x ngrams]; -1: no id
local function encode(c, caption)
  local text = caption:sub(1, c.max_length)
  local ids, grams = {}, {}
  for i = 1, c.max_length do
    ids[i] = text:byte(i) or -1
    for n = 1, c.ngrams do
      local inside = i <= #text and i - n >= 0
      grams[#grams + 1] = inside and base.mix(n, text:sub(i - n + 1, i)) % c.rows or -1
    end
  end
  -- as tensors, because tables of numbers take six times the memory
  return {ids = T.from({1, c.max_length, 1}, ids, "i32"),
    grams = T.from({1, c.max_length, c.ngrams}, grams, "i32"), len = #text}
end

local CACHE = 4096

--- Captions as tensors for the graph.
---@param captions string[]
---@return table  ids i32 [B, L, 1], grams i32 [B, L, ngrams], len i32 [B]
function Encoder:tokens(captions)
  local c, B, len = self.config, #captions, {}
  local ids, grams = T.new("i32", {B, c.max_length, 1}), T.new("i32", {B, c.max_length, c.ngrams})
  for b, caption in ipairs(captions) do
    local one = self.cache[caption]
    if not one then
      -- a full cache is cleared, because each caption occurs once in an epoch
      if self.cached >= CACHE then
        self.cache, self.cached = {}, 0
      end
      one = encode(c, caption)
      self.cache[caption], self.cached = one, self.cached + 1
    end
    ids:slice(0, b - 1, b):copy_from(one.ids)
    grams:slice(0, b - 1, b):copy_from(one.grams)
    len[b] = one.len
  end
  return {ids = ids, grams = grams, len = T.from({B}, len, "i32")}
end

--- Declares the inputs of a batch of B captions.
function Encoder:inputs(g, B)
  local c = self.config
  return {ids = g:input("text_ids", "i32", {B, c.max_length, 1}),
    grams = g:input("text_grams", "i32", {B, c.max_length, c.ngrams}),
    len = g:input("text_len", "i32", {B})}
end

--- Sets them on a program.
---@param tokens table  from Encoder:tokens; the caller may change the number of tokens in use
function Encoder.set(_, prog, tokens)
  prog:set("text_ids", tokens.ids)
  prog:set("text_grams", tokens.grams)
  prog:set("text_len", tokens.len)
end

--- The text features.
---@param inputs table  from Encoder:inputs
---@return mr.Value     [B, L, width]
function Encoder:forward(g, inputs)
  local B, L, D = inputs.ids.shape[1], self.max_length, self.width
  local x = self.byte(g, inputs.ids) + self.ngram(g, inputs.grams) + g:param(self.position)
  x = x:reshape{B, 1, L, D}
  x = x + self.attn(g, self.norm1(g, x), {len = inputs.len})
  x = x + self.mlp(g, self.norm2(g, x))
  return self.norm(g, x):reshape{B, L, D}
end

return bytes
