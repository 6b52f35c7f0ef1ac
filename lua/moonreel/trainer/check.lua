--- Refuses impossible settings before anything is opened.
-- @module moonreel.trainer.check
local base = require "moonreel.core.base"
local pipeline = require "moonreel.models.pipeline"
local blame = require "moonreel.settings.blame"
local sources = require "moonreel.settings.sources"
local cadence = require "moonreel.trainer.cadence"
local progress = require "moonreel.trainer.progress"

local check = {}

--- The name of a run: its field, else the recipe's file.
---@param s table  settings
---@return string
function check.name(s)
  local name = s.name or tostring(s.recipe):match("([^/]+)$"):gsub("%.lua$", "")
  return (name:gsub("[^%w%._%-]", "-"))
end

-- files that differ on one host, or other words, are found before anything runs
local function expect_same_recipe(r)
  r.team:same(r.settings.hash, function(theirs)
    base.raise("MR_E_RECIPE", ("the recipe has other values here (%s) than on rank 0 (%s); try: "
      .. "the same files and words on all hosts"):format(r.settings.hash, theirs))
  end)
end

--- What ranks other than the first use as a journal.
check.silent = {append = function() end, sync = function() end, close = function() end,
  waiting = function() return 0, "", 0 end}

--- Refuse a training that nothing ends.
---@param s table  settings
function check.has_end(s)
  if s.steps == 0 and s.epochs == 0 then
    blame.raise(s, "epochs", "MR_E_RECIPE", "epochs = 0 and steps = 0: nothing says when to stop; "
      .. "try: epochs = 1, or steps = 1000")
  end
end

-- batch_size is that of renderings and of job = "reconstruct": buckets of a training have their own
local function check_batches(s)
  for _, leaf in ipairs(s.batch_size and s.job ~= "reconstruct" and s:leaves() or {}) do
    local batch = leaf.keys[1] == "bucket_config" and leaf.value and leaf.value[2]
    if batch and batch ~= s.batch_size then
      blame.raise(s, "batch_size", "MR_E_RECIPE", "batch_size = %d: bucket_config has the batch of "
        .. "each bucket, %d in %s; try: no batch_size; of renderings it is sampling.batch_size",
        s.batch_size, batch, leaf.path)
    end
  end
end

-- features that were made before are those of a cache
local function check_features(s)
  if s.dataset.type == "BatchFeatureDataset" and not s.cached
      and not (s.load_video_features and s.load_text_features) then
    blame.raise(s, "dataset.type", "MR_E_RECIPE", "dataset.type = BatchFeatureDataset: features "
      .. "are those of a cache, and %s = false; try: cached = true, or dataset.type = "
      .. "VariableVideoTextDataset", s.load_video_features and "load_text_features"
      or "load_video_features")
  end
end

--- Refuse settings that nothing reads.
function check.run(r)
  local s = r.settings
  -- values of a checkpoint may be taken behind the first look at them
  r.progress = r.progress or progress.new(s.steps, s.log_every, r.team.leads and r.write
    or not r.team.leads and check.silent.append or nil)
  r.progress.total, r.progress.every = s.steps, s.log_every
  if r.dates then
    r.progress:date()
  end
  r.name = check.name(s)
  expect_same_recipe(r)
  s:require_readers()
  if s.stages then
    base.raise("MR_E_USAGE", "a recipe of stages trains by moonreel.trainer.stages; try: moonreel "
      .. "train, or bake one of them")
  end
  local function refuse(path, form, ...) blame.raise(s, path, "MR_E_RECIPE", form, ...) end
  check_batches(s)
  check_features(s)
  if not pipeline.reconstructs(s) and not (s.vae.type and s.text_encoder.type) then
    refuse(s.vae.type and "text_encoder.type" or "vae.type",
      "training needs vae.type and text_encoder.type%s; "
      .. "try: vae = { type = \"dct\" }, text_encoder = { type = \"bytes\" }",
      (s.load_video_features or s.load_text_features) and ", also with features from a cache, "
      .. "which is made by them (job = \"extract\"); files of another program are not read" or "")
  end
  if #sources.of(s) == 0 then
    refuse("dataset.data_path", "dataset.data_path is none; try: --data-path NAME.mrx")
  end
  if not s.bucket_config then
    refuse("bucket_config", "bucket_config is not set, so no clip has a bucket; try: bucket_config "
      .. "= { [\"240p\"] = { [16] = { 1.0, 4 } } }")
  end
  local unknown = require "moonreel.settings.resolutions"(s:leaves())[1]
  if unknown then
    refuse(unknown.path, "%s", unknown.text)
  end
  check.has_end(s)
  if s.spike.action == "rollback" and cadence.interval(s) == 0 then
    refuse("spike.action", "spike.action = \"rollback\" with ckpt_every = 0: there is nothing to "
      .. "go back to; try: ckpt_every = %d, or spike.action = \"skip\"",
      math.max(1, s.spike.back_steps // 2))
  end
  if s.lr_schedule == "1cycle" and not (s.min_lr and s.max_lr) then
    refuse("lr_schedule", "lr_schedule = \"1cycle\" needs min_lr and max_lr, %s is none; "
      .. "try: min_lr = 1e-5, max_lr = 1e-4", s.min_lr and "max_lr" or "min_lr")
  end
end

return check
