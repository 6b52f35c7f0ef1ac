--- Computes tables that fit, without trial runs: the largest batch of each bucket, batches of equal
-- seconds, ways to save memory.
-- @module moonreel.plan.solve
local fits = require "moonreel.codec.fits"
local largest_below = require "moonreel.trainer.largest"
local plan = require "moonreel.plan"
local ranks = require "moonreel.optim.ranks"

local solve = {}

local MOST = 65536      -- the largest batch that is tried
local MOST_BATCHES = 3  -- the most buckets whose batches are printed one by one
local MOST_DOUBLED = 8  -- doublings of the number of GPUs in a search

-- a bucket with another batch
local function with_batch(b, batch)
  return { resolution = b.resolution, frames = b.frames, height = b.height, width = b.width,
    batch = batch }
end

-- bytes of one rank while a bucket runs with another batch; all: as in Open:held
local function held_of(open, b, batch, all)
  local other = with_batch(b, batch)
  return open:held(other, open:step(other), all)
end

-- The largest batch of each bucket in a memory that also holds the programs of all; and the bytes
-- of these, without buckets in which no sample fits.
local function largest_with_others(open, list, memory, all)
  local rows, taken = {}, { slots = 0, graphs = 0, slabs = 0 }
  for i, b in ipairs(list) do
    local function total(batch) return held_of(open, b, batch, all).total end
    local batch = largest_below(total, memory, b.batch, MOST)
    local held = batch > 0 and held_of(open, b, batch, all)
    rows[i] = { bucket = b, was = b.batch, batch = batch, total = held and held.total or 0,
      above = batch < MOST and total(batch + 1) or nil }
    if held then
      taken.slots, taken.graphs = taken.slots + held.kept.slots, taken.graphs + held.kept.graphs
      taken.slabs = math.max(taken.slabs, held.slabs)
    end
  end
  return rows, taken
end

-- Writes totals of rows with the programs of all of them; returns the largest.
local function settle_totals(open, rows, all)
  local most = 0
  for _, row in ipairs(rows) do
    row.total = row.batch > 0 and held_of(open, row.bucket, row.batch, all).total or 0
    most = math.max(most, row.total)
  end
  return most
end

--- The largest batch of each bucket that fits together with the programs of the others. If no
-- bucket fits in this way, each has the memory for itself: a run closes the programs of the others.
---@param open table      from plan.open
---@param memory number   bytes of one rank
---@return table[] rows   {bucket, batch (0: not even one sample), was, total, above: bytes of one
---   more}
---@return table all      bytes of all buckets, as in Open:held
function solve.fit(open, memory)
  open = open:within(memory)
  local list, none = open:buckets(), { slots = 0, graphs = 0, slabs = 0 }
  local alone, all = largest_with_others(open, list, memory, none)
  -- batches that are too large give enough bytes for the next attempt; the difference is subtracted
  local room, rows, taken, most = memory
  repeat
    rows, taken = largest_with_others(open, list, room, all)
    most = settle_totals(open, rows, taken)
    room = room - (most - memory)
  until most <= memory
  if most > 0 then
    return rows, taken
  end
  return alone, none
end

-- p and c in seconds of a sample = c x S^p, with S tokens of a sample, by least squares of
-- logarithms
local function power_law(points)
  local n, x, y, xx, xy = #points, 0, 0, 0, 0
  for _, one in ipairs(points) do
    local a, b = math.log(one.tokens), math.log(one.seconds)
    x, y, xx, xy = x + a, y + b, xx + a * a, xy + a * b
  end
  local spread = n * xx - x * x
  local p = spread > 0 and (n * xy - x * y) / spread
  return p or nil, p and math.exp((y - p * x) / n)
end

