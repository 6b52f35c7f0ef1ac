--- The files of a T5 encoder: tensors by their released names, rows of the table of words, and how
-- many bytes were read.
-- @module moonreel.embed.source
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local map = require "moonreel.models.t5.weights"
local sizes = require "moonreel.models.t5.sizes"
local start = require "moonreel.ckpt.start"

local source = {}

---@class mr.T5Source
---@field path string
---@field sizes table         of moonreel.models.t5.sizes
---@field bytes_read integer  of tensors, so far
local Source = {}
Source.__index = Source

local WORDS = "shared.weight"

-- names that an encoder of any depth may have, and how deep the one in the file is
local function wanted(file)
  local blocks, rows = 0, {}
  for _, name in ipairs(file:names()) do
    local at = name:match("encoder%.block%.(%d+)%.")
    blocks = math.max(blocks, at and math.tointeger(at) + 1 or 0)
  end
  -- a file that lies about its depth must not cost memory
  if blocks > #file:names() then
    base.raise("MR_E_CKPT", ("%s: a tensor of block %d among %d tensors"):format(file.path,
      blocks - 1, #file:names()))
  end
  for i, row in ipairs(sizes.tensors(setmetatable({ num_layers = blocks },
      { __index = function() return 0 end }))) do
    rows[i] = { name = row.name }
  end
  return blocks, rows
end

--- Open what holds an encoder. No tensor is read.
---@param path string   a folder with config.json, or a file
---@return mr.T5Source
function source.open(path)
  local file = ckpt.open(path)
  local self = setmetatable({ file = file, path = path, bytes_read = 0, at = {} }, Source)
  local good, problem = pcall(function()
    local blocks, rows = wanted(file)
    for name, found in pairs(start.plan(file, rows, { map }).found) do
      self.at[name] = found.weights
    end
    self.sizes = sizes.read(path, function(name)
      return self.at[name] and file:info(self.at[name]).shape
    end, blocks)
  end)
  if not good then
    file:close()
    error(problem, 0)
  end
  return self
end

--- Read a tensor.
---@param name string  its released name
---@return mr.Tensor   in the dtype of the file where tensors have it, else f32; close it
function Source:read(name)
  self.bytes_read = self.bytes_read + self.file:info(self.at[name]).bytes
  return start.tensor(self.file, self.at[name])
end

--- Words of a batch; of the table only their rows are read, each once.
---@param lists integer[][]  ids of each text
---@param L integer          places of each; those behind its ids stay zero
---@param dtype string
---@param rows table         rows that the batch has read so far, by id; others are added
---@return mr.Tensor         [B, 1, L, d_model]
function Source:words(lists, L, dtype, rows)
  local D, vocab, name = self.sizes.d_model, self.sizes.vocab_size, self.at[WORDS]
  local info = self.file:info(name)
  local out = T.new(dtype, { #lists, 1, L, D })
  for b, ids in ipairs(lists) do
    for i = 1, math.min(#ids, L) do
      local id = ids[i]
      if id < 0 or id >= vocab then
        base.raise("MR_E_RANGE", ("%s: a text has token %d, '%s' has %d rows; try: the tokenizer "
          .. "of these weights"):format(self.path, id, name, vocab))
      end
      if not rows[id] then
        rows[id] = T.new("f32", { D })
        self.file.handle:read_f32(name, rows[id], id * D)
        self.bytes_read = self.bytes_read + info.bytes // vocab
      end
      out:slice(0, b - 1, b):slice(2, i - 1, i):reshape { D }:copy_from(rows[id])
    end
  end
  return out
end

function Source:close() self.file:close() end
Source.__close = Source.close

return source
