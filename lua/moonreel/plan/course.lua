--- The course of a whole run: steps of each epoch, hours, cost, disk, saves and failures. Ref:
-- reference reliability 3.6, plan 6; dataplane 4.5 for ranks that wait for each other.
-- @module moonreel.plan.course
local cadence = require "moonreel.trainer.cadence"
local ckpt = require "moonreel.ckpt"
local hazards = require "moonreel.plan.hazards"
local published = require "moonreel.plan.published"
local simulate = require "moonreel.plan.simulate"

local course = {}

local MOST_LOST_S = 600      -- default limit of the work that a failure loses

---@class moonreel.plan.Course
---@field from string        where the number of steps comes from
---@field epochs integer[]   steps of each counted epoch
---@field steps integer      optimizer steps of the run
---@field step_s number      of the average step
---@field hours number
---@field gpu_hours number
---@field cost number|nil    if the machine has a price
---@field free number        share of the speed that remains if ranks draw buckets freely, because
---   the slowest of a step decides
---@field samples_s number   samples per second that all ranks read from the store
---@field checkpoint_bytes integer
---@field disk_bytes integer kept at the same time; of a job that writes clips: all of its files
---@field clips integer|nil  of a job that writes clips: their number
---@field save_s number      until a save is in the store
---@field interval_s number  suggested time between saves, and in `interval` steps: sqrt(2 save_s
---   M), with M the time between failures (Young 1974), at most ten minutes and at least one save
---@field failures number    expected number, and `lost_hours`: half an interval each, the save in
---   progress, the restart
---@field drawn moonreel.plan.Hazards|nil  one random simulation of the run

