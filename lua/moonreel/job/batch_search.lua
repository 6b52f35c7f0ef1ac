--- Searches by trial for the batch of each bucket whose step takes just less than a given time, or
-- than the step of one bucket. A trial runs whole training steps of that bucket only. A batch whose
-- layout does not fit is not tried. Ref: opensora-1.2.md 9.2.
-- @module moonreel.job.batch_search
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local bench = require "moonreel.core.bench"
local blame = require "moonreel.settings.blame"
local feed = require "moonreel.trainer.feed"
local json = require "moonreel.core.json"
local largest = require "moonreel.trainer.largest"
local loop = require "moonreel.trainer.loop"
local predict = require "moonreel.trainer.predict"
local optim = require "moonreel.optim"
local plan = require "moonreel.plan"
local printer = require "moonreel.text.table"
local program = require "moonreel.trainer.program"
local programs = require "moonreel.trainer.programs"
local progress = require "moonreel.trainer.progress"
local samples = require "moonreel.trainer.samples"
local setup = require "moonreel.trainer.setup"
local solve = require "moonreel.plan.solve"
local spikes = require "moonreel.trainer.spikes"
local work = require "moonreel.job.work"

local batch_search = {}

-- steps of a trial: warm-up steps, and measured steps
local WARM, TIMED = 5, 5

-- the objects of one trial, in addition to those that all share
local Trial = {}

function Trial.__close(trial)
  for _, micro in ipairs(trial.programs and trial.programs:list() or {}) do
    micro:close()
  end
  for i = #trial.kept, 1, -1 do
    trial.kept[i]:close()
  end
end