--- Batches of equal seconds in a memory. The time is that of the slowest bucket with one sample, or
-- of the fastest bucket when full.
---@param open table
---@param memory number
---@return table[] rows    {bucket, batch, was, total, seconds, before: seconds with the old batch;
---   rule, rule_s: the batch by AdaptiveLoad's rule, B x S^p equal in all as far as memory permits,
---   and its seconds; above: bytes of one sample, if not even one fits}
---@return number seconds  the limit for all buckets
---@return number|nil p    seconds of a sample grow with its tokens to the power of p
function solve.balance(open, memory)
  open = open:within(memory)
  local rows, all = solve.fit(open, memory)
  local target, least, points = math.huge, 0, {}
  local function seconds(b, batch) return open:row(with_batch(b, batch)).seconds.step end
  for _, row in ipairs(rows) do
    if row.batch > 0 then
      target = math.min(target, seconds(row.bucket, row.batch))
      least = math.max(least, seconds(row.bucket, 1))
    end
    row.before, row.most = seconds(row.bucket, row.was), row.batch
  end
  target = math.max(target, least)
  for _, row in ipairs(rows) do
    if row.batch > 0 then
      row.batch = largest_below(function(batch) return seconds(row.bucket, batch) end, target,
        row.was, row.batch)
      local planned = open:row(with_batch(row.bucket, row.batch))
      row.total = held_of(open, row.bucket, row.batch, all).total
      row.seconds, row.tokens = planned.seconds.step, planned.tokens
      points[#points + 1] = { tokens = planned.tokens / row.batch,
        seconds = row.seconds / row.batch }
    end
    row.above = row.batch == 0 and row.above or nil
  end
  local p, c = power_law(points)
  for _, row in ipairs(p and rows or {}) do
    local samples = row.batch > 0 and target / (c * (row.tokens / row.batch) ^ p) // 1 | 0
    row.rule = samples and math.max(1, math.min(samples, row.most))
    row.rule_s = samples and seconds(row.bucket, row.rule)
  end
  return rows, target, p
end

-- ---- buckets that do not fit ----

