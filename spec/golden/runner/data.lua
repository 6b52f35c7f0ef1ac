--- Reference files about data: which bucket a sample enters, what the batches of each rank hold,
-- which frames of a clip are taken.
-- @module spec.golden.runner.data
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"
local epochs = require "spec.golden.runner.epochs"
local json = require "moonreel.core.json"

-- rows of a two-dimensional tensor, by number from 1
local function rows(f, name)
  local values, width = f:list(name), f.has[name].shape[2]
  return function(i)
    return table.unpack(values, (i - 1) * width + 1, i * width)
  end
end

-- a reference's bucket_config in the core's form
local function open_config(bucket_config)
  for _, lengths in pairs(bucket_config) do
    for _, entry in pairs(lengths) do
      entry[2] = entry[2] ~= json.null and entry[2] or nil
    end
  end
  return buckets.resolve(bucket_config)
end

-- ---- buckets ----

-- the numbers that the reference drew for each sample, by the seeds of its generators
local function recorded_draws(f, name)
  if not f.has[name .. ".rng_seed"] then
    return function() return {} end
  end
  local seeds, first = f:list(name .. ".rng_seed"), f:list(name .. ".rng_first")
  local draws, draw_first = f:list(name .. ".draw"), f:list(name .. ".draw_first")
  return function(sample)
    local by_seed = {}
    for g = first[sample] + 1, first[sample + 1] do
      -- one more generator of the same seed, which draws nothing, may follow
      by_seed[seeds[g]] = by_seed[seeds[g]]
        or table.move(draws, draw_first[g] + 1, draw_first[g + 1], 1, {})
    end
    return by_seed
  end
end

-- What we draw for a sample, against that; the reference draws once more where nothing depends on
-- it.
local function differing_draws(asked, recorded, first_seed)
  local different = 0
  for k, one in ipairs(asked) do
    for i, u in ipairs(one.draws) do
      local there = recorded[first_seed + k - 1]
      different = different + (there and there[i] == u and 0 or 1)
    end
  end
  return different
end

local function bucket_assignment(f, result)
  local frames, height, width = f:list("in.num_frames"), f:list("in.height"), f:list("in.width")
  for name, config in pairs(f:need("configs")) do
    local bucket, thw, recorded = rows(f, name .. ".bucket"), rows(f, name .. ".thw"),
      recorded_draws(f, name)
    local rule = core.rule{buckets = open_config(config.config), reference = "opensora-1.2",
      frame_interval = config.frame_interval}
    local different, draws, seed = 0, 0, config.base_seed or 0
    for i = 1, #frames do
      local sample = {frames = frames[i], height = height[i], width = width[i], row = i,
        seed = seed}
      local got = rule:assign(sample)
      local place, length = bucket(i)
      local _, h, w = thw(i)
      local same
      if place < 0 then
        same = got == nil
      else
        same = got and got.resolution == config.resolution_order[place + 1]
          and got.frames == length and got.height == h and got.width == w
      end
      different = different + (same and 0 or 1)
      if f.has[name .. ".rng_seed"] then
        draws = draws + differing_draws(rule:ask(sample), recorded(i),
          seed + (i - 1) * config.num_bucket)
      end
    end
    result:exact(name, different)
    result:exact(name .. ", draws", draws)
  end
end

-- ---- batches ----

-- batches of one rank that differ from a set of the file
local function differing_batches(f, set, batches)
  local first, index, thw = f:list(set .. ".first"), f:list(set .. ".index"), rows(f, set .. ".thw")
  local different = #batches == #first - 1 and 0 or 1
  for b, batch in ipairs(batches) do
    local t, h, w = thw(b)
    local same = b < #first and #batch.rows == first[b + 1] - first[b]
      and (#batch.rows == 0 or batch.frames == t and batch.height == h and batch.width == w)
    for k, row in ipairs(batch.rows) do
      same = same and row == index[first[b] + k]
    end
    different = different + (same and 0 or 1)
  end
  return different
end

-- every ranks-th of a list, from one on
local function share(batches, rank, ranks)
  local own = {}
  for i = rank + 1, #batches, ranks do
    own[#own + 1] = batches[i]
  end
  return own
end

-- what ranks had of an epoch: as our order says it, and as the loaders of all ranks give it
local function compare_ranks(f, result, index, o, set, from)
  local of_order = epochs.of_order(index, o)
  local whole, loaded = 0, 0
  for rank = 0, o.ranks - 1 do
    local of_rank = ("%s.rank%d"):format(set, rank)
    whole = whole + differing_batches(f, of_rank,
      share(table.move(of_order, (from or 0) + 1, #of_order, 1, {}), rank, o.ranks))
    if not o.fill then
      loaded = loaded + differing_batches(f, of_rank, epochs.of_loader(index, o, rank, from))
    end
  end
  result:exact(set, whole)
  result:exact(set .. ", loaders", loaded)
end

-- Sets drop1.epoch0.world2 are whole epochs with or without drop_last, and sets
-- resume.epoch1.step3.world2to4 are what comes after these steps. Those that begin with "cached"
-- are of a bucket table of another epoch: what the reference does when it goes on in a later one,
-- which an uninterrupted run differs from.
local function batch_sampler(f, result)
  local frames, height, width = f:list("in.num_frames"), f:list("in.height"), f:list("in.width")
  local samples, list = {}, open_config(f:need("bucket_config"))
  for i = 1, #frames do
    samples[i] = {frames = frames[i], height = height[i], width = width[i]}
  end
  epochs.with(samples, function(index)
    for _, name in ipairs(f.names) do
      local set = name:match("^(.*)%.rank0%.first$")
      local drop, epoch, ranks = (set or ""):match("^drop(%d)%.epoch(%d+)%.world(%d+)$")
      local resumed, step, before, after =
        (set or ""):match("^resume%.epoch(%d+)%.step(%d+)%.world(%d+)to(%d+)$")
      local o = {buckets = list, reference = "opensora-1.2", seed = f:need("seed"),
        epoch = math.tointeger(epoch or resumed), ranks = math.tointeger(ranks or after),
        fill = drop == "0"}
      if drop then
        compare_ranks(f, result, index, o, set)
      elseif resumed then
        compare_ranks(f, result, index, o, set, step * before // o.ranks * o.ranks)
      end
    end
  end)
end

-- ---- frames ----

local function temporal_crop(f, result)
  local case, indices = rows(f, "case"), rows(f, "indices")
  local by_interval, different = {}, 0
  for i = 1, f.has["case"].shape[1] do
    local have, frames, interval, low, high, start = case(i)
    by_interval[interval] = by_interval[interval] or buckets.rule{compat = true,
      frame_interval = interval, bucket_config = {["144p"] = {[1] = {1.0, 1}}}}
    local got, starts = by_interval[interval]:crop(frames, have, start)
    local want = {indices(i)}
    for k = 1, #want do
      different = different + ((got[k] or -1) == want[k] and 0 or 1)
    end
    different = different + (low == 0 and high == starts - 1 and 0 or 1)
  end
  result:exact("indices", different)
end

return {{"^bucket_assignment", bucket_assignment}, {"^batch_sampler", batch_sampler},
  {"^temporal_crop", temporal_crop}}
