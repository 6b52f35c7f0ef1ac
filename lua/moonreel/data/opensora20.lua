--- What Open-Sora 2.0 does with a table of samples: rate, text, frames, buckets, batches, number
-- for number, its generators included. Ref: opensora-2.0.md 9 and 10.
-- @module moonreel.data.opensora20
local aspects = require "moonreel.data.aspects"
local generators = require "moonreel.data.generators"

local opensora20 = {}

--- The rate that a model is told, and every how many-th frame is taken.
---@param fps number|nil      of the clip; nil or NaN: not known
---@param fps_max number|nil  nil: no limit
---@return number new_fps  an integer when frames are left out
---@return integer interval
function opensora20.rate(fps, fps_max)
  if not fps or fps ~= fps then
    return 0, 1
  elseif not fps_max or fps < fps_max then
    return fps, 1
  end
  local interval = math.ceil(fps / fps_max)
  return math.floor(fps / interval), interval
end

-- a number as Python prints it
local function printed(x)
  if math.type(x) == "integer" then
    return ("%d"):format(x)
  elseif x % 1 == 0 and math.abs(x) < 1e16 then
    return ("%.1f"):format(x)
  end
  for digits = 1, 17 do
    local text = ("%." .. digits .. "g"):format(x)
    if tonumber(text) == x then
      return text
    end
  end
end

