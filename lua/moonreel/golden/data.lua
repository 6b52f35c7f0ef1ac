--- Reference files about data: which bucket a sample enters, which frames of it are taken. The
-- order of batches is our own; of the reference's only its groups are compared.
-- @module moonreel.golden.data
local base = require "moonreel.core.base"
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"
local json = require "moonreel.core.json"

-- rows of a two-dimensional tensor, by number from 1
local function rows(f, name)
  local values, width = f:list(name), f.has[name].shape[2]
  return function(i)
    return table.unpack(values, (i - 1) * width + 1, i * width)
  end
end

-- ---- buckets with given draws ----

-- a reference's bucket_config in the core's form; entries = resolution -> frames -> its row of
-- {frames, keep, try, batch}, which can be set anew before a rule is made
local function open_config(bucket_config)
  for _, lengths in pairs(bucket_config) do
    for _, entry in pairs(lengths) do
      entry[2] = entry[2] ~= json.null and entry[2] or nil
    end
  end
  local list, entries = buckets.resolve(bucket_config), {}
  for _, resolution in ipairs(list) do
    local named = {}
    for _, row in ipairs(resolution.lengths) do
      named[row[1]] = row
    end
    entries[resolution.name] = named
  end
  return list, entries
end

-- what a drawn number decides, as a probability that needs no drawing
local function decided(p, draw, is_below)
  if draw == nil then
    return p >= 1 and 1.0 or 0.0
  end
  return is_below(draw, p) and 1.0 or 0.0
end
local function below(u, p) return u < p end
local function not_above(u, p) return u <= p end

-- the generators that the reference made for a sample, and the numbers each gave
local function recorded_draws(f, name, config)
  local pair_of = {}
  for resolution, lengths in pairs(config.bucket_index) do
    for frames, pair in pairs(lengths) do
      pair_of[pair] = {resolution = resolution, frames = math.tointeger(tonumber(frames))}
    end
  end
  local seeds, first = f:list(name .. ".rng_seed"), f:list(name .. ".rng_first")
  local draws, draw_first = f:list(name .. ".draw"), f:list(name .. ".draw_first")
  return function(sample)
    local g, last = first[sample], first[sample + 1]
    return function()
      g = g + 1
      if g > last then
        return nil
      end
      local pair = pair_of[seeds[g] - config.base_seed - (sample - 1) * config.num_bucket]
      if not pair then
        base.raise("MR_E_DATA", string.format("%s: %s: the seed %d belongs to no bucket", f.path,
          name, seeds[g]))
      end
      return pair, table.move(draws, draw_first[g] + 1, draw_first[g + 1], 1, {})
    end
  end
end

-- a function (sample) -> rule, in which all that the reference drew for the sample is decided
local function rules(f, name, config)
  local list, entries = open_config(config.config)
  local function make()
    return core.rule{buckets = list, frame_interval = config.frame_interval, compat = true}
  end
  if not f.has[name .. ".rng_seed"] then
    local rule = make()
    return function() return rule end
  end
  local draws_of = recorded_draws(f, name, config)
  return function(sample)
    for pair, drawn in draws_of(sample) do
      local row = entries[pair.resolution][pair.frames]
      local p = config.config[pair.resolution][tostring(pair.frames)][1]
      if type(p) == "table" then
        row[2], row[3] = decided(p[1], drawn[2], below), decided(p[2], drawn[1], not_above)
      else
        row[2] = decided(p, drawn[1], below)
      end
    end
    return make()
  end
end

local function bucket_assignment(f, result)
  local frames, height, width = f:list("in.num_frames"), f:list("in.height"), f:list("in.width")
  for name, config in pairs(f:need("configs")) do
    local rule_of, bucket, thw = rules(f, name, config), rows(f, name .. ".bucket"),
      rows(f, name .. ".thw")
    local different = 0
    for i = 1, #frames do
      local got = rule_of(i):assign{frames = frames[i], height = height[i], width = width[i]}
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
    end
    result:exact(name, different)
  end
end

-- ---- groups of the reference's batches ----

-- the sizes of the batches that each row is in, over all ranks and numbers of ranks
local function sizes_of_rows(f, set)
  local sizes = {}
  for _, name in ipairs(f.names) do
    local stem = name:match("^(.*)%.first$")
    if stem and stem:sub(1, #set + 1) == set .. "." and f.has[stem .. ".thw"] then
      local first, index, thw = f:list(name), f:list(stem .. ".index"), rows(f, stem .. ".thw")
      for b = 1, #first - 1 do
        for at = first[b] + 1, first[b + 1] do
          local of_row = sizes[index[at]] or {}
          sizes[index[at]], of_row[#of_row + 1] = of_row, {thw(b)}
        end
      end
    end
  end
  return sizes
end

local function batch_sampler(f, result)
  local frames, height, width = f:list("in.num_frames"), f:list("in.height"), f:list("in.width")
  local list, entries = open_config(f:need("bucket_config"))
  for set, groups in pairs(f:need("info")) do
    -- lengths and states of the reference's sampler are numbers and records, not lists of groups
    local is_groups = type(groups) == "table" and groups[1] and groups[1].bucket
    local sizes, different = sizes_of_rows(f, set), 0
    for _, group in ipairs(is_groups and groups or {}) do
      local resolution, length = group.bucket[1], group.bucket[2]
      -- whatever was drawn led here: no other bucket is open
      for name, named in pairs(entries) do
        for count, row in pairs(named) do
          row[2] = name == resolution and count == length and 1.0 or 0.0
          row[3] = count == length and 1.0 or 0.0
        end
      end
      local rule = core.rule{buckets = list, compat = true}
      for _, i in ipairs(group.indices) do
        local got = rule:assign{frames = frames[i + 1], height = height[i + 1],
          width = width[i + 1]}
        local same = got and got.resolution == resolution and got.frames == length
          and got.batch == group.batch_size
        for _, size in ipairs(sizes[i] or {}) do
          same = same and got.frames == size[1] and got.height == size[2] and got.width == size[3]
        end
        different = different + (same and 0 or 1)
      end
    end
    if is_groups then
      result:exact(set, different)
    end
  end
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
