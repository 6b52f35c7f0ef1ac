--- Searches the fastest way to shard, share tokens and recompute that fits. Bounds exclude ways as
-- soon as they cannot fit or cannot be faster than the best one. A micro-step computes the same in
-- all ZeRO stages, except for a few zeros. So a graph is built once for each way to recompute and
-- to share tokens, and buckets are tried only until one of them excludes the way. ZeRO 2 and 3 need
-- at least the bytes of that graph's ranges at any time. n ranks that share tokens compute at least
-- an n-th each; work that is done twice is added. The result itself is planned like any recipe.
-- @module moonreel.plan.search
local layout = require "moonreel.comm.mesh"
local plan = require "moonreel.plan"
local shares = require "moonreel.plan.shares"

local search = {}

local SHARED = { 1, 2, 4, 8 }  -- numbers of ranks that share tokens, or layers

-- ---- ways ----

-- choices of recomputation: nothing, quarters of the pairs of blocks, all, all with attention; each
-- includes the ones before
local function recomputations(settings)
  local depth, list = settings.model.depth, { { text = "nothing", values = {
    "grad_checkpoint=false", "grad_ckpt_settings=none" } } }
  for quarter = 1, 3 do
    local n = depth and depth * quarter // 4 or 0
    if n > 0 and n < depth then
      list[#list + 1] = { text = ("%d of %d pairs"):format(n, depth), pairs = n, values = {
        "grad_checkpoint=true", ("grad_ckpt_settings={%d,%d}"):format(n, n) } }
    end
  end
  for _, keep in ipairs { true, false } do
    list[#list + 1] = { text = keep and "all" or "all, and attention", attention = not keep,
      values = { "grad_checkpoint=true", "grad_ckpt_settings=none",
        "grad_ckpt_keep_attention=" .. tostring(keep) } }
  end
  return list
end

-- can the ranks of a node share tokens and layers in this way?
local function divides(settings, gpus, sequence, layers)
  local heads = settings.model.num_heads or 1
  return gpus % (sequence * layers) == 0 and heads % (sequence * layers) == 0
    and shares.layers(settings, layers)
end

-- every way to recompute and to share tokens and layers: {level, recompute, sequence, layers,
-- settings}; ways that share layers come last, because they send more than shared tokens do
local function ways_of(given, bake)
  local list, own = {}, bake {}
  for _, layers in ipairs(SHARED) do
    for _, sequence in ipairs(SHARED) do
      for level, recompute in ipairs(recomputations(own)) do
        if divides(own, given.mesh.gpus, sequence, layers) then
          list[#list + 1] = { level = level, recompute = recompute, sequence = sequence,
            layers = layers, settings = bake(recompute.values) }
        end
      end
    end
  end
  return list
end

-- ---- bounds ----

local Search = {}
Search.__index = Search

local function name_of(b) return b.resolution .. " " .. b.frames end

