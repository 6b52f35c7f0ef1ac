--- Who sees what and when, and which bucket takes a sample, without decoding: from settings and an
-- index alone.
-- @module moonreel.data.order
local base = require "moonreel.core.base"
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"

local order = {}

-- what the core asks of settings
local function rule_of(settings)
  if not settings.bucket_config then
    base.raise("MR_E_RECIPE", "bucket_config is none: nothing says which clips to take; try: "
      .. "bucket_config = { [\"240p\"] = { [16] = { 1.0, 4 } } }")
  end
  local o = buckets.of(settings)
  return { buckets = buckets.resolve(o.bucket_config, o.resolutions, o.bucket_costs),
    frame_interval = o.frame_interval, compat = o.compat, draw_epochs = o.draw_epochs }
end

--- The order of a run from its first step on.
---@param settings table  baked
---@param list table[]|mr.Index  of moonreel.settings.sources, each with its index; or one index
---@param quarantine? string  path of the run's quarantine.jsonl
---@return mr.Order order  order:next() -> micro-batches, order:skip(n)
function order.open(settings, list, quarantine)
  local o = rule_of(settings)
  o.seed, o.quarantine = settings.seed, quarantine
  o.slot = settings.share_out == "lpt" and 1 or settings.virtual_ranks
  o.carry, o.epochs = settings.tail == "carry", settings.epochs
  local sources = {}
  for i, s in ipairs(list.core and { { name = "", index = list } } or list) do
    sources[i] = { name = s.name, index = s.index.core, weights = s.weights,
      epochs = s.epochs, members = s.members }
  end
  return core.order(sources, o)
end

-- A rule of one resolution and one length, with these probabilities. Draws are named by what they
-- are for, so that it decides as the whole rule does.
local function one_rule(o, resolution, frames, keep, tries)
  return core.rule { frame_interval = o.frame_interval, compat = o.compat,
    draw_epochs = o.draw_epochs,
    buckets = { { name = resolution.name, pixels = resolution.pixels,
      aspects = resolution.aspects, lengths = { { frames, keep, tries, 1 } } } } }
end

-- what one length says, and whether it was tried and did not keep the sample
local function ask(o, resolution, length, sample)
  local frames, keep, tries = length[1], length[2], length[3]
  local fits, why = one_rule(o, resolution, frames, 1.0, 1.0):assign(sample)
  if not fits then
    return why
  elseif not one_rule(o, resolution, frames, 1.0, tries):assign(sample) then
    return ("not tried by chance, of probability %g"):format(1 - tries)
  elseif not one_rule(o, resolution, frames, keep, 1.0):assign(sample) then
    return ("not kept by chance, of probability %g"):format(1 - keep), true
  end
  return "takes it"
end

--- What the resolutions and lengths of the rule say of a sample in an epoch, in the order in which
-- they are asked.
---@param settings table   baked
---@param row table        of an index
---@param epoch integer    from 0
---@return table[] asked  {resolution, frames, says}; the one that takes it is the last one
---@return table|nil bucket  that it enters
function order.asked(settings, row, epoch)
  local o, out = rule_of(settings), {}
  local sample = { frames = row.frames, height = row.height, width = row.width, key = row.key_lo,
    seed = settings.seed, epoch = epoch }
  local bucket = core.rule(o):assign(sample)
  for _, resolution in ipairs(o.buckets) do
    local refused = false
    table.sort(resolution.lengths, function(a, b) return a[1] > b[1] end)
    for _, length in ipairs(resolution.lengths) do
      local says, ends = "not asked: a longer one did not keep it", nil
      if not refused then
        says, ends = ask(o, resolution, length, sample)
      end
      refused = refused or ends
      out[#out + 1] = { resolution = resolution.name, frames = length[1], says = says }
      if says == "takes it" then
        return out, bucket
      end
    end
  end
  return out, nil
end

return order
