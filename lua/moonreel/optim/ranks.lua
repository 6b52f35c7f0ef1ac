--- Ranks that share the parameters of a run (reference parallelism, sections 1 to 3, 9): which rank
-- owns what, and the nodes for their communication. The trained range is cut into buckets, and each
-- bucket into equal chunks, one per rank, which owns it: the sum of the gradients is computed at
-- the owner, and the norm combines the chunks of all owners. With ZeRO 0 every rank keeps all of
-- the optimizer's state: the sums are gathered, and every rank updates everything. With ZeRO 1 a
-- rank keeps the state of its own chunks and updates these, and the weights are gathered. Both give
-- the same bits, because sums are added once, in the order of ranks. With ZeRO 2 a rank keeps only
-- its chunks of the gradients: a bucket is reduced when the backward pass has completed it, and
-- then its memory is free. With ZeRO 3 a rank keeps only its chunks of the weights, too: they are
-- gathered, two buckets at a time, for each pass. Every graph over the table then does both by
-- itself.
--
-- With several nodes there are two hops, first within each node and then between nodes. Rank (node
-- n, place l) owns chunk l * nodes + n, so each hop works on contiguous memory.
--
-- If ranks share layers (moonreel.nn.split), these are the ranks with the same slices. Parameters
-- that are not cut are then in several such groups, and one group counts them.
-- @module moonreel.optim.ranks
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local bucket_size = require "moonreel.optim.bucket_size"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"

local ranks = {}

---@class mr.Ranks
---@field rank integer
---@field size integer
---@field stage integer    0 to 3
---@field gradients boolean  graphs reduce their own gradients, and a rank keeps only its chunks
---@field weights boolean    graphs gather the weights, and a rank keeps only its chunks
---@field owner integer    number of the chunk of each bucket that this rank owns, from 0
---@field hops table[]     {queue, group, parts, at}; the first hop is within nodes
---@field buckets table[]  {start, stop, chunk} of the table
---@field counts boolean   among ranks with the same uncut parameters, this one counts them
local Ranks = {}
Ranks.__index = Ranks

--- The ZeRO stage of a recipe: plugin_config.zero_stage, else the stage after which the reference's
-- plugin is named.
---@param settings table
---@return integer  0: nothing is sharded; 1 and more: masters, moments and averages; 2: also
---   gradients; 3: also weights
function ranks.stage(settings)
  local named = math.tointeger(tonumber((settings.plugin or ""):match("^zero(%d)")))
  return settings.plugin_config.zero_stage or named or 1
end

--- How the trained range is cut for ranks, as params:seal takes it; nil: there is only one rank.
---@param settings table
---@param size integer   number of ranks of the run
---@param layers integer|nil  number of ranks that share each layer; nil: as the settings say
---@param elements integer|nil  elements of a bucket, found by trial; nil: as the settings say
---@return table|nil
function ranks.cut(settings, size, layers, elements)
  local millions = math.tointeger(settings.plugin_config.reduce_bucket_size_in_m)
  local alike = size // (layers or settings.plugin_config.tp_size or 1)
  return size > 1 and { ranks = math.max(alike, 1), elements = elements
    or millions and millions << 20 or bucket_size.start(size) } or nil
end

local read = options.declare("ranks.new", {
  { "local_ranks", "integer", "consecutive ranks of one node; absent, or all ranks: one hop" },
  { "stage", "integer", "stage of ZeRO, 0 to 3", default = 1 },
  { "whole", "boolean", "from stage 2 on: keep gradients whole, and reduce them once per step" },
  { "all", "mr.Comm", "all ranks of the run, if some have other slices of layers" },
  { "counts", "boolean", "this rank counts parameters that all of these have in common",
    default = true },
})

--- Creates the group of ranks of a world over a table of parameters.
---@param params mr.Params  sealed for the number of ranks of the world
---@param world mr.Comm
---@param given table|nil   local_ranks, stage, whole, all, counts
---@return mr.Ranks
function ranks.new(params, world, given)
  local o = read(given)
  local rank, size, buckets = world:rank(), world:size(), params:buckets()
  local here = o.local_ranks or size
  local one = buckets[1]
  if not one or one.chunk * size ~= one.stop - one.start then
    base.raise("MR_E_USAGE", ("ranks: the first of %d buckets has chunks of %d elements; "
      .. "expected chunks for %d ranks; try: params:seal{ranks = %d}"):format(#buckets, one
      and one.chunk or 0,
      size, size))
  end
  if here < 1 or size % here ~= 0 then
    base.raise("MR_E_USAGE", ("ranks: %d ranks per node with %d ranks in all; expected a divisor "
      .. "of %d"):format(
      here, size, size))
  end
  -- a rank whose slices no other rank has owns all of them
  local stage = size > 1 and o.stage or 0
  local self = setmetatable({ rank = rank, size = size, world = world, buckets = buckets,
    owner = rank, stage = stage, gradients = stage >= 2 and not o.whole, weights = stage >= 3,
    all = o.all or world, counts = o.counts, split = params:split() }, Ranks)
  if here == size then
    self.hops = { { queue = "comm_intra", comm = world, parts = size, at = rank } }
  else
    local nodes, node, place = size // here, rank // here, rank % here
    self.owner = place * nodes + node
    -- separate lanes: the second hop of a bucket runs in parallel with the first hop of the next
    self.hops = { { queue = "comm_intra", comm = world:split(node, { key = rank, lane = 0 }),
        parts = here, at = place },
      { queue = "comm_inter", comm = world:split(place, { key = rank, lane = 1 }), parts = nodes,
        at = node } }
  end
  if self.gradients or self.weights then
    params:share(self:shares())
  end
  return self
end

