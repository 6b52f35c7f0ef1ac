--- Tokens of a sequence that several ranks share, and attention over all of them (reference
-- parallelism, sections 4 to 6). Ranks are arranged as outer x inner x heads, the last varying
-- fastest. The ranks of `heads` exchange heads for tokens (Ulysses); those of `inner` pass keys and
-- values around a circle (ring); those of `outer` pass them from circle to circle. Any of the three
-- may be 1. Tokens are divided contiguously: among outer places, then among inner places, then
-- among the ranks of `heads`. Shares differ by at most one token and may be empty. Text, time and
-- weights, which all tokens share, are on every rank. Each rank's gradients are those of its own
-- tokens, and their sum over the ranks is the gradient.
-- @module moonreel.nn.sequence
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"

local sequence = {}

---@class mr.Sequence
---@field size integer   ranks
---@field rank integer   among them, from 0
---@field outer table    {ranks, at, group, queue} of each level
---@field inner table
---@field heads table
local Sequence = {}
Sequence.__index = Sequence

-- levels from the outermost one
local LEVELS <const> = { "outer", "inner", "heads" }
-- separate queues, so that keys of the next circle arrive while this one is computed
local QUEUES <const> = { outer = "comm_inter", inner = "comm_intra", heads = "comm_intra" }
local LANES <const> = { comm_inter = 1, comm_intra = 0 }

local read = options.declare("sequence.new", {
  { "rank", "integer", "this one, from 0", default = 0 },
  { "heads", "integer", "ranks that exchange heads for tokens", default = 1 },
  { "inner", "integer", "ranks of a circle of keys and values", default = 1 },
  { "outer", "integer", "circles", default = 1 },
  { "groups", "integer", "groups of heads; each is exchanged while the one before is computed",
    default = 1 },
  { "comm", "mr.Comm", "the ranks, in this order; absent: graphs are only planned" },
})