local function keep(trial, object)
  trial.kept[#trial.kept + 1] = object
  return object
end

-- a run of one bucket, ready to step; its journal is a list of lines
local function open_trial(r, bucket, batch)
  local lines = {}
  local trial = setmetatable({ kept = {}, keep = keep, lines = lines, notes = {}, dir = "a trial",
    micros = r.settings.accumulate, step = 0, updates = 0, failed = 0, bad = 0, recent = {},
    spikes = spikes.new(r.settings.spike),
    began_bytes = bench.resident(),
    progress = progress.new(0, math.huge, function() end),
    journal = { append = function(_, line) lines[#lines + 1] = line end },
    lock = { id = function() return "" end, fence = function() return 0 end },
    lr_at = function() return r.settings.optim.lr end },
    { __index = r, __close = Trial.__close })
  local good, problem = pcall(function()
    trial.loader = trial:keep(samples.open_loader(r, { epochs = 0, bucket_config = {
      [bucket.resolution] = { [bucket.frames] = { 1.0, batch } } } }, true))
    trial.plan = trial.loader:plan()
    trial.feed = feed.new(r.settings, r.pipe, { codec = r.codec })
    predict.run(trial)
    for _, shape in ipairs(trial.plan.buckets) do
      trial.programs:get(trial.feed:shape(shape))
    end
  end)
  if not good then
    Trial.__close(trial)
    error(problem, 0)
  end
  return trial
end

-- seconds of a step, without waits for data
local function seconds_of(r, bucket, batch)
  local trial <close> = open_trial(r, bucket, batch)
  local sum, n = 0, 0
  for i = 1, WARM + TIMED do
    loop.step(trial)
    local line = trial.lines[#trial.lines]
    if i > WARM then
      sum, n = sum + line.time_s - line.data_wait_s, n + 1
    end
  end
  return sum / n
end

--- Measures a batch of a bucket; a program with another way to search may replace this function.
---@param r mr.Work
---@param bucket table    resolution, frames
---@param batch integer
---@return number seconds
batch_search.measure = seconds_of

-- seconds of a batch; nil if it does not fit into memory
local function measure(r, bucket, batch)
  local good, seconds = pcall(batch_search.measure, r, bucket, batch)
  collectgarbage()
  if not good and (type(seconds) ~= "table" or seconds.code ~= "MR_E_MEMORY") then
    error(seconds, 0)
  end
  r.progress:say(("%s, %d frames, batch %d: %s"):format(bucket.resolution, bucket.frames, batch,
    good and ("%.4f s a step"):format(seconds) or "does not fit"))
  return good and seconds or nil
end

-- The largest batch that fits into the free memory, by the layout of the largest aspect.
local function largest_fitting(r, bucket, high)
  local biggest
  for _, aspect in ipairs(bucket.aspects) do
    local _, height, width = table.unpack(aspect)
    if not biggest or height * width > biggest.height * biggest.width then
      biggest = { frames = bucket.frames, height = height, width = width }
    end
  end
  local function takes(batch)
    biggest.batch = batch
    return r.planner:takes(r.shapes:shape(biggest))
  end
  local free = (r.device:memory())
  if takes(high) <= free then
    return high
  end
  return largest(takes, free, high // 2, high - 1)
end

-- the largest batch between two whose step takes less than a time; 0, 0 if there is none
local function search(r, bucket, low, high, limit)
  local best, seconds, fits = 0, 0, largest_fitting(r, bucket, high)
  if fits < high then
    r.progress:say(("%s, %d frames: at most a batch of %d fits"):format(bucket.resolution,
      bucket.frames, fits))
    high = fits
  end
  while low <= high do
    local batch = (low + high) // 2
    local took = measure(r, bucket, batch)
    if took and took < limit then
      best, seconds, low = batch, took, batch + 1
    else
      high = batch - 1
    end
  end
  return best, seconds
end

-- the buckets of the recipe with the ranges of their batches
local function bounds_of(s)
  local list, spread = {}, s:plain("batch_search.spread") or {}
  for _, resolution in ipairs(plan.resolutions(s)) do
    for _, length in ipairs(resolution.lengths) do
      local frames, keep_share, tries, batch = table.unpack(length)
      local of = spread[resolution.name] and spread[resolution.name][frames] or 0
      if keep_share * tries > 0 and batch > 0 then
        list[#list + 1] = { resolution = resolution.name, frames = frames, was = batch,
          aspects = resolution.aspects,
          low = math.max(batch - of, 1), high = batch + of }
      end
    end
  end
  return list
end

-- the bucket that sets the time
local function base_of(s, list)
  local wanted = s:plain("batch_search.base")
  for _, bucket in ipairs(wanted and list or {}) do
    if bucket.resolution == wanted[1] and tostring(bucket.frames) == wanted[2] then
      return bucket
    end
  end
  blame.raise(s, "batch_search.base", "MR_E_RECIPE", wanted
    and "batch_search.base: bucket_config has no bucket %s, %s frames"
    or "batch_search: base or step_time has to set the time of a step, and neither is set; try: "
    .. "batch_search.step_time = 12", wanted and wanted[1], wanted and wanted[2])
end

-- a bucket without samples in the index is printed as 0, 0
local function without_data(r, bucket, f)
  local good, problem = pcall(f)
  if good then
    return
  elseif not tostring(problem):find("no sample fits", 1, true) then
    error(problem, 0)
  end
  bucket.batch, bucket.seconds = 0, 0
  r.progress:say(("%s, %d frames: no sample of the index enters it"):format(bucket.resolution,
    bucket.frames))
end

-- finds batch and seconds of each bucket to search; the others stay unchanged
local function search_all(r, list)
  local s, limit = r.settings, r.settings.batch_search.step_time
  local of_base = not limit and base_of(s, list) or nil
  if of_base then
    of_base.batch, of_base.seconds = search(r, of_base, of_base.low, of_base.high, math.huge)
    limit = of_base.seconds
    r.progress:say(("a step may take %.4f s"):format(limit))
  end
  for _, bucket in ipairs(list) do
    if bucket ~= of_base and bucket.low < bucket.high then
      without_data(r, bucket, function()
        bucket.batch, bucket.seconds = search(r, bucket, bucket.low, bucket.high, limit)
      end)
    end
  end
  return limit
end

local function tell(r, list)
  local rows, solved = {}, {}
  for _, bucket in ipairs(list) do
    if bucket.batch then
      rows[#rows + 1] = bucket
    end
    if (bucket.batch or 0) > 0 then
      solved[#solved + 1] = { bucket = bucket, batch = bucket.batch }
    end
  end
  local text = printer.text({ { key = "resolution" }, { key = "frames", right = true },
    { key = "was", right = true }, { key = "batch", title = "batch size", right = true },
    { key = "seconds", title = "step time", right = true,
      format = function(x) return ("%.4f"):format(x) end } }, rows)
  for line in (text .. solve.table_text(r, solved)):gmatch("[^\n]+") do
    r.progress:say(line)
  end
  return rows
end

-- opens models, data and a planner; then finds the time of a step, and a batch for each bucket
local function search_with_models(r, list)
  local s = r.settings
  setup.models(r)
  setup.state(r)
  r.exec:init(s.seed)
  r.update = optim.new(r.exec, r.pipe.params, nil, nil, {rule = r.rule})
  r.shapes = feed.new(s, r.pipe)
  r.planner = programs.new(r.exec, r:keep(E.plan(r.pipe.params, { regions = r.regions,
    facts = r.facts })), r.pipe, { most_bytes = 0, config = program.config(s, nil, nil, r.fresh) })
  r:open_index()
  return search_all(r, list)
end

--- Searches the batches of a recipe.
---@param settings table  baked; batch_search, and guesses in bucket_config
---@param given table     write
---@return integer exit code
---@return table facts    rows {resolution, frames, was, batch, seconds}, path of the file
function batch_search.run(settings, given)
  local r <close> = work.new(settings, given)
  r:refuse { "cached", "load_video_features", "load_text_features", "ckpt_path", "load" }
  local list = bounds_of(settings)
  if not settings.batch_search.step_time then
    base_of(settings, list)
  end
  local limit, stop = r:until_stopped(function() return search_with_models(r, list) end)
  if stop then
    return stop
  end
  local rows = json.array()
  for i, bucket in ipairs(tell(r, list)) do
    rows[i] = { resolution = bucket.resolution, frames = bucket.frames, was = bucket.was,
      batch = bucket.batch, seconds = bucket.seconds }
  end
  local path = r:save("batch_search.json", json.encode({ step_time = limit, buckets = rows,
    device = r.facts.device, threads = r.facts.threads, wall = base.wall_s() },
    { indent = 2 }) .. "\n")
  r.progress:say("written: " .. path)
  return 0, { rows = rows, path = path }
end

return batch_search
