--- moonreel data explain: how a recipe uses the samples of an index, or one sample.
-- @module moonreel.cli.data.explain
local target = require "moonreel.cli.target"

local columns = { { key = "resolution" }, { key = "frames", right = true },
  { key = "height", right = true }, { key = "width", right = true },
  { key = "batch", right = true }, { key = "samples", right = true },
  { key = "batches", right = true } }

-- counts of one index in an epoch, with their sums
local function survey_of(settings, source, opts)
  local survey = require("moonreel.plan").survey(settings, source.index, opts.epoch or 0,
    source.members)
  survey.source = source.name ~= "" and source.name or nil
  survey.samples, survey.batches = 0, 0
  for _, b in ipairs(survey.buckets) do
    b.batches = -(-b.samples // b.batch)
    survey.samples, survey.batches = survey.samples + b.samples, survey.batches + b.batches
  end
  return survey
end

local function show(survey, opts)
  if survey.source then
    print(("source %s, %s"):format(survey.source, survey.index))
  end
  io.write(require("moonreel.text.table").text(columns, survey.buckets))
  print(("epoch %d: %d of %d rows in %d batches"):format(opts.epoch or 0, survey.samples,
    survey.rows, survey.batches))
  for _, one in ipairs(survey.dropped) do
    print(("  %d rows: %s; for example row %d: %s"):format(one.rows, one.why, one.example,
      one.file))
  end
end

local function whole(settings, list, opts)
  local surveys = {}
  for _, source in ipairs(list) do
    if not opts.source or source.name == opts.source then
      surveys[#surveys + 1] = survey_of(settings, source, opts)
    end
  end
  if #surveys == 0 then
    target.source(list, opts.source)
  elseif opts.json then
    print(require("moonreel.core.json").encode(#surveys > 1 and surveys or surveys[1],
      { indent = 2 }))
    return
  end
  for _, survey in ipairs(surveys) do
    show(survey, opts)
  end
end

local function one(settings, list, opts)
  local source, row = target.source(list, opts.source, opts.why_not)
  local asked, bucket = {}, nil
  local outside = source.members and not source.members:has(row.id + 1)
  if not outside then
    asked, bucket = require("moonreel.data.order").asked(settings, row, opts.epoch or 0)
  end
  if opts.json then
    local json = require "moonreel.core.json"
    print(json.encode({ row = row.id + 1, key = row.key, file = row.file, asked = json.array(asked),
      bucket = bucket or json.null }, { indent = 2 }))
    return
  end
  print(("row %d, %s: %d frames, %d x %d, %.6g fps"):format(row.id + 1, row.file, row.frames,
    row.height, row.width, row.fps))
  if outside then
    print(("outside the quantiles of source %s"):format(source.name))
    return
  end
  io.write(require("moonreel.text.table").text({ { key = "resolution" },
    { key = "frames", right = true }, { key = "says" } }, asked))
  print(bucket and ("epoch %d: enters %s, %d frames of %d x %d"):format(opts.epoch or 0,
    bucket.resolution, bucket.frames, bucket.height, bucket.width)
    or ("epoch %d: enters no bucket"):format(opts.epoch or 0))
end

return {
  words = "RECIPE|RUN [--why-not ID]",
  summary = "show which buckets take an index's samples and which rules drop the others; also for "
    .. "one sample",
  overrides = true,
  options = {
    { "--why-not ID", "explain one sample: its row, counted from 1, its key or its path" },
    { "--epoch N", "epoch whose probabilities are drawn (default: 0)", least = 0 },
    { "--source NAME", "one of dataset.sources" },
    { "--data NAME.mrx", "the index (default: dataset.data_path, or dataset.sources)" },
    { "--stage NAME", "one stage of a recipe with stages" },
  },
  run = function(opts, parsed, name)
    local settings = target.settings(parsed, name, opts.stage)
    local list <close> = target.sources(settings, opts.data)
    if opts.why_not then
      one(settings, list, opts)
    else
      whole(settings, list, opts)
    end
    return 0
  end,
}
