--- Ranks that share the work on clips, channels last: [B, T, H, W, C]. Each has some rows of every
-- clip (nn/rows.lua), or some channels inside of blocks (nn/channels.lua). Results are those of one
-- rank up to the order of sums.
--
-- What is on every rank alike is a constant, or made of all shares. The gradient of each rank is
-- that of its own part, and their sum over the ranks is the gradient: what is computed from the
-- gathered result has to be computed by all ranks alike. Ref: parallelism 8.
-- @module moonreel.nn.shared
local base = require "moonreel.core.base"
local channels = require "moonreel.nn.channels"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"
local rows = require "moonreel.nn.rows"
local sequence = require "moonreel.nn.sequence"

local shared = {}

local QUEUE <const> = "comm_intra"
local WAYS <const> = { rows = rows, channels = channels }

---@class mr.Shared
---@field by string        "rows" or "channels"
---@field ranks integer
---@field at integer       this one, from 0
---@field group integer    a number of moonreel/collective.h
---@field trains boolean   graphs have gradients
---@field field string     of a recipe that says so
---@field pixels integer   rows of pixels of a cell, for messages
---@field reach integer    rows of cells that convolutions read of a neighbour at most, likewise
local Shared = {}
Shared.__index = Shared

local read = options.declare("shared.new", {
  { "by", "text", "what is cut: rows or channels", default = "rows" },
  { "ranks", "integer", "that share each clip; those of comm where absent", default = 1 },
  { "rank", "integer", "this one, from 0", default = 0 },
  { "comm", "mr.Comm", "the ranks, in this order; absent: nothing is run" },
  { "trains", "boolean", "graphs have gradients", default = false },
  { "field", "text", "what a message says to change; the recipe's where absent" },
})

local FIELDS <const> = { rows = "plugin_config_ae.sp_size", channels = "plugin_config_ae.tp_size" }

--- Ranks that share clips.
---@param given table  by, ranks, rank, comm, trains, field
---@return mr.Shared
function shared.new(given)
  local o = read(given)
  local comm = o.comm
  if not WAYS[o.by] then
    base.raise("MR_E_USAGE", ("shared.new: by = %q; expected rows or channels"):format(o.by))
  end
  return setmetatable({ by = o.by, ranks = comm and comm:size() or o.ranks, at = comm
    and comm:rank() or o.rank, group = comm and comm:op_group() or 0, trains = o.trains,
    field = o.field or FIELDS[o.by], comm = comm, pixels = 1,
    reach = 1 }, Shared)
end

-- what a rank has of the clip that layers of a graph are at, by the way it is cut
local at_work = { rows = setmetatable({}, { __mode = "k" }),
  channels = setmetatable({}, { __mode = "k" }) }

--- The rows that this rank has of the clip that layers of a graph are at; nil: all.
---@param g mr.Graph
---@return mr.Rows|nil
function shared.rows(g) return at_work.rows[g] end

--- The channels that it has inside of blocks; nil: all.
---@param g mr.Graph
---@return mr.Channels|nil
function shared.channels(g) return at_work.channels[g] end

--- Layers over what this rank has of a clip; their results of all ranks.
---@param g mr.Graph
---@param share mr.Shared|nil  nil: this rank has all
---@param x mr.Value      [B, T, H, W, C]
---@param side integer    rows of x for one of cells, which ranks have whole
---@param layers fun(x: mr.Value): mr.Value
---@param tile boolean|nil  one of several: all ranks have it whole where it has too few rows
---@return mr.Value
function shared.through(g, share, x, side, layers, tile)
  if not share or tile and share.by == "rows" and x.shape[3] <= (share.ranks - 1) * side then
    return layers(x)
  end
  return WAYS[share.by].through(g, share, x, side, function(part, own)
    at_work[share.by][g] = part
    local y = layers(own)
    at_work[share.by][g] = nil
    return y
  end)
end

--- The same of layers that take each picture by itself: where ranks divide the pictures each has
-- some of them, and nothing but results goes between ranks.
---@param x mr.Value      [N, 1, H, W, C]
---@param layers fun(x: mr.Value): mr.Value
---@return mr.Value
function shared.pictures(g, share, x, side, layers)
  local N = x.shape[1]
  if not share or share.by ~= "rows" or N % share.ranks ~= 0 then
    return shared.through(g, share, x, side, layers)
  end
  return share:gather(g, layers(x:slice(0, sequence.part(N, share.ranks, share.at))), 0, N)
end

-- ---- what goes between ranks

local function on_queue(g, op, x, given)
  return g:queue(QUEUE, function() return (op(x, given)) end)
end

--- All of an axis of which ranks have shares. What reads it has to be computed by all ranks alike.
---@param x mr.Value      this rank's share
---@param axis integer    from 0
---@param length integer  of all shares
---@return mr.Value
function Shared:gather(g, x, axis, length)
  return on_queue(g, ops.gather_shares, x, { group = self.group, ranks = self.ranks, at = self.at,
    axis = axis, length = length })
end

--- Shares of all ranks for what this rank has of a value of which each has all.
---@param x mr.Value      all of axis `split`, this rank's share of `join`
---@param length integer  of axis `join`, of all shares
---@return mr.Value       this rank's share of `split`, all of `join`
function Shared:swap(g, x, split, join, length)
  return on_queue(g, ops.all_to_all, x, { group = self.group, ranks = self.ranks, at = self.at,
    split = split, join = join, length = length })
end

--- As gather, where each rank computes something else of it: gradients come back from all ranks,
-- and are summed in their order.
function Shared:all(g, x, axis, length)
  local copies = x:reshape { 1, table.unpack(x.shape) }:expand { self.ranks,
    table.unpack(x.shape) }
  local y = self:swap(g, copies, 0, axis + 1, length)
  return y:reshape { table.unpack(y.shape, 2) }
end

--- What each rank has of a value, in their order.
---@param x mr.Value
---@return mr.Value  [ranks, ...]
function Shared:each(g, x)
  return self:all(g, x:reshape { 1, table.unpack(x.shape) }, 0, self.ranks)
end

--- What another rank has.
---@param x mr.Value      what another one gets of this rank
---@param axis integer
---@param length integer  of the axis, of what comes
---@param hops integer    from how far before in the circle
---@return mr.Value
function Shared:shift(g, x, axis, length, hops)
  return on_queue(g, ops.shift, x, { group = self.group, axis = axis, length = length,
    hops = hops })
end

return shared
