--- The order of samples and the bucket of each, without decoding: from settings and an index alone.
-- @module moonreel.data.order
local base = require "moonreel.core.base"
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"

local order = {}

-- the bucket rule of settings
local function rule_of(settings)
  if not settings.bucket_config then
    base.raise("MR_E_RECIPE", ("bucket_config is not set, so no clip has a bucket; try: %s, or the "
      .. "lengths of your clips"):format(buckets.EXAMPLE))
  end
  local o = buckets.of(settings)
  return { buckets = buckets.table(o),
    frame_interval = o.frame_interval, compat = o.compat, draw_epochs = o.draw_epochs,
    reference = o.reference, fps_max = o.fps_max }
end

--- Micro-batches in a step for each of `accumulate`: those of the recipe, or one for each rank.
---@param settings table  baked
---@param ranks? integer  1
---@return integer
function order.step_ranks(settings, ranks)
  return settings.virtual_ranks > 1 and settings.virtual_ranks or ranks or 1
end

--- The order of a run from its first step on.
---@param settings table  baked
---@param list table[]|mr.Index  from moonreel.settings.sources, each with its index; or one index
---@param quarantine? string  path of the run's quarantine.jsonl
---@param ranks? integer      ranks of the run (1): an epoch of a reference is a multiple of them
---@return mr.Order order  order:next() -> micro-batches, order:skip(n)
function order.open(settings, list, quarantine, ranks)
  local o = rule_of(settings)
  o.seed, o.quarantine = settings.seed, quarantine
  o.slot = settings.share_out == "lpt" and 1 or settings.virtual_ranks
  if o.reference then
    o.slot = order.step_ranks(settings, ranks)
  end
  o.carry, o.epochs = settings.tail == "carry", settings.epochs
  local sources = {}
  for i, s in ipairs(list.core and { { name = "", index = list } } or list) do
    sources[i] = { name = s.name, index = s.index.core, weights = s.weights,
      epochs = s.epochs, members = s.members }
  end
  return core.order(sources, o)
end

--- The answers of the rule's resolutions and lengths about a sample in an epoch, in the order in
-- which they are tried.
---@param settings table   baked
---@param row table        of an index
---@param epoch integer    from 0
---@return table[] asked  {resolution, frames, says}; the one that takes the sample is the last
---@return table|nil bucket  the bucket that it enters
function order.asked(settings, row, epoch)
  local rule = core.rule(rule_of(settings))
  local sample = { frames = row.frames, height = row.height, width = row.width, key = row.key_lo,
    fps = row.fps, row = row.id + 1, seed = settings.seed, epoch = epoch }
  return rule:ask(sample), (rule:assign(sample))
end

return order
