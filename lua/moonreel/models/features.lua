--- The interface of a separate text encoder to the step of a run: features are an input, which
-- moonreel.embed computes.
-- @module moonreel.models.features
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local split = require "moonreel.nn.split"
local token = require "moonreel.token"

local features = {}

-- split: ranks that share its layers
local Features = { split = split.none }

--- A class of text encoders; a family adds methods to it.
---@param sizes mr.Sizes  of the family
---@return table class    of objects with dtype, max_length, width; embedder after it is loaded
function features.class(sizes)
  local class = setmetatable({ family = sizes }, { __index = Features })
  class.__index = class
  return class
end

--- Lets ranks share the layers, if their number divides the shared quantities (`shares` of the
-- family). Otherwise each rank has all of them, and `whole` has the reason. Called before weights
-- are declared.
---@param by mr.Split  connected before a program runs
function Features:share_layers(by)
  for _, row in ipairs(self.shares and self:shares() or { { "all", 1 } }) do
    if row[2] % by.ranks ~= 0 then
      self.whole = self.shares and ("the text encoder has %d %s, which %d ranks do not divide: "
        .. "each rank has all of its layers; "
        .. "try: a plugin_config.tp_size that divides them"):format(
        row[2], row[1], by.ranks) or nil
      return
    end
  end
  self.split = by
end

--- Features of captions in the form for the graph of a run.
---@param captions string[]
---@return table  y [B, max_length, width], len i32 [B]
function Features:tokens(captions) return self.embedder:tokens(captions) end

--- Declares the inputs of a batch of B captions.
function Features:inputs(g, B)
  return { y = g:input("text_y", self.dtype, { B, self.max_length, self.width }),
    len = g:input("text_len", "i32", { B }) }
end

--- Sets them on a program.
---@param tokens table  from tokens(); the caller may change the number of tokens in use
function Features.set(_, prog, tokens)
  prog:set("text_y", tokens.y)
  prog:set("text_len", tokens.len)
end

-- ---- files

--- The names of tensors in an encoder with the depth of a file.
---@param names string[]  in the file
---@param path string
---@return table[]        {name}
function Features:tensors(names, path)
  local rows
  rows, self.blocks = self.family:names(names, path)
  return rows
end

--- The number of elements of its weights, without words, which are read row by row.
---@return integer
function Features:elements() return self.family:elements(self.sizes) end

--- The tokenizer in a folder or file.
---@param path string
---@param o table        for token.open
---@return mr.Tokenizer
function Features.tokenizer(_, path, o) return token.open(path, o) end

--- Words of texts. Only the needed rows of the table are read, each once for a batch.
---@param source mr.TextSource
---@param group table   lists of ids; L: places of each; places after its ids stay zero
---@param dtype string
---@param rows table    rows that the batch has read so far, by id; new rows are added
---@return mr.Tensor    [B, 1, L, width]
function Features:words(source, group, dtype, rows)
  local table_of, vocab = self.sizes.words, self.sizes.vocab_size
  local out = T.new(dtype, { #group.lists, 1, group.L, self.width })
  for b, ids in ipairs(group.lists) do
    for i = 1, math.min(#ids, group.L) do
      local id = ids[i]
      if id < 0 or id >= vocab then
        base.raise("MR_E_RANGE", ("%s: a text has token %d, but '%s' has only %d rows; try: the "
          .. "tokenizer of these weights"):format(source.path, id, source.at[table_of], vocab))
      end
      rows[id] = rows[id] or source:row(table_of, id)
      out:slice(0, b - 1, b):slice(2, i - 1, i):reshape { self.width }:copy_from(rows[id])
    end
  end
  return out
end

--- The text features.
---@param inputs table  from inputs()
---@return mr.Value     [B, max_length, width]
function Features.forward(_, _, inputs) return inputs.y end

return features
