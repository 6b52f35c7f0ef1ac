--- The loss of given weights at fixed times, bucket by bucket: for every sample of the index that a
-- bucket can take, or for the held-back samples (dataset.hold_back). There are no masks and no
-- dropped captions; each sample is measured at all of the times, or at one of them in turn. Ref:
-- opensora-1.2.md 9.2; Esser et al. 2024, arXiv:2403.03206, section 5.1.
-- @module moonreel.job.eval_loss
local E = require "moonreel.core.exec"
local blame = require "moonreel.settings.blame"
local feed = require "moonreel.trainer.feed"
local eval_times = require "moonreel.settings.eval_times"
local json = require "moonreel.core.json"
local pipeline = require "moonreel.models.pipeline"
local plan = require "moonreel.plan"
local printer = require "moonreel.text.table"
local program = require "moonreel.trainer.program"
local programs = require "moonreel.trainer.programs"
local sample = require "moonreel.sample"
local samples = require "moonreel.trainer.samples"
local work = require "moonreel.job.work"

local eval_loss = {}

-- loads the weights of ckpt_path, ready for the forward pass
local function open_weights(r)
  local s = r.settings
  if pipeline.reconstructs(s) then
    blame.raise(s, "model.type", "MR_E_RECIPE", "model.type = %s is an autoencoder, whose loss has "
      .. "no times; try: job = reconstruct", s.model.type)
  elseif not s.ckpt_path then
    blame.raise(s, "ckpt_path", "MR_E_USAGE", "ckpt_path is not set: job = eval_loss measures "
      .. "the loss of its weights; try: --ckpt-path RUN")
  end
  r.weights = r:keep(blame.field(s, "ckpt_path", sample.open, s.ckpt_path, { settings = s,
    ema = s.eval_ema, outputs = s.outputs }))
  local config = program.config(s)
  config.forward = true
  local pipe, exec = r.weights.pipe, r.weights.exec
  local plans = r:keep(E.plan(pipe.params, { facts = r.weights.device:facts() }))
  r.programs = programs.new(exec, plans, pipe, { most_bytes = s.programs_bytes, config = config })
  r.feed = feed.new(s, pipe, { codec = pipe.autoencoder.apart and r.weights.codec or nil,
    plain = true })
end

-- runs a batch whose samples have the times with these numbers, and adds the losses of the samples
-- that could be read
local function run_at(r, micro, input, row, numbers)
  for b, i in ipairs(numbers) do
    input.t[b] = r.times[i]
  end
  micro:run(input)
  for b, loss in ipairs(micro.prog:get("per_sample"):totable()) do
    if input.weight[b] > 0 then
      local i = numbers[b]
      row.sums[i], row.squares[i] = row.sums[i] + loss, row.squares[i] + loss * loss
      row.counts[i] = row.counts[i] + 1
    end
  end
end

-- adds a batch, each sample at the next of the times
local function add_in_turn(r, micro, input, row)
  local numbers = {}
  for b, weight in ipairs(input.weight) do
    numbers[b] = row.samples % #r.times + 1
    row.samples = row.samples + (weight > 0 and 1 or 0)
  end
  input.epoch = 1
  run_at(r, micro, input, row, numbers)
end

-- adds a batch at every time; draws of noise differ from time to time
local function add_to_all(r, micro, input, row)
  for i in ipairs(r.times) do
    local numbers = {}
    for b = 1, #input.t do
      numbers[b] = i
    end
    input.epoch = i
    run_at(r, micro, input, row, numbers)
  end
  for _, weight in ipairs(input.weight) do
    row.samples = row.samples + (weight > 0 and 1 or 0)
  end
end

local function add_batch(r, batch, row)
  local shape = r.feed:shape { frames = batch.frames, height = batch.height, width = batch.width,
    batch = batch.size }
  local micro, input = r.programs:get(shape), r.feed:prepare(batch, shape)
  local add = r.settings.eval_in_turn and add_in_turn or add_to_all
  add(r, micro, input, row)
end

