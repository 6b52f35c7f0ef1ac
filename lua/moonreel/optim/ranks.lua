--- Ranks that share the parameters of a run (reference parallelism, sections 1 to 3, 9): who owns
-- what, and the nodes by which they tell each other. The trained range is cut into buckets, each
-- into equal chunks, one per rank, who is its owner: the gradients' sum comes to it there, and the
-- norm is that of all owners' chunks. Where every rank keeps all of an optimizer's state (ZeRO 0)
-- the sums are gathered and everything is updated everywhere; where it keeps that of its own chunks
-- (ZeRO 1) it updates these, and the weights are gathered. Both give the same bits, because sums
-- are added once, in the order of ranks. ZeRO 2 keeps no more of the gradients than these chunks:
-- those of a bucket are reduced when the backward pass is over with it, and its memory is free.
-- ZeRO 3 keeps no more of the weights either: they are gathered, two buckets at a time, for each
-- pass. Every graph over the table then does both by itself.
--
-- Over nodes there are two hops, within each and then between them; rank (node n, place l) owns
-- chunk l * nodes + n, so that each hop works on what lies together.
--
-- Where ranks share layers (moonreel.nn.split), these are those that hold the same slices. What is
-- not cut is then with several such groups, and one of them counts it.
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
---@field gradients boolean  graphs reduce their own gradients, chunks of which are all it keeps
---@field weights boolean    graphs gather the weights, likewise
---@field owner integer    number of the chunk of each bucket that this rank owns, from 0
---@field hops table[]     {queue, group, parts, at}: first within nodes
---@field buckets table[]  {start, stop, chunk} of the table
---@field counts boolean   of ranks that hold the same of what is not cut, the one that counts it
local Ranks = {}
Ranks.__index = Ranks

--- What a recipe shards over ranks: plugin_config.zero_stage, else what the references' plugin is
-- named after.
---@param settings table
---@return integer  0: nothing; from 1 on masters, moments and averages, from 2 gradients, 3 weights
function ranks.stage(settings)
  local named = math.tointeger(tonumber((settings.plugin or ""):match("^zero(%d)")))
  return settings.plugin_config.zero_stage or named or 1
end

--- How the trained range is cut for ranks, as params:seal takes it; nil: one rank alone.
---@param settings table
---@param size integer   of the run
---@param layers integer|nil  of these that share each layer; nil: by the settings
---@param elements integer|nil  of a bucket, found by trial; nil: by the settings
---@return table|nil
function ranks.cut(settings, size, layers, elements)
  local millions = math.tointeger(settings.plugin_config.reduce_bucket_size_in_m)
  local alike = size // (layers or settings.plugin_config.tp_size or 1)
  return size > 1 and { ranks = math.max(alike, 1), elements = elements
    or millions and millions << 20 or bucket_size.start(size) } or nil
end

local read = options.declare("ranks.new", {
  { "local_ranks", "integer", "consecutive ranks of one node; absent, or all: one hop" },
  { "stage", "integer", "of ZeRO, 0 to 3", default = 1 },
  { "whole", "boolean", "from stage 2 on: gradients are kept whole, and reduced once a step" },
  { "all", "mr.Comm", "all ranks of the run, where some hold other slices of layers" },
  { "counts", "boolean", "this one counts what all of these hold alike", default = true },
})

--- The ranks of a world over a table of parameters.
---@param params mr.Params  sealed for as many ranks as the world has
---@param world mr.Comm
---@param given table|nil   local_ranks, stage, whole, all, counts
---@return mr.Ranks
function ranks.new(params, world, given)
  local o = read(given)
  local rank, size, buckets = world:rank(), world:size(), params:buckets()
  local here = o.local_ranks or size
  local one = buckets[1]
  if not one or one.chunk * size ~= one.stop - one.start then
    base.raise("MR_E_USAGE", ("ranks: the first of %d buckets has chunks of %d: expected chunks "
      .. "for %d ranks; try: params:seal{ranks = %d}"):format(#buckets, one and one.chunk or 0,
      size, size))
  end
  if here < 1 or size % here ~= 0 then
    base.raise("MR_E_USAGE", ("ranks: nodes of %d ranks among %d: expected a divisor of %d"):format(
      here, size, size))
  end
  -- a rank whose slices no other one holds owns all of them
  local stage = size > 1 and o.stage or 0
  local self = setmetatable({ rank = rank, size = size, world = world, buckets = buckets,
    owner = rank, stage = stage, gradients = stage >= 2 and not o.whole, weights = stage >= 3,
    all = o.all or world, counts = o.counts, split = params:split() }, Ranks)
  if here == size then
    self.hops = { { queue = "comm_intra", comm = world, parts = size, at = rank } }
  else
    local nodes, node, place = size // here, rank // here, rank % here
    self.owner = place * nodes + node
    -- lanes of their own: the second hop of a bucket runs in parallel with the first one of the
    -- next
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