--- Positions [start, stop) of `n` on one of `ranks` ranks.
---@param n integer
---@param ranks integer
---@param at integer  from 0
---@return integer start, integer stop
function sequence.part(n, ranks, at)
  local start = at * (n // ranks) + math.min(at, n % ranks)
  return start, start + n // ranks + (at < n % ranks and 1 or 0)
end

--- Ranks that share tokens. Collective if `comm` is given.
---@param given table  rank, heads, inner, outer, comm
---@return mr.Sequence
function sequence.new(given)
  local o = read(given)
  local self = setmetatable({ size = o.heads * o.inner * o.outer, rank = o.rank,
    groups = o.groups }, Sequence)
  local below = self.size
  if o.rank < 0 or o.rank >= below or o.comm and o.comm:size() ~= below then
    base.raise("MR_E_USAGE", ("sequence.new: rank %d, %d ranks: expected %d x %d x %d ranks")
      :format(o.rank, o.comm and o.comm:size() or below, o.outer, o.inner, o.heads))
  end
  for _, name in ipairs(LEVELS) do
    local ranks = o[name]
    below = below // ranks
    local level = { ranks = ranks, at = o.rank // below % ranks, queue = QUEUES[name], group = 0 }
    self[name] = level
    if o.comm and ranks > 1 then
      level.comm = o.comm:split(o.rank - level.at * below, { key = o.rank,
        lane = LANES[level.queue] })
      level.group = level.comm:op_group()
    end
  end
  return self
end

--- Tokens [start, stop) of a sequence of `n` on a rank.
---@param n integer
---@param rank integer|nil  default: this rank
---@return integer start, integer stop
function Sequence:share(n, rank)
  rank = rank or self.rank
  local start, stop, below = 0, n, self.size
  for _, name in ipairs(LEVELS) do
    local ranks = self[name].ranks
    below = below // ranks
    local a, b = sequence.part(stop - start, ranks, rank // below % ranks)
    start, stop = start + a, start + b
  end
  return start, stop
end

--- The numbers of text and image tokens on a rank, for a sequence with the text before the image.
---@param text integer
---@param image integer
---@param rank integer|nil
---@return integer text, integer image
function Sequence:joint(text, image, rank)
  local start, stop = self:share(text + image, rank)
  local of_text = math.max(0, math.min(stop, text) - start)
  return of_text, stop - start - of_text
end

--- This rank's tokens of a value.
---@param x mr.Value
---@param axis integer  of tokens, from 0
---@return mr.Value
function Sequence:cut(x, axis)
  local start, stop = self:share(x.shape[axis + 1])
  return x:slice(axis, start, stop)
end

-- numbers of tokens at each level: n of all, then of this rank's outer place, ...
local function lengths(self, n)
  local list = { n }
  for i, name in ipairs(LEVELS) do
    local a, b = sequence.part(list[i], self[name].ranks, self[name].at)
    list[i + 1] = b - a
  end
  return list
end

--- The tokens of all ranks. All ranks have to compute the same from them.
---@param g mr.Graph
---@param x mr.Value    this rank's tokens
---@param axis integer  axis of tokens, from 0
---@param n integer     tokens of all ranks
---@return mr.Value
function Sequence:gather(g, x, axis, n)
  local tokens = lengths(self, n)
  for i = #LEVELS, 1, -1 do
    local level = self[LEVELS[i]]
    if level.ranks > 1 then
      x = g:queue(level.queue, function()
        return (ops.gather_shares(x, { group = level.group, ranks = level.ranks, at = level.at,
          axis = axis, length = tokens[i] }))
      end)
    end
  end
  return x
end

-- exchanges tokens for heads, or heads for tokens; axes of [B, G, N, h, d]
local function exchange(g, level, x, split, join, length)
  return g:queue(level.queue, function()
    return (ops.all_to_all(x, { group = level.group, ranks = level.ranks, at = level.at,
      split = split, join = join, length = length }))
  end)
end

-- x of the previous rank in a circle
local function pass(g, level, x, keys)
  return g:queue(level.queue, function()
    return (ops.shift(x, { group = level.group, axis = 2, length = keys, hops = 1 }))
  end)
end

-- attention of this rank's queries to the keys of all ranks in the circles, `length` in all: the
-- blocks arrive one by one, and each is used while the next is on its way
local function ring(g, self, q, k, v, length, how)
  local inner, outer, d = self.inner, self.outer, k.shape[5]
  -- the number of keys in a block, and of those before it
  local function keys(turn, step)
    local a, b = sequence.part(length, outer.ranks, (outer.at - turn) % outer.ranks)
    local c, e = sequence.part(b - a, inner.ranks, (inner.at - step) % inner.ranks)
    return e - c, a + c
  end
  local o, lse
  local node = G.concat({ k, v }, 4)
  for turn = 0, outer.ranks - 1 do
    local kv = node
    if turn + 1 < outer.ranks then
      node = pass(g, outer, node, (keys(turn + 1, 0)))
    end
    for step = 0, inner.ranks - 1 do
      local next = step + 1 < inner.ranks and pass(g, inner, kv, (keys(turn, step + 1)))
      local n, before = keys(turn, step)
      -- also for an empty block: all ranks have the same nodes
      local part, part_lse = ops.attention(q, kv:slice(4, 0, d), kv:slice(4, d, kv.shape[5]),
        how.len or false, { scale = how.scale, before = before,
          text = math.min(how.text, before + n) })
      if o then
        o, lse = ops.attention_merge(o, lse, part, part_lse)
      else
        o, lse = ops.cast(part, { dtype = "f32" }), part_lse
      end
      kv = next
    end
  end
  g:save(lse)
  return (ops.ring_attention(q, k, v, o, lse, how.len or false, { scale = how.scale,
    length = length, text = how.text,
    mesh = { inner.group, inner.ranks, inner.at, outer.group, outer.ranks, outer.at } }))
end

-- attention for the heads of this rank
local function own_heads(g, self, q, k, v, n, how)
  local o, lse
  if self.inner.ranks * self.outer.ranks > 1 then
    o = ring(g, self, q, k, v, n, how)
  else
    o, lse = ops.attention(q, k, v, how.len or false, { scale = how.scale, text = how.text })
    g:save(lse)
  end
  g:save(o)
  return o
end

local read_attend = options.declare("Sequence:attend", {
  { "scale", "number", "of the scores; absent: d^-0.5", default = 0 },
  { "len", "mr.Value", "[B] i32: tokens at or past len[b], over all ranks, are masked" },
  { "text", "integer", "tokens at the beginning to which len applies; 0: all", default = 0 },
})

--- Attention of this rank's tokens to the tokens of all ranks.
---@param g mr.Graph
---@param q mr.Value   [B, G, n, h, d] of this rank
---@param k mr.Value   the same shape
---@param v mr.Value   [B, G, n, h, e]
---@param n integer    tokens of all ranks
---@param given table|nil  scale, len, text
---@return mr.Value    [B, G, n, h, e]
function Sequence:attend(g, q, k, v, n, given)
  local how = read_attend(given)
  local level, tokens, h = self.heads, lengths(self, n), q.shape[4]
  local d, e = q.shape[5], v.shape[5]
  if h % level.ranks ~= 0 then
    base.raise("MR_E_SHAPE", ("%d ranks cannot exchange %d heads; expected a multiple of the "
      .. "number of ranks"):format(level.ranks, h))
  end
  if level.ranks == 1 then
    return own_heads(g, self, q, k, v, n, how)
  end
  local groups = h // level.ranks % self.groups == 0 and self.groups or 1
  local each, all, o = h // groups, {}, {}
  for i = 1, groups do
    local from, to = (i - 1) * each, i * each
    all[i] = exchange(g, level, G.concat({ q:slice(3, from, to), k:slice(3, from, to),
      v:slice(3, from, to) }, 4), 3, 2, tokens[3])
  end
  for i, x in ipairs(all) do
    o[i] = exchange(g, level, own_heads(g, self, x:slice(4, 0, d), x:slice(4, d, 2 * d),
      x:slice(4, 2 * d, 2 * d + e), n, how), 2, 3, each)
  end
  return groups > 1 and G.concat(o, 3) or o[1]
end

return sequence
