--- A separate text encoder as the step of a run sees it: features are an input, which
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
---@return table class    of objects with dtype, max_length, width; embedder once it is loaded
function features.class(sizes)
  local class = setmetatable({ family = sizes }, { __index = Features })
  class.__index = class
  return class
end

--- Let ranks share the layers, where they divide what these share (`shares` of the family); else
-- each has all of them, and `whole` says why. Before weights are declared.
---@param by mr.Split  connected before anything runs
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

--- Features of captions as the graph of a run takes them.
---@param captions string[]
---@return table  y [B, max_length, width], len i32 [B]
function Features:tokens(captions) return self.embedder:tokens(captions) end

--- Declare the inputs of a batch of B captions.
function Features:inputs(g, B)
  return { y = g:input("text_y", self.dtype, { B, self.max_length, self.width }),
    len = g:input("text_len", "i32", { B }) }
end

--- Set them on a program.
---@param tokens table  of tokens(); the number of tokens in use may be changed by the caller
function Features.set(_, prog, tokens)
  prog:set("text_y", tokens.y)
  prog:set("text_len", tokens.len)
end

-- ---- its files

--- Names that an encoder may have that is as deep as the one in a file.
---@param names string[]  in the file
---@param path string
---@return table[]        {name}
function Features:tensors(names, path)
  local rows
  rows, self.blocks = self.family:names(names, path)
  return rows
end

--- Elements of its weights; words, which are read row by row, are left out.
---@return integer
function Features:elements() return self.family:elements(self.sizes) end

--- The tokenizer in a folder or file.
---@param path string
---@param o table        as token.open takes them
---@return mr.Tokenizer
function Features.tokenizer(_, path, o) return token.open(path, o) end

--- Words of texts; of the table only their rows are read, each once for a batch.
---@param source mr.TextSource
---@param group table   lists of ids; L: places of each, those behind its ids stay zero
---@param dtype string
---@param rows table    rows that the batch has read so far, by id; others are added
---@return mr.Tensor    [B, 1, L, width]
function Features:words(source, group, dtype, rows)
  local table_of, vocab = self.sizes.words, self.sizes.vocab_size
  local out = T.new(dtype, { #group.lists, 1, group.L, self.width })
  for b, ids in ipairs(group.lists) do
    for i = 1, math.min(#ids, group.L) do
      local id = ids[i]
      if id < 0 or id >= vocab then
        base.raise("MR_E_RANGE", ("%s: a text has token %d, '%s' has %d rows; try: the tokenizer "
          .. "of these weights"):format(source.path, id, source.at[table_of], vocab))
      end
      rows[id] = rows[id] or source:row(table_of, id)
      out:slice(0, b - 1, b):slice(2, i - 1, i):reshape { self.width }:copy_from(rows[id])
    end
  end
  return out
end

--- Text features.
---@param inputs table  of inputs()
---@return mr.Value     [B, max_length, width]
function Features.forward(_, _, inputs) return inputs.y end

return features
