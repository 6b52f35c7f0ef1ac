--- Refuses impossible settings before anything is opened.
-- @module moonreel.trainer.check
local base = require "moonreel.core.base"
local buckets = require "moonreel.data.buckets"
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

-- finds files or words that differ between hosts before anything runs
local function expect_same_recipe(r)
  r.team:same(r.settings.hash, function(theirs)
    base.raise("MR_E_RECIPE", ("the recipe has other values here (%s) than on rank 0 (%s); try: "
      .. "the same recipe files and the same command on all hosts"):format(r.settings.hash, theirs))
  end)
end

--- The journal of ranks other than the first: it writes nothing.
check.silent = {append = function() end, sync = function() end, close = function() end,
  waiting = function() return 0, "", 0 end}

--- Refuses a training without an end.
---@param s table  settings
function check.has_end(s)
  if s.steps == 0 and s.epochs == 0 then
    blame.raise(s, "epochs", "MR_E_RECIPE", "epochs = 0 and steps = 0: nothing says when to stop; "
      .. "try: epochs = 1, or steps = 1000")
  end
end

--- Refuses a model that cannot encode and decode clips.
---@param s table  settings of job = "reconstruct"
function check.has_autoencoder(s)
  if not pipeline.reconstructs(s) then
    blame.raise(s, "model.type", "MR_E_RECIPE", "model.type = %s is not an autoencoder, but job = "
      .. "reconstruct encodes and decodes clips with one; try: --recipe opensora-2.0/vae/hunyuan",
      s.model.type)
  end
end

-- batch_size is for renderings and for job = "reconstruct"; training uses the batches of
-- bucket_config
local function check_batches(s)
  for _, leaf in ipairs(s.batch_size and s.job ~= "reconstruct" and s:leaves() or {}) do
    local batch = leaf.keys[1] == "bucket_config" and leaf.value and leaf.value[2]
    if batch and batch ~= s.batch_size then
      blame.raise(s, "batch_size", "MR_E_RECIPE", "batch_size = %d, but training uses the "
        .. "batches of each bucket, %d in %s; try: leave batch_size out; sampling.batch_size is "
        .. "for renderings", s.batch_size, batch, leaf.path)
    end
  end
end

-- features that were computed before come from a cache
local function check_features(s)
  if s.dataset.type == "BatchFeatureDataset" and not s.cached
      and not (s.load_video_features and s.load_text_features) then
    blame.raise(s, "dataset.type", "MR_E_RECIPE", "dataset.type = BatchFeatureDataset trains on "
      .. "features from a cache, but %s = false; try: cached = true, or dataset.type = "
      .. "VariableVideoTextDataset", s.load_video_features and "load_text_features"
      or "load_video_features")
  end
end

--- Refuses settings that cannot be trained.
function check.run(r)
  local s = r.settings
  -- the values of a checkpoint may be known only after the progress was made
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
    base.raise("MR_E_USAGE", "a recipe with stages is trained by moonreel.trainer.stages; try: "
      .. "moonreel train RECIPE, or bake one of its stages")
  end
  local function refuse(path, form, ...) blame.raise(s, path, "MR_E_RECIPE", form, ...) end
  check_batches(s)
  check_features(s)
  if not pipeline.reconstructs(s) and not (s.vae.type and s.text_encoder.type) then
    refuse(s.vae.type and "text_encoder.type" or "vae.type",
      "training needs vae.type and text_encoder.type%s; "
      .. "try: vae = { type = \"dct\" }, text_encoder = { type = \"bytes\" }",
      (s.load_video_features or s.load_text_features) and ", also for features from a cache, "
      .. "which these encoders make (job = \"extract\"); features of other programs cannot be "
      .. "read" or "")
  end
  if #sources.of(s) == 0 then
    refuse("dataset.data_path", "dataset.data_path is not set, so there is nothing to train on; "
      .. "try: --data-path NAME.mrx")
  end
  if not s.bucket_config then
    refuse("bucket_config", "bucket_config is not set, so no clip has a bucket; try: %s, or the "
      .. "lengths of your clips", buckets.EXAMPLE)
  end
  local unknown = require "moonreel.settings.resolutions"(s:leaves())[1]
  if unknown then
    refuse(unknown.path, "%s", unknown.text)
  end
  check.has_end(s)
  if s.spike.action == "rollback" and cadence.interval(s) == 0 then
    refuse("spike.action", "spike.action = \"rollback\" with ckpt_every = 0: there would be no "
      .. "checkpoint to go back to; try: ckpt_every = %d, or spike.action = \"skip\"",
      math.max(1, s.spike.back_steps // 2))
  end
  if s.lr_schedule == "1cycle" and not (s.min_lr and s.max_lr) then
    refuse("lr_schedule", "lr_schedule = \"1cycle\" needs min_lr and max_lr, and %s is not set; "
      .. "try: min_lr = 1e-5, max_lr = 1e-4", s.min_lr and "max_lr" or "min_lr")
  end
end

return check
