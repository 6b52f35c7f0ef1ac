--- Statistics of an index: rows, bytes, hours, and distributions of its values.
-- @module moonreel.data.statistics
local row_fields = require "moonreel.data.row"

local statistics = {}

-- upper bounds of a number's classes; larger values form a class of their own
local bounds = {
  num_frames = { 1, 16, 32, 51, 64, 102, 128, 204, 256, 408, 512, 1024 },
  resolution = { 144 * 256, 240 * 426, 360 * 640, 480 * 854, 720 * 1280, 1080 * 1920, 1440 * 2560,
    2160 * 3840 },
  aspect_ratio = { 0.45, 0.5, 0.6, 0.7, 0.8, 0.95, 1.05, 1.4, 1.6, 1.9 },
  fps = { 0, 10, 15, 23.97, 24, 25, 29.96, 30, 50, 60 },
  seconds = { 0, 1, 2, 4, 8, 16, 32, 64, 128 },
  bytes = { 1e5, 1e6, 5e6, 1e7, 5e7, 1e8, 1e9 },
  text_bytes = { 0, 50, 100, 200, 400, 800, 1600 },
}
-- a column is divided into this many classes of equal width
local CLASSES = 10

-- one pass: counts by class, sum, extremes
local function spread(field, read)
  return { field = field, read = read, n = 0, missing = 0, sum = 0.0, least = math.huge,
    most = -math.huge, values = not bounds[field] and {} or nil, counts = {} }
end

local function class_of(list, value)
  for i, bound in ipairs(list) do
    if value <= bound then
      return i
    end
  end
  return #list + 1
end

local function take(s, r)
  local value = s.read(r)
  if not value then
    s.missing = s.missing + 1
    return
  end
  s.n, s.sum = s.n + 1, s.sum + value
  s.least, s.most = math.min(s.least, value), math.max(s.most, value)
  if s.values then
    s.values[s.n] = value
  else
    local c = class_of(bounds[s.field], value)
    s.counts[c] = (s.counts[c] or 0) + 1
  end
end

-- classes with rows: {from, to, rows}; from is excluded, to included
local function classes(s)
  local list, counts = bounds[s.field], s.counts
  if s.values then
    list, counts = {}, {}
    for i = 1, CLASSES - 1 do
      -- as reals, because whole numbers of 64 bits would overflow
      list[i] = s.least + (s.most + 0.0 - s.least) * i / CLASSES
    end
    for _, value in ipairs(s.values) do
      local c = class_of(list, value)
      counts[c] = (counts[c] or 0) + 1
    end
  end
  local out = {}
  for c = 1, #list + 1 do
    if counts[c] then
      out[#out + 1] = { from = math.max(list[c - 1] or s.least, s.least),
        to = math.min(list[c] or s.most, s.most), rows = counts[c] }
    end
  end
  return out
end

--- Computes the statistics over all rows.
---@param index moonreel.Index
---@param tick? fun(done: integer, total: integer)
---@return table  {rows, images, hours, bytes, without_caption, captions, codecs = {name = rows},
---   spreads = {{field, rows, missing, least, mean, most, classes = {{from, to, rows}}}}}
function statistics.of(index, tick)
  local columns, spreads = index.meta.columns, {}
  for i, name in ipairs(row_fields.names(columns, true)) do
    spreads[i] = spread(name, row_fields.reader(name, columns, "data stats", true))
  end
  local out = { rows = #index, images = 0, hours = 0.0, bytes = 0, without_caption = 0,
    captions = 0, codecs = {}, spreads = {} }
  for i = 1, #index do
    local r = index:row(i)
    out.images = out.images + (r.image and 1 or 0)
    out.hours = out.hours + r.duration_ms / 3.6e6
    out.bytes = out.bytes + r.bytes
    -- a row without a caption has an empty one
    local without = r.text == ""
    out.captions = out.captions + (without and 0 or #r.captions)
    out.without_caption = out.without_caption + (without and 1 or 0)
    out.codecs[r.codec] = (out.codecs[r.codec] or 0) + 1
    for _, s in ipairs(spreads) do
      take(s, r)
    end
    if tick and i % 1000 == 0 then
      tick(i, #index)
    end
  end
  for _, s in ipairs(spreads) do
    local has = s.n > 0
    out.spreads[#out.spreads + 1] = { field = s.field, rows = s.n, missing = s.missing,
      least = has and s.least or nil, mean = has and s.sum / s.n or nil, most = has and s.most
      or nil, classes = has and classes(s) or {} }
  end
  return out
end

return statistics