--- A caption as the encoders of a training run see it.
---@param row table  {text, fps, score_vmafmotion}
---@param fps_max number|nil
---@param vmaf boolean  tell the motion score
---@return string
function opensora20.caption(row, fps_max, vmaf)
  local said, fps = {}, opensora20.rate(row.fps, fps_max)
  if fps ~= 0 and (fps_max or 999999999) < 999 then
    said[1] = printed(fps) .. " FPS"
  end
  local score = row.score_vmafmotion
  if vmaf and score and score == score then
    said[#said + 1] = ("%d motion score"):format(math.floor(score + 0.5))
  end
  return row.text .. (#said > 0 and " " .. table.concat(said, ", ") .. "." or "")
end

--- A prompt as the encoders see it when a video is rendered.
---@param text string
---@param fps integer
---@param motion? integer|string
---@return string
function opensora20.prompt(text, fps, motion)
  text = text:match("^%s*(.-)%s*$")
  text = text:sub(-1) == "." and text or text .. "."
  if not text:find("%d+ FPS%.$") then
    text = ("%s %d FPS."):format(text, fps)
  end
  return motion and ("%s %s motion score."):format(text, motion) or text
end

--- Frames that a sample takes, from 0.
---@param frames integer      of the clip
---@param count integer       wanted
---@param interval integer
---@param start integer       of the possible ones
---@return integer[]|nil  nil: the clip is too short
function opensora20.frames(frames, count, interval, start)
  local last, out = math.min(start + count * interval, frames) - 1, {}
  if last + 1 - start < count then
    return nil
  end
  for i = 0, count - 1 do
    out[i + 1] = count == 1 and start or math.floor(start + i * ((last - start) / (count - 1)))
  end
  return out
end

--- The last frame at which a clip may begin.
function opensora20.last_start(frames, count, interval)
  return math.max(0, frames - count * interval - 1)
end

local Rule = {}
Rule.__index = Rule

--- A bucket rule.
---@param bucket_config table[]  {name, {{frames, {p or {keep, skip}, batch}}}}, as in the recipe
---@param given table            fps_max, seed; grid 16
---@return table rule  buckets: all resolutions, large to small; count
function opensora20.rule(bucket_config, given)
  local rule = setmetatable({ fps_max = given.fps_max, seed = given.seed, buckets = {}, count = 0 },
    Rule)
  for place, entry in ipairs(bucket_config) do
    local resolution = aspects.resolution(entry[1], given.grid)
    resolution.place, resolution.lengths = place, {}
    for i, row in ipairs(entry[2]) do
      resolution.lengths[i] = { frames = row[1], p = row[2][1], batch = row[2][2] }
    end
    table.sort(resolution.lengths, function(a, b) return a.frames > b.frames end)
    rule.count = rule.count + #resolution.lengths * #resolution.aspects
    rule.buckets[place] = resolution
  end
  table.sort(rule.buckets, function(a, b)
    if a.pixels ~= b.pixels then
      return a.pixels > b.pixels
    end
    return a.place < b.place
  end)
  return rule
end

-- the length of a resolution that takes a clip of so many frames
local function length_of(resolution, frames, draw)
  for _, length in ipairs(resolution.lengths) do
    local p = length.p
    if frames == 1 and length.frames == 1 then
      return draw() < p and length or nil
    elseif frames ~= 1 and length.frames ~= 1 and frames >= length.frames then
      local keep, skip = p, 0
      if type(p) == "table" then
        keep, skip = p[1], p[2]
      end
      local passed = type(p) == "table" and (skip >= 1 or draw() <= skip)
      if not passed then
        return (keep >= 1 or draw() <= keep) and length or nil
      end
    end
  end
end

--- The bucket of a sample in an epoch, or nil.
---@param sample table   frames, height, width, fps
---@param row integer    from 0: it seeds the draws
---@param epoch integer
---@param draws? number[]  gets every number that is drawn
---@return table|nil bucket  {resolution, frames, aspect, height, width, batch}
function Rule:assign(sample, row, epoch, draws)
  local generator
  local function draw()
    generator = generator or generators.numpy(self.seed + epoch + row * self.count)
    local u = generator:random()
    if draws then
      draws[#draws + 1] = u
    end
    return u
  end
  local _, interval = opensora20.rate(sample.fps, self.fps_max)
  local frames, pixels = sample.frames // interval, sample.height * sample.width
  for _, resolution in ipairs(self.buckets) do
    local length = pixels >= 0.8 * resolution.pixels and length_of(resolution, frames, draw)
    if length then
      local size = aspects.nearest(resolution.aspects, sample.height, sample.width)
      return { resolution = resolution.name, frames = length.frames, aspect = size.name,
        height = size.height, width = size.width, batch = length.batch }
    end
  end
end

-- rows by bucket, in the order in which the buckets come first
local function group(rule, samples, epoch)
  local groups, by = {}, {}
  for row, sample in ipairs(samples) do
    local bucket = rule:assign(sample, row - 1, epoch)
    if bucket then
      local name = ("%s %d %s"):format(bucket.resolution, bucket.frames, bucket.aspect)
      local g = by[name]
      if not g then
        g = { bucket = bucket, rows = {}, taken = 0 }
        by[name], groups[#groups + 1] = g, g
      end
      g.rows[#g.rows + 1] = row - 1
    end
  end
  return groups
end

local function permuted(list, generator)
  local out = {}
  for i, place in ipairs(generator:permutation(#list)) do
    out[i] = list[place + 1]
  end
  return out
end

-- whole batches of each group: the tail is cut, or filled from the front
local function fill(g, drop_last)
  local size, n = g.bucket.batch, #g.rows
  local over = n % size
  if over > 0 and drop_last then
    table.move({}, 1, over, n - over + 1, g.rows)
  elseif over > 0 then
    table.move(g.rows, 1, math.min(size - over, n), n + 1)
  end
end

--- Batches of an epoch, for all ranks.
---@param samples table[]  as Rule:assign takes them
---@param given table      epoch, shuffle, drop_last, ranks
---@return table epoch  batches: one of each rank in turn, {"row-frames-height-width"}; length: what
---   the reference says of it, for one rank
function Rule:batches(samples, given)
  local groups, accesses = group(self, samples, given.epoch), {}
  local generator, length = generators.torch(self.seed + given.epoch), 0
  for _, g in ipairs(groups) do
    length = length + #g.rows // g.bucket.batch
    fill(g, given.drop_last)
    g.rows = given.shuffle and permuted(g.rows, generator) or g.rows
    for _ = 1, #g.rows // g.bucket.batch do
      accesses[#accesses + 1] = g
    end
  end
  accesses = given.shuffle and permuted(accesses, generator) or accesses
  local over = #accesses % given.ranks
  if over > 0 and given.drop_last then
    table.move({}, 1, over, #accesses - over + 1, accesses)
  elseif over > 0 then
    table.move(accesses, 1, given.ranks - over, #accesses + 1)
  end
  local batches = {}
  for i, g in ipairs(accesses) do
    local b, batch = g.bucket, {}
    for k = 1, b.batch do
      local row = g.rows[g.taken + k]
      batch[k] = row and ("%d-%d-%d-%d"):format(row, b.frames, b.height, b.width)
    end
    g.taken, batches[i] = g.taken + b.batch, batch
  end
  return { batches = batches, length = length // given.ranks }
end

return opensora20
