--- Turns the bucket tables of a recipe into the order and form of the core.
-- @module moonreel.data.buckets
local base = require "moonreel.core.base"
local core = require "moonreel.core.loader"
local options = require "moonreel.text.options"

local buckets = {}

--- A table for error messages: pictures in a size that every autoencoder accepts.
buckets.EXAMPLE = 'bucket_config = { ["256px_ar1:1"] = { [1] = { 1.0, 4 } } }'

local function recipe_error(text, ...)
  base.raise("MR_E_RECIPE", text:format(...))
end

--- Names for numbers of frames in Open-Sora 1.2; other keys are numbers.
local frame_names = { ["1x"] = 51, ["2x"] = 102, ["4x"] = 204, ["8x"] = 408, ["16x"] = 816,
  ["2s"] = 51, ["4s"] = 102, ["8s"] = 204, ["16s"] = 408, ["32s"] = 816 }

local function sorted_keys(t, less)
  local keys = {}
  for k in pairs(t) do
    keys[#keys + 1] = k
  end
  table.sort(keys, less)
  return keys
end

-- Aspects are a list {ratio, height, width}, or ratio = {height, width}.
local function aspect_list(name, aspects)
  local list = {}
  if type(aspects) ~= "table" then
    recipe_error("resolutions.%s: there are no aspects; expected { [\"1.00\"] = { height, width "
      .. "} }", name)
  end
  if aspects[1] then
    for i, a in ipairs(aspects) do
      list[i] = { tonumber(a[1]), a[2], a[3] }
    end
  else
    for _, key in ipairs(sorted_keys(aspects, function(a, b)
      return (tonumber(a) or 0) < (tonumber(b) or 0)
    end)) do
      list[#list + 1] = { tonumber(key), aspects[key][1], aspects[key][2] }
    end
  end
  for _, a in ipairs(list) do
    if not (a[1] and math.tointeger(a[2]) and math.tointeger(a[3])) then
      recipe_error("resolutions.%s: expected each aspect as ratio = { height, width } in whole "
        .. "pixels",
        name)
    end
  end
  return list
end

-- a resolution of Open-Sora 2.0 by its name, in the form of a recipe; nil if it is not one
local function computed(name, grid)
  local found = require("moonreel.data.aspects").resolution(name, grid)
  if not found then
    return nil
  end
  local rows = {}
  for i, row in ipairs(found.aspects) do
    local w, h = row.name:match("^(.*):(.*)$")
    rows[i] = { h / w, row.height, row.width }
  end
  return { place = 1000, pixels = found.pixels, aspects = rows }
end

-- settings contain the sizes of 1.2 for all of its names: these do not count as the recipe's own
local function same_sizes(name, a, b)
  local x, y = aspect_list(name, a.aspects), aspect_list(name, b.aspects)
  local same = a.pixels == b.pixels and #x == #y
  for i, row in ipairs(same and x or {}) do
    same = same and row[1] == y[i][1] and row[2] == y[i][2] and row[3] == y[i][3]
  end
  return same
end

-- all resolutions by name, with their place in the table, which orders equal sizes; names that both
-- references have mean the sizes of `whose`, unless the recipe has its own
local function named(resolutions, whose, grid)
  local by_name, shipped = {}, {}
  for place, r in ipairs(require "moonreel.data.resolutions") do
    local other = whose == "opensora-2.0" and computed(r.name, grid) or r
    by_name[r.name] = { place = place, pixels = other.pixels, aspects = other.aspects }
    shipped[r.name] = r
  end
  for name, r in pairs(resolutions or {}) do
    if not (shipped[name] and same_sizes(name, r, shipped[name])) then
      by_name[name] = { place = by_name[name] and by_name[name].place or 1000,
        pixels = r.pixels, aspects = r.aspects }
    end
  end
  return by_name
end

local function length_row(name, frames, entry)
  local count = frame_names[frames] or math.tointeger(tonumber(frames))
  if not count then
    recipe_error("bucket_config.%s: '%s' is not a number of frames", name, tostring(frames))
  end
  if type(entry) ~= "table" then
    recipe_error("bucket_config.%s[%s]: expected { probability, batch size }, got %s",
      name, tostring(frames), type(entry))
  end
  local p, batch = entry[1], entry[2]
  local keep, try, pair = p, 1.0, type(p) == "table" or nil
  if pair then
    keep, try = p[1], p[2]
  end
  if type(keep) ~= "number" or type(try) ~= "number"
      or (batch ~= nil and not math.tointeger(batch)) then
    recipe_error("bucket_config.%s[%s]: expected { probability, batch size } or { { keep, try }, "
      .. "batch size }", name, tostring(frames))
  end
  return { count, keep + 0.0, try + 0.0, math.tointeger(batch or 0), pair = pair }
end

-- the cost of a micro-batch of a length, by a recipe's table; nil: its pixels
local function cost_of(costs, name, frames)
  local cost = costs and costs[name] and costs[name][frames]
  if cost and not (cost > 0 and cost < math.huge) then
    recipe_error("bucket_costs.%s[%d]: %s; expected a number above 0", name, frames, cost)
  end
  return cost
end

--- The table in the form of the core: a list of {name, pixels, aspects = {{ratio, height, width}},
-- lengths = {{frames, keep, try, batch, cost}}}, resolutions from high to low.
---@param bucket_config table  resolution name -> frames -> {probability | {keep, try}, batch size}
---@param resolutions? table   more names: name -> {pixels, aspects}; those of Open-Sora 1.2 and of
---   2.0 (256px, 512px_ar1:1, 1024px_max) are known
---@param costs? table   resolution name -> frames -> cost of a micro-batch, in any unit
---@param whose? string   "opensora-2.0": 144p to 1080p have its sizes, too
---@param grid? integer   computed sides are multiples of it; nil: 16
---@return table[]
function buckets.resolve(bucket_config, resolutions, costs, whose, grid)
  if type(bucket_config) ~= "table" then
    recipe_error("bucket_config: expected a table, got %s", type(bucket_config))
  end
  local known, list = named(resolutions, whose, grid), {}
  for _, name in ipairs(sorted_keys(bucket_config, function(a, b)
    return tostring(a) < tostring(b)
  end)) do
    local r, lengths = known[name] or computed(tostring(name), grid), {}
    if not r then
      recipe_error("bucket_config: there is no resolution '%s'%s; expected one of %s", tostring(
        name),
        grid and (" in multiples of ae_spatial_compression = %d"):format(grid) or "",
        table.concat(sorted_keys(known), ", "))
    end
    if type(r.pixels) ~= "number" then
      recipe_error("resolutions.%s: pixels is not a number", name)
    end
    for _, frames in ipairs(sorted_keys(bucket_config[name], function(a, b)
      return tostring(a) < tostring(b)
    end)) do
      local row = length_row(name, frames, bucket_config[name][frames])
      row[5] = cost_of(costs, name, row[1])
      lengths[#lengths + 1] = row
    end
    list[#list + 1] = { name = name, pixels = r.pixels + 0.0, place = r.place,
      aspects = aspect_list(name, r.aspects), lengths = lengths }
  end
  table.sort(list, function(a, b)
    if a.pixels ~= b.pixels then
      return a.pixels > b.pixels
    end
    if a.place ~= b.place then
      return a.place < b.place
    end
    return a.name < b.name
  end)
  return list
end

local read_options = options.declare("buckets.rule", {
  { "bucket_config", "table", "resolution -> frames -> {probability, batch size}; required" },
  { "resolutions", "table", "more names: name -> {pixels, aspects}" },
  { "frame_interval", "integer", "frames from one used to the next", default = 1 },
  { "compat", "boolean", "lengths and frames as in Open-Sora 1.2", default = false },
  { "draw_epochs", "integer", "epochs after which draws of samples repeat; 0: never",
    default = 0 },
  { "bucket_costs", "table", "resolution -> frames -> cost of a micro-batch" },
  { "reference", "text", "use the buckets and order of \"opensora-1.2\" or \"opensora-2.0\"" },
  { "sizes", "text", "sizes of 144p to 1080p: those of \"opensora-1.2\" or \"opensora-2.0\"; "
    .. "absent: as reference" },
  { "grid", "integer", "sides of 2.0 are multiples of it; absent: 16" },
  { "fps_max", "number", "of 2.0: frames of faster clips are skipped, to at most this rate; 0: "
    .. "no limit",
    default = 0 },
})

--- The table in the form of the core, for options of buckets.rule and data.loader.
---@param o table
---@return table[]
function buckets.table(o)
  return buckets.resolve(o.bucket_config, o.resolutions, o.bucket_costs, o.sizes or o.reference,
    o.grid)
end

--- Makes a rule of a recipe's tables: rule:assign{frames, height, width, key, seed, epoch},
-- rule:ask with the same, rule:crop(frames, have, start).
---@param given table  options of buckets.rule, declared above
---@return mr.BucketRule
function buckets.rule(given)
  local o = read_options(given)
  return core.rule { buckets = buckets.table(o),
    frame_interval = o.frame_interval, compat = o.compat, draw_epochs = o.draw_epochs,
    reference = o.reference, fps_max = o.fps_max }
end

--- The reference whose order the settings use: "opensora-1.2", "opensora-2.0"; nil: our own order.
---@param settings table  baked
---@return string|nil
function buckets.reference(settings)
  if settings.order == "reference" and not settings.compat then
    recipe_error("order = \"reference\" needs compat, which says which reference; expected compat "
      .. "= \"opensora-1.2\" or \"opensora-2.0\"")
  end
  return settings.order ~= "own" and settings.compat or nil
end

-- the table with batches of one size, for a job that takes each clip that fits a bucket
local function taking_all(config, batch_size)
  local all = {}
  for name, lengths in pairs(config) do
    all[name] = {}
    for frames, entry in pairs(type(lengths) == "table" and lengths or {}) do
      local row = length_row(name, frames, entry)
      all[name][frames] = row[2] * row[3] > 0 and row[4] > 0 and { 1.0, batch_size or row[4] }
        or nil
    end
    all[name] = next(all[name]) and all[name] or nil
  end
  return all
end

--- The bucket table of settings, as their job uses it.
---@param settings table  baked
---@return table|nil  bucket_config of buckets.resolve
function buckets.config(settings)
  local config = settings:plain("bucket_config")
  return config and settings.job == "reconstruct" and taking_all(config, settings.batch_size)
    or config
end

--- Options of buckets.rule and data.loader from settings.
---@param settings table  baked
---@return table
function buckets.of(settings)
  return { bucket_config = buckets.config(settings),
    resolutions = settings:plain("resolutions"), bucket_costs = settings:plain("bucket_costs"),
    frame_interval = settings.dataset.frame_interval, compat = settings.compat == "opensora-1.2",
    draw_epochs = settings.dataset.draw_epochs, reference = buckets.reference(settings),
    sizes = settings.compat, grid = settings.ae_spatial_compression,
    fps_max = settings.dataset.fps_max }
end

return buckets