--- What graphs over a table share, as params:share takes it.
function Ranks:shares()
  local hops = {}
  for i, hop in ipairs(self.hops) do
    hops[i] = { queue = hop.queue, group = hop.comm:op_group(), ranks = hop.parts, at = hop.at }
  end
  return { hops = hops, gradients = self.gradients, weights = self.weights }
end

--- The part of each bucket that this rank owns: {start, stop} in elements of the trained range.
---@return table[]
function Ranks:owned()
  local list = {}
  for i, b in ipairs(self.buckets) do
    local start = b.start + self.owner * b.chunk
    list[i] = { start = start, stop = start + b.chunk }
  end
  return list
end

--- The same without the elements that other ranks have, too, and count.
---@param model table|nil  {start, stop}: only buckets that overlap these elements
---@return table[]
function Ranks:counted(model)
  local list = {}
  for i, part in ipairs(self:owned()) do
    local bucket = self.buckets[i]
    local inside = not model or model.start < bucket.stop and bucket.start < model.stop
    list[#list + 1] = inside and (self.counts or part.start >= self.split) and part or nil
  end
  return list
end

--- The rank that owns a chunk of each bucket.
---@param chunk integer  from 0
---@return integer
function Ranks:owner_of(chunk)
  local nodes = self.hops[2] and self.hops[2].parts or 1
  return chunk % nodes * self.hops[1].parts + chunk // nodes
end

-- the pieces that the hops of a bucket work on: {hop, start, stop}, each within the one before
local function pieces(self, bucket)
  local list, start, stop = {}, bucket.start, bucket.stop
  for i, hop in ipairs(self.hops) do
    list[i] = { hop = hop, start = start, stop = stop }
    local n = (stop - start) // hop.parts
    start = start + hop.at * n
    stop = start + n
  end
  return list
end

-- adds a row over a piece of a region, on the queue of its hop
local function add(g, row, region, dtype, piece)
  g:queue(piece.hop.queue, function()
    row(g:region(region, dtype, piece.start, { piece.stop - piece.start }),
      { group = piece.hop.comm:op_group() })
  end)
end

--- Adds the nodes that sum the gradients on their owners, and leave zeros elsewhere. The last
-- bucket comes first, because its gradients are ready first. Graphs that share gradients have done
-- it already.
function Ranks:reduce(g)
  for i = self.gradients and 0 or #self.buckets, 1, -1 do
    for _, piece in ipairs(pieces(self, self.buckets[i])) do
      add(g, ops.reduce_scatter, "grad", "f32", piece)
    end
  end
end

--- Adds the nodes that gather bucket i of a region from its owners.
function Ranks:gather(g, region, dtype, i)
  local list = pieces(self, self.buckets[i])
  for k = #list, 1, -1 do
    add(g, ops.all_gather, region, dtype, list[k])
  end
end

--- Adds the nodes that sum the squares of all gradients, after their sums are on their owners.
---@param own mr.Value[]  the gradients of each bucket that this rank counts
---@return mr.Value       [1] f64, equal on all ranks
function Ranks:sum_squares(g, own)
  local sums = {}
  for i, x in ipairs(own) do
    sums[i] = ops.sum_squares(x)
  end
  local all = #sums > 1 and G.concat(sums, 0) or sums[1]
  return g:queue("comm_intra", function()
    return (ops.total(all, { group = self.all:op_group() }))
  end)
end

-- the bytes that this rank sends in one collective over a bucket of `bytes` bytes
local function sent_by(self, bytes)
  local sum = 0
  for _, hop in ipairs(self.hops) do
    sum, bytes = sum + bytes // hop.parts * (hop.parts - 1), bytes // hop.parts
  end
  return sum
end

--- The bytes of a run's state that this rank keeps and sends, as the table of stages says
-- (reference parallelism, section 1). Weights that no backward pass reads are not gathered for it.
---@param rows table[]     of exec:regions()
---@param op_log string     of a micro-step
---@param rounds integer   micro-steps of a rank in a step
---@return table bytes  state: all regions; buckets: gradients, windows: temporarily gathered
---   weights, at most two buckets each; sent: per step, except for a few numbers
function Ranks:bytes(rows, op_log, rounds)
  local weight = rows[1].dtype == "bf16" and 2 or 4
  local bytes = { state = 0, sent = 0, buckets = 0, windows = 0 }
  for _, row in ipairs(rows) do
    bytes.state = bytes.state + (row.shared and 0 or row.bytes)
  end
  local most = 0
  for _, b in ipairs(self.buckets) do
    local n = b.stop - b.start
    most = math.max(most, n)
    local once = self.gradients and 0 or 4
    -- sums or new weights are gathered on all ranks
    once = once + (self.stage == 0 and 4 or self.weights and 0 or weight)
    bytes.sent = bytes.sent + sent_by(self, once * n)
  end
  for what, i in op_log:gmatch "(%a+) (%d+)" do
    local b = self.buckets[math.tointeger(i)]
    bytes.sent = bytes.sent
      + rounds * sent_by(self, (what == "gather" and weight or 4) * (b.stop - b.start))
  end
  local there = math.min(2, #self.buckets)
  bytes.buckets = self.gradients and there * 4 * most or 0
  bytes.windows = self.weights and there * weight * most or 0
  return bytes
end

--- The graph of a rank that computes nothing while others run micro-steps; it takes part in their
-- communication.
---@param params mr.Params
---@param like mr.Graph     a micro-step of the others
---@param reduced boolean   the micro-step ends with `reduce`
---@return mr.Graph
function Ranks:echo(params, like, reduced)
  local g = G.graph(params)
  g:echo(like)
  if reduced then
    self:reduce(g)
  end
  return g:finish()
end

return ranks
