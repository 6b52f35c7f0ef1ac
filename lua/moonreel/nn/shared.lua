--- Ranks that share the work on clips, channels last: [B, T, H, W, C]. Each has some rows of every
-- clip (nn/rows.lua), or some channels inside of blocks (nn/channels.lua). Results are those of one
-- rank up to the order of sums. A value that is the same on every rank is a constant, or was made
-- from all shares. The gradient of each rank is that of its own part, and their sum over the ranks
-- is the gradient. So all ranks have to compute the same from a gathered result. Ref: parallelism
-- 8.
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
---@field group integer    a group number of moonreel/collective.h
---@field trains boolean   graphs have gradients
---@field field string     the field of the recipe that sets it
---@field pixels integer   rows of pixels of a cell, for messages
---@field reach integer    most rows of cells that convolutions read of a neighbour, for messages
local Shared = {}
Shared.__index = Shared

local read = options.declare("shared.new", {
  { "by", "text", "what is divided: rows or channels", default = "rows" },
  { "ranks", "integer", "ranks that share each clip; absent: those of comm", default = 1 },
  { "rank", "integer", "this one, from 0", default = 0 },
  { "comm", "mr.Comm", "the ranks, in this order; absent: graphs are only planned" },
  { "trains", "boolean", "graphs have gradients", default = false },
  { "field", "text", "the field that messages name; absent: the recipe's" },
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

-- the part of the current clip of a graph's layers on this rank, by the way of sharing
local at_work = { rows = setmetatable({}, { __mode = "k" }),
  channels = setmetatable({}, { __mode = "k" }) }

--- The rows of the current clip on this rank; nil: all.
---@param g mr.Graph
---@return mr.Rows|nil
function shared.rows(g) return at_work.rows[g] end

--- The channels of this rank inside of blocks; nil: all.
---@param g mr.Graph
---@return mr.Channels|nil
function shared.channels(g) return at_work.channels[g] end

--- Applies layers to this rank's part of a clip; returns the results of all ranks.
---@param g mr.Graph
---@param share mr.Shared|nil  nil: this rank has all
---@param x mr.Value      [B, T, H, W, C]
---@param side integer    rows of x for one row of cells, which ranks have as a whole
---@param layers fun(x: mr.Value): mr.Value
---@param tile boolean|nil  one of several tiles: all ranks compute it as a whole if it has too few
---   rows
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

--- The same for layers that process each picture by itself: if the number of ranks divides that of
-- pictures, each rank has some pictures, and ranks exchange only results.
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

-- ---- communication

local function on_queue(g, op, x, given)
  return g:queue(QUEUE, function() return (op(x, given)) end)
end

--- All of an axis of which ranks have shares. All ranks have to compute the same from it.
---@param x mr.Value      this rank's share
---@param axis integer    from 0
---@param length integer  of all shares together
---@return mr.Value
function Shared:gather(g, x, axis, length)
  return on_queue(g, ops.gather_shares, x, { group = self.group, ranks = self.ranks, at = self.at,
    axis = axis, length = length })
end

--- Exchanges this rank's parts of a complete axis for the shares of all ranks.
---@param x mr.Value      all of axis `split`, this rank's share of `join`
---@param length integer  of axis `join`, of all shares
---@return mr.Value       this rank's share of `split`, all of `join`
function Shared:swap(g, x, split, join, length)
  return on_queue(g, ops.all_to_all, x, { group = self.group, ranks = self.ranks, at = self.at,
    split = split, join = join, length = length })
end

--- Like gather, if each rank computes something different from it: gradients come back from all
-- ranks and are summed in their order.
function Shared:all(g, x, axis, length)
  local copies = x:reshape { 1, table.unpack(x.shape) }:expand { self.ranks,
    table.unpack(x.shape) }
  local y = self:swap(g, copies, 0, axis + 1, length)
  return y:reshape { table.unpack(y.shape, 2) }
end

--- The value of each rank, in their order.
---@param x mr.Value
---@return mr.Value  [ranks, ...]
function Shared:each(g, x)
  return self:all(g, x:reshape { 1, table.unpack(x.shape) }, 0, self.ranks)
end

--- A value of another rank.
---@param x mr.Value      the value that another rank gets from this one
---@param axis integer
---@param length integer  length of the axis in the received value
---@param hops integer    distance in the circle
---@return mr.Value
function Shared:shift(g, x, axis, length, hops)
  return on_queue(g, ops.shift, x, { group = self.group, axis = axis, length = length,
    hops = hops })
end

return shared
