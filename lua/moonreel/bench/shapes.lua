--- How many compiled shapes of a large model a run keeps within its bound for programs: the
-- trainer's own cache over a recipe's buckets, planned without memory for weights or activations.
-- @module moonreel.bench.shapes
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local feed = require "moonreel.trainer.feed"
local paired = require "moonreel.bench.paired"
local pipeline = require "moonreel.models.pipeline"
local plan = require "moonreel.plan"
local program = require "moonreel.trainer.program"
local programs = require "moonreel.trainer.programs"
local regions = require "moonreel.optim.regions"

local shapes = {}

shapes.recipe = "recipes/opensora-1.2/stage1"

--- At most n buckets of a recipe, one of each resolution and length after the other.
---@param settings table  baked
---@param n integer
---@return table[]        frames, height, width, batch
function shapes.buckets(settings, n)
  local list, more, k = {}, true, 0
  while more and #list < n do
    more, k = false, k + 1
    for _, r in ipairs(plan.resolutions(settings)) do
      local aspect = r.aspects[k]
      for _, length in ipairs(aspect and r.lengths or {}) do
        more = true
        list[#list + 1] = #list < n and {frames = length[1], height = aspect[2],
          width = aspect[3], batch = math.max(length[4], 1)} or nil
      end
    end
  end
  return list
end

--- Measure.
---@param settings table  baked
---@param n integer       shapes
---@return table          parameters, shapes (different ones), kept, closed, bytes (of those kept),
---   bound (programs_bytes), each_bytes (the median), seconds (in all), median_s and most_s (of
---   building and planning one, twice where room has to be made for it)
function shapes.measure(settings, n)
  local device <close> = E.device("cpu", 1)
  local dtype = settings.dtype == "fp32" and "f32" or "bf16"
  local pipe = pipeline.of(settings, dtype)
  local exec <close> = E.plan(pipe.params, {regions = regions.of(settings, nil, dtype, true,
    pipe.params),
    facts = device:facts()})
  local cache = programs.new(exec, exec, pipe, {most_bytes = settings.programs_bytes,
    config = program.config(settings, nil, nil, true)})
  local of, took, bytes, seen, began = feed.new(settings, pipe), {}, {}, {}, base.now_s()
  for _, bucket in ipairs(shapes.buckets(settings, n)) do
    local from, shape = base.now_s(), of:shape(bucket)
    if not seen[program.key(shape)] then
      seen[program.key(shape)] = true
      bytes[#bytes + 1] = cache:get(shape).bytes
      took[#took + 1] = base.now_s() - from
    end
  end
  local parameters = pipe:counts()
  return {parameters = parameters, shapes = #took, kept = #cache:list(),
    closed = #took - #cache:list(), bytes = cache.bytes, bound = settings.programs_bytes,
    each_bytes = paired.median(bytes), seconds = base.now_s() - began,
    median_s = paired.median(took), most_s = math.max(table.unpack(took))}
end

return shapes