-- The plan of a way with a ZeRO stage and a bucket size; nil: the recipe's own.
local function open_way(self, way, zero, size)
  local values = table.move(way.recompute.values, 1, #way.recompute.values, 1, {})
  values[#values + 1] = size and ("plugin_config.reduce_bucket_size_in_m=%d"):format(size)
  return plan.open(size and self.bake(values) or way.settings, { as_is = true, unsent = true,
    compiled = self.given.compiled, mesh = self.given.mesh:with { zero = zero,
      sequence = way.sequence, layers = way.layers } })
end

-- a key for the sharing of tokens and layers
local function sharing(way) return way.sequence .. "x" .. way.layers end

-- Remembers a bucket's micro-step: seconds of work that is done once and of repeated work, by the
-- ranks that share its tokens, and seconds of their communication per token
local function remember(self, way, b, micro)
  local list, reported = self.known[name_of(b)], self.reported
  list[#list + 1] = { sequence = way.sequence, layers = way.layers, level = way.level,
    again = micro.recompute, once = micro.encode + micro.forward + micro.backward }
  reported[sharing(way)] = math.min(reported[sharing(way)] or math.huge, micro.exchange / b.tokens)
end

-- Lower bound for the seconds of a bucket's micro-step. With measured rates there is no formula
-- that would bound a part by the whole.
local function least_seconds(self, way, b)
  local least, measured = 0, self.given.mesh.machine.ops
  for _, one in ipairs(self.known[name_of(b)]) do
    local fewer = one.sequence <= way.sequence and one.layers <= way.layers
    if sharing(one) == sharing(way) or fewer and not measured then
      local seconds = one.once + (one.level <= way.level and one.again or 0)
      least = math.max(least, seconds * one.sequence * one.layers / (way.sequence * way.layers))
    end
  end
  return least + (self.reported[sharing(way)] or 0) * b.tokens
end

-- a micro-step of ZeRO 1 with other bytes in its arena: the most, or the least, of the other stages
local function with_arena(step, arena)
  local memory = setmetatable({ arena = arena }, { __index = step.memory })
  return setmetatable({ memory = memory }, { __index = step })
end

-- the smallest memory of a rank for a bucket over all ZeRO stages, and the stage
local function least_held(way, b, step)
  local bound, least, at = with_arena(step, step.memory.bound), nil, nil
  for _, open in ipairs(way.opens) do
    local held = open:held(b, open.mesh.zero >= 2 and bound or step)
    if not least or held.total < least.total then
      least, at = held, open.mesh.zero
    end
  end
  return least, at
end

-- seconds of steps of all buckets
local function sum_of(self, seconds)
  local sum, samples = 0, 0
  for _, b in ipairs(self.buckets) do
    sum, samples = sum + seconds[name_of(b)], samples + b.batch
  end
  return sum, samples
end

-- samples per second of all ranks; each bucket has the same weight
local function rate_of(self, open, seconds)
  local sum, samples = sum_of(self, seconds)
  return samples * open.mesh:micros(open.settings) / sum
end

-- Tries the buckets of a way until one excludes it; then a row says why. Nil if no bucket does.
local function ruled_out(self, way)
  local open, seconds = way.opens[1], {}
  for _, b in ipairs(self.buckets) do
    seconds[name_of(b)] = open:least(least_seconds(self, way, b))
  end
  for i, b in ipairs(self.buckets) do
    if self.best and rate_of(self, open, seconds) <= self.best.rate then
      return { below = self.best.rate }
    end
    local step = open:step(b)
    local micro = open:micro(b, step)
    remember(self, way, b, micro)
    way.steps[name_of(b)] = step
    local held, zero = least_held(way, b, step)
    -- inputs of blocks on the host are the same in all stages
    if held.total > self.memory or held.above_buffer then
      -- the bucket that excludes one way is tried first for the next
      table.insert(self.buckets, 1, table.remove(self.buckets, i))
      return { fits = false, zero = zero, memory = held.total, bucket = b,
        above_buffer = held.total <= self.memory and held.above_buffer or nil }
    end
    seconds[name_of(b)] = open:least(micro.micro)
  end
end

-- ---- ZeRO stages and bucket sizes ----

-- seconds of additional work of ZeRO 2 and 3: zeros, and sums of reduced gradients
local function besides(self, way, open)
  local zero = open.mesh.zero
  if zero < 2 then
    return 0
  end
  if not self.besides[zero] then
    local b = self.buckets[1]
    self.besides[zero] = open:micro(b, open:step(b)).micro
      - open:micro(b, way.steps[name_of(b)]).micro
  end
  return self.besides[zero]
end

-- sizes that divide the parameters differently than the recipe's own size
local function other_sizes(open)
  local list, own, whole = {}, open:bucket_elements(), open.models.trained
  local function pieces(elements) return math.ceil(whole / elements) end
  local seen = { [pieces(own)] = true }
  for _, size in ipairs(open.mesh.ranks > 1 and plan.bucket_sizes or {}) do
    local n = pieces(size << 20)
    list[#list + 1] = not seen[n] and size or nil
    seen[n] = true
  end
  return list
end

-- a stage and a size, rated by the graphs of ZeRO 1
local function variant(self, way, open, size, more)
  local seconds = {}
  for _, b in ipairs(self.buckets) do
    local step = way.steps[name_of(b)]
    local parts = setmetatable({ backward = step.parts.backward + more }, { __index = step.parts })
    seconds[name_of(b)] = open:seconds(b, setmetatable({ parts = parts }, { __index = step })).step
  end
  return { open = open, size = size, rate = rate_of(self, open, seconds) }
end

-- variants of a stage, the fastest first; a size that is hardly faster comes after the recipe's own
local function variants_of(self, way, open)
  local more = besides(self, way, open)
  local list = { variant(self, way, open, nil, more) }
  local least = list[1].rate * plan.notable
  for _, size in ipairs(other_sizes(open)) do
    list[#list + 1] = variant(self, way, open_way(self, way, open.mesh.zero, size), size, more)
  end
  local function rank(one) return one.size and one.rate < least and 0 or one.rate end
  table.sort(list, function(a, b)
    if rank(a) ~= rank(b) then
      return rank(a) > rank(b)
    end
    -- with equal speed, smaller buckets need less memory
    return a.open:bucket_elements() < b.open:bucket_elements()
  end)
  return list
end

-- The bucket with the largest memory, by the rank's own graphs if these may decide whether it fits.
local function largest_of(self, way, open)
  local s, most, at = open.shares, 0, nil
  local order = {}
  for i, b in ipairs(self.buckets) do
    local step = way.steps[name_of(b)]
    order[i] = { b = b, total = open:held(b, open.mesh.zero < 2 and step or with_arena(step,
      step.memory.arena + s.windows + s.buckets)).total }
  end
  table.sort(order, function(a, b) return a.total > b.total end)
  for _, one in ipairs(order) do
    if at and (one.total <= self.memory or most > self.memory) then
      break
    end
    local bytes = open.mesh.zero < 2 and one.total or open:held(one.b, open:step(one.b)).total
    if bytes > most then
      most, at = bytes, one.b
    end
  end
  return most, at
end

-- a row per ZeRO stage: the fastest size that fits, or else the one with the least memory
local function rows_of(self, way)
  for _, open in ipairs(way.opens) do
    local found
    for _, one in ipairs(variants_of(self, way, open)) do
      local memory, bucket = largest_of(self, way, one.open)
      local row = { zero = open.mesh.zero, sequence = way.sequence, layers = way.layers, way = way,
        open = one.open,
        bucket_size = one.size, rate = one.rate, memory = memory, bucket = bucket,
        fits = memory <= self.memory }
      found = (not found or row.fits or row.memory < found.memory) and row or found
      if row.fits then
        break
      end
    end
    self.rows[#self.rows + 1] = found
    if found.fits and (not self.best or found.rate > self.best.rate) then
      self.best = found
    end
  end
end

-- plans a row exactly, with the rank's own graph of every bucket
local function settle(self, row)
  local seconds, most = {}, 0
  for _, b in ipairs(self.buckets) do
    local planned = row.open:row(b)
    seconds[name_of(b)] = planned.seconds.step
    if planned.total > most then
      most, row.bucket = planned.total, b
    end
  end
  row.rate, row.memory, row.fits = rate_of(self, row.open, seconds), most, most <= self.memory
end

-- rows that fit first, then by speed; rows that were excluded as slower come before rows that do
-- not fit
local function sort(rows)
  local function rank(row) return row.fits and 0 or row.fits == nil and 1 or 2 end
  table.sort(rows, function(a, b)
    if rank(a) ~= rank(b) then
      return rank(a) < rank(b)
    elseif (a.rate or 0) ~= (b.rate or 0) then
      return (a.rate or 0) > (b.rate or 0)
    elseif (a.memory or 0) ~= (b.memory or 0) then
      return (a.memory or 0) < (b.memory or 0)
    elseif a.sequence ~= b.sequence then
      return a.sequence < b.sequence
    elseif a.layers ~= b.layers then
      return a.layers < b.layers
    end
    return (a.zero or 0) < (b.zero or 0)
  end)
end

-- tries one way, as far as necessary
local function try(self, way)
  way.opens, way.steps = {}, {}
  for zero = self.given.mesh.ranks > 1 and 3 or 0, 0, -1 do
    -- the first one's graphs give the bounds of the others
    table.insert(way.opens, zero == 1 and 1 or #way.opens + 1, open_way(self, way, zero))
  end
  local out = ruled_out(self, way)
  if out then
    out.sequence, out.layers, out.way = way.sequence, way.layers, way
    self.rows[#self.rows + 1] = out
  else
    rows_of(self, way)
  end
end

--- Finds every way to shard, share tokens and recompute, the fastest that fits first.
---@param given table   mesh, compiled: as in plan.open
---@param bake fun(values: string[]): table  settings of the recipe with more values
---@return table[] rows  {sequence, layers, tp_size (1 if the recipe has it), recompute, pairs,
---   attention, values: the fields to set; fits, zero, rate (samples per second), memory, bucket:
---   the largest; bucket_size: in 2^20 elements, if it differs from the recipe's; above_buffer:
---   {needs, has} of grad_ckpt_buffer_size, if only that is too small}. A way that fits in no stage
---   has one row, without a rate. A way that cannot be faster than the first has below: a rate that
---   it does not reach, and fits is unknown
function search.mesh(given, bake)
  local self = setmetatable({ given = given, bake = bake, known = {}, reported = {}, rows = {},
    besides = {}, memory = given.mesh.machine.memory_bytes }, Search)
  local ways = ways_of(given, bake)
  self.buckets = plan.open(ways[1].settings, { compiled = given.compiled, as_is = true,
    mesh = given.mesh }):buckets()
  for _, b in ipairs(self.buckets) do
    self.known[name_of(b)] = {}
  end
  for _, way in ipairs(ways) do
    try(self, way)
  end
  sort(self.rows)
  -- the best row is planned exactly; if it turns out to be slower than another, that one is next
  while self.rows[1].fits and not self.rows[1].settled do
    local row = self.rows[1]
    settle(self, row)
    row.settled = true
    sort(self.rows)
  end
  local layers = layout.layers(bake {})
  for _, row in ipairs(self.rows) do
    local how = row.way.recompute
    row.recompute, row.pairs, row.attention, row.values = how.text, how.pairs, how.attention,
      how.values
    row.tp_size = (row.layers > 1 or layers > 1) and row.layers or nil
    row.way, row.open, row.settled = nil, nil, nil
  end
  return self.rows
end

return search
