--- What ranks do around an update (reference parallelism, section 1). Each owns a chunk of the
-- trained range: it gets the gradients' sum there and squares it for the norm, which all get. An
-- executor whose master is the whole range updates everything everywhere (ZeRO 0); one that keeps
-- the owned chunk alone updates that, and the weights are gathered (ZeRO 1). Both give the same
-- bits: sums go in the order of ranks, the norm by owners.
-- @module moonreel.optim.ranks
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"

local ranks = {}

local Ranks = {}
Ranks.__index = Ranks

--- What a recipe shards over ranks (reference parallelism, section 1): plugin_config.zero_stage,
-- else what the references' plugin is named after.
---@param settings table
---@return integer  1: masters, moments and averages; 0: nothing
function ranks.stage(settings)
  local named = math.tointeger(tonumber((settings.plugin or ""):match("^zero(%d)")))
  return settings.plugin_config.zero_stage or named or 1
end

--- The elements of the trained range that a rank owns; the table is sealed in one bucket for all
-- ranks.
---@param params mr.Params
---@param rank integer
---@param size integer
---@return integer start, integer stop
function ranks.owned(params, rank, size)
  local buckets = params:buckets()
  local one = buckets[1]
  if #buckets ~= 1 or one.chunk * size ~= one.stop - one.start then
    base.raise("MR_E_USAGE", ("ranks: %d buckets, the first of %d elements in chunks of %d: "
      .. "expected one in chunks for %d ranks; try: params:seal{ranks = %d}"):format(#buckets,
      one.stop - one.start, one.chunk, size, size))
  end
  return one.start + rank * one.chunk, one.start + (rank + 1) * one.chunk
end

-- a region as a tensor over the executor's own memory
local function region(run, name, dtype)
  local pointer, bytes = run:host(name)
  if not pointer then
    base.raise("MR_E_UNSUPPORTED", ("ranks: region %s lies on a device whose memory the host does "
      .. "not see; try: MOONREEL_DEVICE=cpu"):format(name))
  end
  local width = dtype == "bf16" and 2 or 4
  return T.wrap(pointer, bytes, dtype, {bytes // width}, run)
end

--- For the update of an executor.
---@param run mr.Exec
---@param params mr.Params  sealed for as many ranks as the world has
---@param world mr.Comm
---@param master table      row of the masters: the whole trained range, or what this rank owns
function ranks.new(run, params, world, master)
  local start, stop = ranks.owned(params, world:rank(), world:size())
  local whole = params:buckets()[1]
  local sharded = master.start == start and master.stop == stop and world:size() > 1
  if not sharded and (master.start ~= whole.start or master.stop ~= whole.stop) then
    base.raise("MR_E_USAGE", ("ranks: masters of elements %d to %d: expected all, or %d to %d, "
      .. "which rank %d owns"):format(master.start, master.stop, start, stop, world:rank()))
  end
  local g = G.graph(params)
  g:output("sumsq", (ops.sum_squares(g:region("grad", "f32", start, {stop - start}))))
  g:finish()
  local weights
  for _, row in ipairs(run:regions()) do
    weights = row.role == "weights" and row or weights
  end
  return setmetatable({run = run, world = world, sharded = sharded, start = start, stop = stop,
    norm = run:compile(g), gradients = region(run, "grad", "f32"),
    weights = sharded and region(run, weights.name, weights.dtype),
    -- of the same dtype, masters are what weights become; else the update writes both
    masters = sharded and weights.dtype == master.dtype and region(run, master.name, master.dtype),
    zero = T.new("f32", {1})}, Ranks)
end

--- Sum the gradients over ranks: here, where this rank owns them, or everywhere.
---@return number  the sum of their squares over the whole range, equal on all ranks
function Ranks:reduce()
  self.run:sync()
  local own = self.gradients:slice(0, self.start, self.stop)
  if self.sharded then
    self.world:reduce_scatter(self.gradients, {out = own})
    -- what other ranks own is no gradient of the next step
    for _, other in ipairs{{0, self.start}, {self.stop, #self.gradients}} do
      if other[1] < other[2] then
        self.gradients:slice(0, other[1], other[2]):copy_from(
          self.zero:expand{other[2] - other[1]})
      end
    end
  else
    self.world:all_reduce(self.gradients)
  end
  self.norm:run()
  return self.world:all_reduce(self.norm:get("sumsq"):clone()):item()
end

--- After the update: the weights of all owners.
function Ranks:gather()
  if not self.sharded then
    return
  end
  self.run:sync()
  local own = self.weights:slice(0, self.start, self.stop)
  if self.masters then
    own:copy_from(self.masters)
  end
  self.world:all_gather(own, {out = self.weights})
end

return ranks
