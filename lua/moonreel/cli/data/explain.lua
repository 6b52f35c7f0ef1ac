--- moonreel data explain: what becomes of an index under a recipe, and of one sample.
-- @module moonreel.cli.data.explain
local target = require "moonreel.cli.target"

local columns = { { key = "resolution" }, { key = "frames", right = true },
  { key = "height", right = true }, { key = "width", right = true },
  { key = "batch", right = true }, { key = "samples", right = true },
  { key = "batches", right = true } }

local function whole(settings, index, opts)
  local survey = require("moonreel.plan").survey(settings, index, opts.epoch or 0)
  local samples, batches = 0, 0
  for _, b in ipairs(survey.buckets) do
    b.batches = -(-b.samples // b.batch)
    samples, batches = samples + b.samples, batches + b.batches
  end
  if opts.json then
    survey.samples, survey.batches = samples, batches
    print(require("moonreel.core.json").encode(survey, { indent = 2 }))
    return
  end
  io.write(require("moonreel.text.table").text(columns, survey.buckets))
  print(("epoch %d: %d of %d rows in %d batches"):format(opts.epoch or 0, samples, #index, batches))
  for _, one in ipairs(survey.dropped) do
    print(("  %d rows: %s; row %d is one: %s"):format(one.rows, one.why, one.example, one.file))
  end
end

local function one(settings, index, opts)
  local row = target.row(index, opts.why_not)
  local asked, bucket = require("moonreel.data.order").asked(settings, row, opts.epoch or 0)
  if opts.json then
    local json = require "moonreel.core.json"
    print(json.encode({ row = row.id + 1, key = row.key, file = row.file, asked = json.array(asked),
      bucket = bucket or json.null }, { indent = 2 }))
    return
  end
  print(("row %d, %s: %d frames, %d x %d, %.6g fps"):format(row.id + 1, row.file, row.frames,
    row.height, row.width, row.fps))
  io.write(require("moonreel.text.table").text({ { key = "resolution" },
    { key = "frames", right = true }, { key = "says" } }, asked))
  print(bucket and ("epoch %d: enters %s, %d frames of %d x %d"):format(opts.epoch or 0,
    bucket.resolution, bucket.frames, bucket.height, bucket.width)
    or ("epoch %d: enters no bucket"):format(opts.epoch or 0))
end

return {
  words = "RECIPE|RUN [--why-not ID]",
  summary = "which buckets take an index's samples, and what drops the others, or one of them",
  overrides = true,
  options = {
    { "--why-not ID", "one sample: its row from 1, key or path" },
    { "--epoch N", "probabilities are drawn anew in each (default: 0)", least = 0 },
    { "--data NAME.mrx", "the index (default: dataset.data_path)" },
    { "--stage NAME", "of a recipe that has stages" },
  },
  run = function(opts, parsed, name)
    local settings = target.settings(parsed, name, opts.stage)
    local index <close> = target.index(settings, opts.data)
    if opts.why_not then
      one(settings, index, opts)
    else
      whole(settings, index, opts)
    end
    return 0
  end,
}