-- the mean over samples at each time with its standard error, json.null for a single sample; and
-- the mean of all times
local function finish(r, row)
  local sum = 0
  for i, n in ipairs(row.counts) do
    if n == 0 then
      blame.raise(r.settings, "eval_in_turn", "MR_E_DATA", "eval_in_turn: there are %d samples "
        .. "of %s for %d times; try: eval_in_turn = false", row.samples // 1, row.bucket, #r.times)
    end
    local mean = row.sums[i] / n
    local variance = math.max(row.squares[i] / n - mean * mean, 0)
    row.losses[i], row.errors[i] = mean, n > 1 and math.sqrt(variance / (n - 1)) or json.null
    sum = sum + mean
  end
  row.loss, row.counts, row.sums, row.squares = sum / #r.times, nil, nil, nil
  return row
end

-- measures one bucket over the whole index, or over the first `steps` batches; nil: no sample
-- enters it
local function measure(r, resolution, frames, batch_size)
  local row = { bucket = ("%s, %d frames"):format(resolution, frames), resolution = resolution,
    frames = frames, batch = batch_size, samples = 0, losses = {}, errors = {}, sums = {},
    squares = {}, counts = {} }
  for i in ipairs(r.times) do
    row.sums[i], row.squares[i], row.counts[i] = 0, 0, 0
  end
  local loader <close> = samples.open_loader(r, { epochs = 1, allow_empty_buckets = true,
    bucket_config = { [resolution] = { [frames] = { 1.0, batch_size } } } }, true)
  local batches, batch = 0, loader:next()
  while batch do
    add_batch(r, batch, row)
    loader:release(batch)
    batches = batches + 1
    batch = batches ~= r.settings.steps and loader:next() or nil
  end
  return row.samples > 0 and finish(r, row) or row
end

-- reports a bucket without samples in the index, and leaves it out
local function try(r, resolution, frames, batch_size)
  local good, row = pcall(measure, r, resolution, frames, batch_size)
  if good then
    return row.samples > 0 and row or nil
  elseif tostring(row):find("no sample fits any bucket", 1, true) then
    r.progress:say(("%s, %d frames: no sample of the index enters it"):format(resolution, frames))
    return nil
  end
  error(row, 0)
end

-- a mean and its standard error as text
local function shown(loss, error)
  return ("%.4f%s"):format(loss, error ~= json.null and ("±%.4f"):format(error) or "")
end

local function columns_of(times)
  local columns = { { key = "bucket" }, { key = "batch", right = true },
    { key = "samples", right = true, format = function(n) return ("%d"):format(n) end },
    { key = "loss", right = true, format = function(x) return ("%.4f"):format(x) end } }
  for i, t in ipairs(times) do
    columns[#columns + 1] = { key = "t" .. i, title = ("t=%.1f"):format(t), right = true }
  end
  return columns
end

local function tell(r, rows)
  for _, row in ipairs(rows) do
    for i, loss in ipairs(row.losses) do
      row["t" .. i] = shown(loss, row.errors[i])
    end
  end
  for line in printer.text(columns_of(r.times), rows):gmatch("[^\n]+") do
    r.progress:say(line)
  end
end

-- the results as JSON
local function encoded(r, rows)
  local list = json.array()
  for i, row in ipairs(rows) do
    list[i] = { resolution = row.resolution, frames = row.frames, batch = row.batch,
      samples = math.tointeger(row.samples), loss = row.loss, losses = json.array(row.losses),
      errors = json.array(row.errors) }
  end
  return json.encode({ weights = r.weights.path, step = r.weights.step, seed = r.settings.seed,
    index = r.index.meta.fp_set, times = json.array(r.times), buckets = list }, { indent = 2 })
end

-- the rows of all buckets with samples
local function measure_all(r)
  open_weights(r)
  r:open_index(true)
  for _, note in ipairs(r.notes) do
    r.progress:say(note)
  end
  local rows = {}
  for _, resolution in ipairs(plan.resolutions(r.settings)) do
    for _, length in ipairs(resolution.lengths) do
      local frames, keep, tries, batch = table.unpack(length)
      if keep * tries > 0 and batch > 0 then
        rows[#rows + 1] = try(r, resolution.name, frames, batch)
      end
    end
  end
  return rows
end

-- the rows; nil and the exit code after a signal
local function rows_of(r)
  r:refuse { "cached", "load_video_features", "load_text_features", "mask_ratios" }
  r.times = eval_times(r.settings)
  local rows, stop = r:until_stopped(measure_all)
  if rows and #rows == 0 then
    blame.raise(r.settings, "bucket_config", "MR_E_DATA", "no sample of %s enters any bucket",
      r.index.meta.path)
  end
  return rows, stop
end

--- Measures the loss of ckpt_path's weights on the samples that dataset.hold_back excludes, or on
-- all samples if there are none.
---@param settings table  as in eval_loss.run
---@param given table     write
---@return table[]|nil rows  {resolution, frames, batch, samples, loss, losses, errors}: losses by
---   time with their standard errors (json.null for one sample); nil: a signal came
---@return number[] times    of the losses
function eval_loss.measure(settings, given)
  local r <close> = work.new(settings, given)
  local rows = rows_of(r)
  return rows, r.times
end

--- Measures and prints the loss of ckpt_path's weights.
---@param settings table  baked; steps: batches of each bucket, 0: all
---@param given table     write
---@return integer exit code
---@return table facts    rows from eval_loss.measure; path of the file
function eval_loss.run(settings, given)
  local r <close> = work.new(settings, given)
  local rows, stop = rows_of(r)
  if stop then
    return stop
  end
  tell(r, rows)
  local path = r:save("eval_loss.json", encoded(r, rows) .. "\n")
  r.progress:say("written: " .. path)
  return 0, { rows = rows, path = path }
end

return eval_loss