-- Ways to need less memory by their kinds, nearest first: {text, values: of the recipe, mesh}. A
-- kind is monotonic (`falls`) if each of its ways needs no more than the ones before.
local function ways(settings, of, elements)
  local kinds, by = {}, {}
  local function add(kind, text, way)
    if not by[kind] then
      by[kind] = { falls = kind == "gpus" or kind == "buckets" }
      kinds[#kinds + 1] = by[kind]
    end
    way.text = text
    table.insert(by[kind], way)
  end
  for i = of.zero >= 2 and #plan.bucket_sizes or 0, 1, -1 do
    local size = plan.bucket_sizes[i]
    if size << 20 < elements then
      add("buckets", ("plugin_config.reduce_bucket_size_in_m = %d"):format(size),
        { values = { ("plugin_config.reduce_bucket_size_in_m=%d"):format(size) } })
    end
  end
  if not settings.grad_checkpoint and not settings.grad_ckpt_settings then
    add("recompute", "grad_checkpoint = true", { values = { "grad_checkpoint=true" } })
  end
  if settings.grad_ckpt_keep_attention then
    add("recompute", "grad_ckpt_keep_attention = false", { values = { "grad_checkpoint=true",
      "grad_ckpt_settings=none", "grad_ckpt_keep_attention=false" } })
  end
  for zero = of.zero + 1, of.ranks > 1 and 3 or 0 do
    add("zero", ("plugin_config.zero_stage = %d"):format(zero), { mesh = of:with { zero = zero } })
  end
  local sequence = of.sequence * 2
  if of.gpus % sequence == 0 and (settings.model.num_heads or 1) % sequence == 0 then
    add("sequence", ("plugin_config.sp_size = %d"):format(sequence),
      { mesh = of:with { sequence = sequence } })
  end
  -- more nodes of the same kind, with all GPUs of each
  for power = 1, of.machine.cpu and 0 or MOST_DOUBLED do
    local larger = of:larger(1 << power)
    -- a single rank divides nothing, whatever the recipe says about several
    larger = of.ranks == 1 and larger:with { zero = ranks.stage(settings) } or larger
    add("gpus", ("%s GPUs"):format(larger.ranks), { mesh = larger })
  end
  return kinds
end

-- the largest memory of any of these buckets; if one needs more than the memory, the others are not
-- tried
local function most_of(open, buckets, memory)
  local most = 0
  for _, b in ipairs(buckets) do
    most = math.max(most, open:held(b, open:step(b)).total)
    if most > memory then
      break
    end
  end
  return most
end

-- The first way of a kind that fits, and its memory. If a kind is monotonic and its last way does
-- not fit, no way does.
local function first_that_fits(list, needs, memory)
  for i, way in ipairs(list) do
    local total = needs(way)
    if total <= memory then
      return { text = way.text, total = total }
    elseif i == 1 and list.falls and needs(list[#list]) > memory then
      return nil
    end
  end
end

-- batches with which all of these buckets fit; nil if not even one sample fits in one of them
local function smaller_batches(open, buckets, memory)
  local largest, most_pixels = nil, -1
  for _, b in ipairs(buckets) do
    if b.batch == 1 then
      return nil
    end
    local pixels = b.frames * b.height * b.width
    if pixels > most_pixels then
      largest, most_pixels = b, pixels
    end
  end
  -- of many buckets only the largest sample is planned
  if #buckets > MOST_BATCHES and held_of(open, largest, 1).total > memory then
    return nil
  elseif #buckets > MOST_BATCHES then
    return { text = "smaller batches in all of these buckets (--fit all)" }
  end
  local parts, most = {}, 0
  for i, b in ipairs(buckets) do
    local function total(batch) return held_of(open, b, batch).total end
    local batch = largest_below(total, memory, b.batch // 2, b.batch - 1)
    if batch == 0 then
      return nil
    end
    parts[i], most = ("%d of %s"):format(batch, plan.bucket_name(b)), math.max(most, total(batch))
  end
  return { text = (#parts == 1 and "a batch of " or "batches of ")
    .. table.concat(parts, " and "), total = most }
end

-- Ways with which a bucket fits whose clips are encoded and decoded one by one: the other way to
-- process a clip, fewer frames, smaller pictures.
local function other_clips(p, given, bake, b)
  local memory, rows = given.mesh.machine.memory_bytes, {}
  local function opened(values)
    return plan.open(bake(values), { compiled = given.compiled, mesh = p.mesh, as_is = true })
  end
  local function total(open, frames, height, width)
    local clip = { resolution = b.resolution, frames = frames, height = height, width = width,
      batch = 1 }
    return open:held(clip, open:step(clip)).total
  end
  local function add(text, open, ...)
    local bytes = total(open, ...)
    rows[#rows + 1] = bytes <= memory and { text = text, total = bytes } or nil
  end
  local open = opened {}
  local auto = open.models.pipe.autoencoder
  if auto.other then
    local said = "model." .. select(2, auto:other())
    add(said, opened { (said:gsub("%s", "")) }, b.frames, b.height, b.width)
  end
  local frames, sides = fits.smaller(auto, b.frames, b.height, b.width, function(...)
    return total(open, ...)
  end, memory)
  if frames then
    add(("clips of %d frames"):format(frames), open, frames, b.height, b.width)
  end
  if sides then
    add(("pictures of %d x %d"):format(sides[1], sides[2]), open, b.frames, sides[1], sides[2])
  end
  return rows
end

--- Changes with which a plan fits whose buckets are too large: the nearest ones, each planned.
---@param p table          from plan.of
---@param given table      mesh, compiled: as in plan.open
---@param bake fun(values: string[]): table  settings of the recipe with more values
---@return table[] rows    {text, total}: of each kind the first that fits; batches of these buckets
---   come last, without a total if there are many
function solve.remedies(p, given, bake)
  if p.writes then
    return other_clips(p, given, bake, p.largest)
  end
  local settings, rows, large = bake {}, {}, {}
  local m = given.mesh.machine
  for _, b in ipairs(p.buckets) do
    large[#large + 1] = not b.fits and b or nil
  end
  local function opened(way)
    return plan.open(way.values and bake(way.values) or settings, { compiled = given.compiled,
      as_is = true, unsent = true, mesh = way.mesh or p.mesh })
  end
  -- the largest is tried first: it shows soonest that a way does not fit
  local hardest = table.move(large, 1, #large, 1, {})
  table.sort(hardest, function(a, b) return a.total > b.total end)
  local as_it_is = opened {}
  for _, list in ipairs(ways(settings, p.mesh, as_it_is:bucket_elements())) do
    rows[#rows + 1] = first_that_fits(list, function(way)
      return most_of(opened(way), hardest, m.memory_bytes)
    end, m.memory_bytes)
  end
  rows[#rows + 1] = smaller_batches(as_it_is, large, m.memory_bytes)
  return rows
end

-- the least memory in which a sample fits in each bucket; nil if the machine has less
local function enough_for(open, rows)
  local memory = 0
  for _, row in ipairs(rows) do
    memory = math.max(memory, row.batch == 0 and math.ceil(row.above / 1e6) * 1e6 or 0)
  end
  if memory == 0 or memory > open.mesh.machine.memory_bytes then
    return nil
  end
  -- with more memory the programs of larger batches need more
  local larger = solve.fit(open, memory)
  for _, row in ipairs(larger) do
    if row.batch == 0 then
      return enough_for(open, larger)
    end
  end
  return memory
end

--- Changes with which a sample fits in buckets where none fits now.
---@param open table
---@param memory number
---@param rows table[]    from fit or balance
---@param bake function   as solve.remedies takes it
---@return table[] rows     as in solve.remedies
---@return number|nil memory  the least that is enough, if the machine has it
function solve.room(open, memory, rows, bake)
  local buckets, m = {}, open.mesh.machine
  for _, row in ipairs(rows) do
    local b = with_batch(row.bucket, 1)
    b.total, b.fits = row.above, false
    buckets[#buckets + 1] = row.batch == 0 and b or nil
  end
  local mesh = open.mesh:with { machine = setmetatable({ memory_bytes = memory },
    { __index = m }) }
  return solve.remedies({ buckets = buckets, mesh = mesh }, { mesh = mesh,
    compiled = open.compiled }, bake), enough_for(open, rows)
end

-- ---- fields for a recipe ----

local function number(x) return ("%.14g"):format(x):gsub("^(%-?%d+)$", "%1.0") end

--- A bucket table with other batches, in the syntax of a recipe.
---@param open table
---@param rows table[]  from fit or balance; a bucket in which no sample fits is removed
---@return string
function solve.table_text(open, rows)
  local solved, lines = {}, { "bucket_config = {" }
  for _, row in ipairs(rows) do
    solved[row.bucket.resolution .. " " .. row.bucket.frames] = row.batch
  end
  for _, r in ipairs(plan.resolutions(open.settings)) do
    local cells = {}
    for i, length in ipairs(r.lengths) do
      local frames, keep, try, was = table.unpack(length)
      local batch = solved[r.name .. " " .. frames] or was
      local chance = number(keep)
      if try ~= 1 then
        chance = ("{ %s, %s }"):format(chance, number(try))
      end
      cells[i] = batch > 0 and ("[%d] = { %s, %d }"):format(frames, chance, batch)
        or ("[%d] = %s"):format(frames, was > 0 and "recipe.remove" or "{ 0.0, recipe.none }")
    end
    lines[#lines + 1] = ("  [%q] = { %s },"):format(r.name, table.concat(cells, ", "))
  end
  lines[#lines + 1] = "},"
  return table.concat(lines, "\n") .. "\n"
end

--- The fields of a way to shard and recompute, in the syntax of a recipe.
---@param row table  from moonreel.plan.search mesh
---@return string
function solve.mesh_text(row)
  local lines = {}
  lines[1] = ("grad_checkpoint = %s,"):format(row.recompute ~= "nothing")
  lines[2] = ("grad_ckpt_settings = %s,"):format(row.pairs
    and ("{ %d, %d }"):format(row.pairs, row.pairs) or "recipe.none")
  lines[3] = ("grad_ckpt_keep_attention = %s,"):format(not row.attention)
  lines[4] = ("plugin_config = { zero_stage = %d, sp_size = %d%s%s },"):format(row.zero,
    row.sequence, row.tp_size and (", tp_size = %d"):format(row.tp_size) or "", row.bucket_size
    and (", reduce_bucket_size_in_m = %d"):format(row.bucket_size) or "")
  return table.concat(lines, "\n") .. "\n"
end

return solve