--- What this rank owns, of each bucket: {start, stop} in elements of the trained range.
---@return table[]
function Ranks:owned()
  local list = {}
  for i, b in ipairs(self.buckets) do
    local start = b.start + self.owner * b.chunk
    list[i] = { start = start, stop = start + b.chunk }
  end
  return list
end

--- The same but for what other ranks count, which hold it, too.
---@param model table|nil  {start, stop}: of buckets that reach into these elements alone
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

-- what the hops of a bucket work on: {hop, start, stop}, each within the one before
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

-- a row over a piece of a region, on the queue of its hop
local function add(g, row, region, dtype, piece)
  g:queue(piece.hop.queue, function()
    row(g:region(region, dtype, piece.start, { piece.stop - piece.start }),
      { group = piece.hop.comm:op_group() })
  end)
end

--- Add nodes: the gradients' sums come to their owners, zeros elsewhere. The last bucket first, as
-- its gradients are there first. Graphs that share gradients have done it already.
function Ranks:reduce(g)
  for i = self.gradients and 0 or #self.buckets, 1, -1 do
    for _, piece in ipairs(pieces(self, self.buckets[i])) do
      add(g, ops.reduce_scatter, "grad", "f32", piece)
    end
  end
end

--- Add nodes: bucket i of a region as its owners have it.
function Ranks:gather(g, region, dtype, i)
  local list = pieces(self, self.buckets[i])
  for k = #list, 1, -1 do
    add(g, ops.all_gather, region, dtype, list[k])
  end
end

--- Add nodes: the sum of all gradients' squares, of sums that are with their owners.
---@param own mr.Value[]  the gradients that this rank counts, of each bucket
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

-- what this rank sends by one collective over a bucket of `bytes` bytes
local function sent_by(self, bytes)
  local sum = 0
  for _, hop in ipairs(self.hops) do
    sum, bytes = sum + bytes // hop.parts * (hop.parts - 1), bytes // hop.parts
  end
  return sum
end

--- What this rank holds and sends of a run's state, as the table of stages says it (reference
-- parallelism, section 1), but that weights which no backward pass reads are not gathered for one.
---@param rows table[]     of exec:regions()
---@param story string     of a micro-step
---@param rounds integer   micro-steps of a rank in a step
---@return table bytes  state: of all regions; buckets: of gradients, windows: of weights that are
---   there for a while, two of each at most; sent: in a step, but for a few numbers
function Ranks:bytes(rows, story, rounds)
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
    -- sums go to all, or new weights do
    once = once + (self.stage == 0 and 4 or self.weights and 0 or weight)
    bytes.sent = bytes.sent + sent_by(self, once * n)
  end
  for what, i in story:gmatch "(%a+) (%d+)" do
    local b = self.buckets[math.tointeger(i)]
    bytes.sent = bytes.sent
      + rounds * sent_by(self, (what == "gather" and weight or 4) * (b.stop - b.start))
  end
  local there = math.min(2, #self.buckets)
  bytes.buckets = self.gradients and there * 4 * most or 0
  bytes.windows = self.weights and there * weight * most or 0
  return bytes
end

--- The graph of a rank that computes nothing while others run micro-steps: it tells what these do.
---@param params mr.Params
---@param like mr.Graph     such a micro-step
---@param reduced boolean   which ends with `reduce`
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
