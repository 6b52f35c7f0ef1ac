--- Layers that several ranks share (tensor parallel; reference parallelism, section 7). A product
-- that is divided by columns gives each rank some of the outputs. One divided by rows takes some of
-- the inputs and gives each rank a summand. Between a product by rows and the next one by columns
-- each rank has a share of the tokens: summands are added up share by share, norms and residuals
-- are computed on shares, and the next product gathers them. That sends the same number of bytes as
-- a sum over ranks, but the work in between is done and stored once, not by every rank. Parameters
-- that are not divided are equal on all ranks, and so are their gradients. If ranks continue from
-- such a value in different ways, `shared` adds up their gradients for it.
-- @module moonreel.nn.split
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"

local split = {}

---@class mr.Split
---@field ranks integer  1: a single rank, which has all and sends nothing
---@field at integer     number of this rank, from 0
---@field group integer  number of the group of these ranks, for ops
local Split = {}
Split.__index = Split

--- The axis of tokens in [B, G, N, D].
split.TOKENS = 2

local QUEUE <const> = "comm_intra"

local read = options.declare("split.new", {
  { "ranks", "integer", "ranks that share each layer", default = 1 },
  { "at", "integer", "this one, from 0", default = 0 },
  { "comm", "mr.Comm", "the ranks, in this order; absent: graphs are only planned" },
})

--- Ranks that share each layer.
---@param given table|nil  ranks, at, comm
---@return mr.Split
function split.new(given)
  local o = read(given)
  if o.at < 0 or o.at >= o.ranks or o.comm and o.comm:size() ~= o.ranks then
    base.raise("MR_E_USAGE", ("split.new: rank %d of %d ranks: expected one of %d"):format(o.at,
      o.ranks, o.comm and o.comm:size() or o.ranks))
  end
  local self = setmetatable({ ranks = o.ranks, at = o.at, group = 0 }, Split)
  if o.comm then
    self:connect(o.comm)
  end
  return self
end

--- Connects the ranks for graphs that are built from now on.
---@param comm mr.Comm
function Split:connect(comm)
  self.comm, self.group = comm, comm:op_group()
end

--- A single rank.
split.none = split.new()

--- The quantities of a transformer that its ranks must divide equally: {name, count}.
---@param c table      num_heads, hidden_size, linear
---@param mlp integer  channels of the MLP
---@return table[]
function split.of_transformer(c, mlp)
  local rows = { { "attention heads (num_heads)", c.num_heads },
    { "channels of the MLP (hidden_size x mlp_ratio)", mlp } }
  -- products of 8 bits need widths that are multiples of 16
  if c.linear == "f8" then
    rows[3] = { "groups of 16 channels (hidden_size, linear = f8)", c.hidden_size // 16 }
    rows[4] = { "groups of 16 channels of the MLP (linear = f8)", mlp // 16 }
  end
  return rows
end

--- The number of n equal things on this rank.
---@param n integer  a multiple of the number of ranks
---@return integer
function Split:share(n) return n // self.ranks end

--- How a parameter is divided, for params:add.
---@param axis integer     from 0
---@param parts integer[]  positions of the axis in each part; each part is divided
---@return table|nil       nil: it is not divided
function Split:cut(axis, parts)
  return self.ranks > 1 and { ranks = self.ranks, at = self.at, axis = axis, parts = parts } or nil
end

local function with_first(n, shape)
  return { n, table.unpack(shape) }
end

-- all_to_all between a first axis of ranks and another one
local function exchange(self, g, x, from, to, length)
  return g:queue(QUEUE, function()
    return (ops.all_to_all(x, { group = self.group, ranks = self.ranks, at = self.at, split = from,
      join = to, length = length }))
  end)
end

--- A value of all ranks from which each continues in a different way.
---@param g mr.Graph
---@param x mr.Value
---@param axis integer|nil  axis along which they add up gradients; absent: the last one
---@return mr.Value
function Split:shared(g, x, axis)
  if self.ranks == 1 then
    return x
  end
  return g:queue(QUEUE, function()
    return (ops.shared(x, { group = self.group, ranks = self.ranks, at = self.at,
      axis = axis or #x.shape - 1 }))
  end)
end

--- The number of n tokens on this rank, and the first of them.
---@param n integer
---@return integer count, integer first
function Split:tokens(n)
  local each, more = n // self.ranks, n % self.ranks
  return each + (self.at < more and 1 or 0), self.at * each + math.min(self.at, more)
end

--- This rank's tokens of a value that all ranks have.
---@param g mr.Graph
---@param x mr.Value  [B, G, N, D]
---@return mr.Value
function Split:begin(g, x)
  if self.ranks == 1 then
    return x
  end
  local axis = split.TOKENS
  local count, first = self:tokens(x.shape[axis + 1])
  return self:shared(g, x, axis):slice(axis, first, first + count)
end

--- Gathers an axis of which each rank has a part, for all ranks, which continue in different ways.
---@param g mr.Graph
---@param x mr.Value
---@param n integer         positions of the axis over all ranks
---@param axis integer|nil  absent: the axis of tokens
---@return mr.Value
function Split:gather(g, x, n, axis)
  if self.ranks == 1 then
    return x
  end
  axis = axis or split.TOKENS
  local each = x:reshape(with_first(1, x.shape)):expand(with_first(self.ranks, x.shape))
  local all = exchange(self, g, each, 0, axis + 1, n)
  return all:reshape { table.unpack(all.shape, 2) }
end

--- This rank's tokens of a sum to which each rank has a summand.
---@param g mr.Graph
---@param x mr.Value  [B, G, N, D]
---@return mr.Value
function Split:reduce(g, x)
  if self.ranks == 1 then
    return x
  end
  local mine = exchange(self, g, x:reshape(with_first(1, x.shape)), split.TOKENS + 1, 0,
    self.ranks)
  return (ops.sum(mine, { axes = { 0 } }))
end

--- The tokens of all ranks, from which all continue in the same way.
---@param g mr.Graph
---@param x mr.Value  [B, G, own N, D]
---@param n integer   tokens of all ranks
---@return mr.Value
function Split:finish(g, x, n)
  if self.ranks == 1 then
    return x
  end
  return g:queue(QUEUE, function()
    return (ops.gather_shares(x, { group = self.group, ranks = self.ranks, at = self.at,
      axis = split.TOKENS, length = n }))
  end)
end

return split