-- micro-batches of one epoch by the name of their bucket, and in all
local function batches_of(survey)
  local by, all = {}, 0
  for _, b in ipairs(survey.buckets) do
    local key, n = b.resolution .. " " .. b.frames, -(-b.samples // b.batch)
    by[key], all = (by[key] or 0) + n, all + n
  end
  return by, all
end

-- each bucket's share of all micro-batches: by the index, or the same for all
local function weights_of(p, survey)
  local weights, by, all = {}, {}, #p.buckets
  if survey then
    by, all = batches_of(survey)
  end
  for i, b in ipairs(p.buckets) do
    weights[i] = (survey and by[b.resolution .. " " .. b.frames] or 1) / all
  end
  return weights
end

-- The expected longest of n draws of a step's seconds, divided by the mean.
local function longest(p, weights, mean, n)
  local order = {}
  for i, b in ipairs(p.buckets) do
    order[i] = { seconds = b.seconds.step, weight = weights[i] }
  end
  table.sort(order, function(a, b) return a.seconds < b.seconds end)
  local below, before, expected = 0, 0, 0
  for i, one in ipairs(order) do
    below = i == #order and 1 or below + one.weight
    expected, before = expected + one.seconds * (below ^ n - before), below ^ n
  end
  return expected / mean
end

-- Micro-batches of each counted epoch. With tail = "carry" samples that do not fill a micro-batch
-- are trained in the next epoch, those of the last epoch in a short one.
local function batches_of_epochs(surveys, settings)
  local list, left = {}, {}
  for e, survey in ipairs(surveys) do
    list[e] = 0
    for _, b in ipairs(survey.buckets) do
      local key = ("%s %s %s %s"):format(b.resolution, b.frames, b.height, b.width)
      local samples, carries = b.samples + (left[key] or 0), settings.tail == "carry"
        and e ~= settings.epochs
      local batches = carries and samples // b.batch or -(-samples // b.batch)
      left[key], list[e] = carries and samples % b.batch or 0, list[e] + batches
    end
  end
  return list
end

-- Batches of a job that takes each clip once, or the first of them; the same results as below.
local function steps_of_clips(settings, survey)
  local all = survey and select(2, batches_of(survey))
  if all and (settings.steps == 0 or settings.steps >= all) then
    return all, {}, "all clips of " .. survey.index
  end
  return settings.steps > 0 and settings.steps or nil, {}, "the recipe"
end

-- Steps of the run, the steps that end in each counted epoch, and the source of the numbers. A step
-- may continue with batches of the next epoch; only the last step may be short.
local function steps_of(p, settings, surveys, stage)
  if p.writes then
    return steps_of_clips(settings, surveys and surveys[1])
  end
  local together, epochs, batches, last, steps = p.mesh:micros(settings), {}, 0, 0, 0
  for e, n in ipairs(batches_of_epochs(surveys or {}, settings)) do
    last, batches = n, batches + n
    epochs[e] = -(-batches // together) - steps
    steps = steps + epochs[e]
  end
  -- an extraction goes through all different epochs, whatever the number of training steps
  local extracts = settings.job == "extract"
  local passes = extracts and settings.dataset.draw_epochs > 0
    and math.min(settings.dataset.draw_epochs, settings.epochs) or settings.epochs
  if settings.steps > 0 and not extracts then
    return settings.steps, epochs, "the recipe"
  elseif #epochs > 0 then
    -- later epochs have the length of the last counted one
    steps = -(-(batches + last * math.max(0, passes - #epochs)) // together)
    return steps, epochs, ("%d epochs of %s"):format(passes, surveys[1].index)
  end
  local known = published.steps(settings, stage)
  return known, epochs, known and published.STEPS_SOURCE
end

-- how often to save, what failures cost, and one random simulation of the run
local function add_failures(c, p, given)
  local m, ranks = p.mesh.machine, p.mesh.ranks
  if m.cpu then
    return
  end
  local save, between_s = course.save(p), m.mtbf_gpu_hours * 3600 / ranks
  local copy_s = save.snapshot_s
  c.save_s = copy_s + save.write_s
  -- a save is in the store before the next begins
  c.interval_s = math.max(c.save_s, math.min((2 * c.save_s * between_s) ^ 0.5, MOST_LOST_S))
  c.interval = math.max(1, math.ceil(c.interval_s / c.step_s))
  c.failures = c.gpu_hours / m.mtbf_gpu_hours
  c.lost_hours = c.failures * (c.interval_s / 2 + save.write_s + m.restart_s) / 3600
  c.drawn = hazards.run { steps = c.steps, step_s = c.step_s - c.slowest_s, ranks = ranks,
    sigma = simulate.SIGMA, stall_share = given.stall_share, stall_s = given.stall_s,
    between_s = m.mtbf_gpu_hours * 3600, restart_s = m.restart_s, interval = c.interval,
    save_s = copy_s }
end

--- The cost of a save: first each rank copies its share of the state to the host while training
-- waits; then all ranks write to the store, as fast as their nodes send and the store accepts.
---@param p table  from plan.of, for GPUs
---@return table  snapshot_s, write_s
function course.save(p)
  local m, bytes = p.mesh.machine, p.saved_bytes / p.mesh.ranks
  return { snapshot_s = bytes / m.host.pcie,
    write_s = math.max(bytes * p.mesh.gpus / m.host.disk, p.saved_bytes / m.host.store) }
end

-- adds renderings; on the run's device they make it longer
local function add_renderings(c, one)
  if one then
    c.renderings = -(-c.steps // one.every)
    c.rendering_s, c.rendering_on, c.rendering_clips = one.seconds, one.on, one.clips
    c.rendering_share = one.seconds and c.renderings * one.seconds / (c.hours * 3600)
  end
end

-- The clips of a job that writes them, and the bytes of their files. The seconds are those of its
-- clips, because the last batch of a bucket may be short.
local function add_clips(c, p, survey, weights)
  local all, clips, bytes, seconds = survey and select(2, batches_of(survey)), 0, 0, 0
  for i, b in ipairs(p.buckets) do
    local n = c.steps * (all and b.samples / all or weights[i] * b.batch)
    clips, bytes, seconds = clips + n, bytes + n * b.written, seconds + n * b.seconds.step / b.batch
  end
  c.clips, c.disk_bytes = math.ceil(clips), math.ceil(bytes)
  c.step_s, c.hours, c.samples_s = seconds / c.steps, seconds / 3600, clips / seconds
end

--- The course of a run.
---@param p table          from plan.of
---@param settings table
---@param given table|nil  surveys: plan.survey of the first epochs; stage: name of the stage;
---   stall_share, stall_s: share of a rank's steps whose data come late, and by how many seconds
---@return moonreel.plan.Course|nil course  nil if the number of steps is not known
function course.of(p, settings, given)
  given = given or {}
  local steps, epochs, from = steps_of(p, settings, given.surveys, given.stage)
  if not steps then
    return nil
  end
  local survey = given.surveys and given.surveys[1]
  local weights, mean, slowest, samples = weights_of(p, survey), 0, 0, 0
  for i, b in ipairs(p.buckets) do
    mean, samples = mean + weights[i] * b.seconds.step, samples + weights[i] * b.batch
    slowest = slowest + weights[i] * b.seconds.slowest
  end
  local c = { from = from, epochs = epochs, steps = steps, step_s = mean, slowest_s = slowest,
    hours = steps * mean / 3600, checkpoint_bytes = not p.job and p.saved_bytes or nil,
    mixed = survey ~= nil,
    free = 1 / longest(p, weights, mean, p.mesh.data),
    samples_s = samples * p.mesh:micros(settings) / mean }
  if p.writes then
    add_clips(c, p, survey, weights)
  end
  c.gpu_hours = c.hours * p.mesh.ranks
  local price = p.mesh.machine.price_hour
  c.cost = price and c.gpu_hours * price
  if p.job then
    return c
  end
  c.disk_bytes = c.checkpoint_bytes * math.min(ckpt.kept(settings.keep_n_latest),
    cadence.count(settings, steps, c.hours))
  add_failures(c, p, given)
  add_renderings(c, p.renders)
  return c
end

return course
