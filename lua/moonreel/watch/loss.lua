--- The evaluation loss of a checkpoint by bucket and time, as numbers for a journal.
-- Ref: opensora-1.2.md 9.2.
-- @module moonreel.watch.loss
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local settings = require "moonreel.settings"

local loss = {}

-- the settings to evaluate a checkpoint of a run: all validation samples, encoded again
local function settings_of(one, o)
  local fields = { "job=eval_loss", "ckpt_path=" .. one.path, "load=none", "steps=0",
    "cached=false", "load_video_features=false", "load_text_features=false", "mask_ratios=none",
    "tensorboard=false", "wandb=false", "sampling.every=0", "eval.every=0" }
  for _, name in ipairs { "device", "threads" } do
    fields[#fields + 1] = o[name] and ("%s=%s"):format(name, o[name])
  end
  local overrides = table.move(o.overrides, 1, #o.overrides, 1, {})
  for _, text in ipairs(fields) do
    local key, value = text:match "^([^=]+)=(.*)$"
    overrides[#overrides + 1] = { key = key, text = value, argument = "--eval-loss" }
  end
  return settings.with(settings.from_json(one.settings, one.path), overrides)
end

-- rows and times as {name, number} for charts
local function scalars_of(rows, times)
  local scalars, sum, samples = {}, 0, 0
  for _, row in ipairs(rows) do
    local name = ("eval_loss/%s_%d"):format(row.resolution, row.frames)
    scalars[name] = row.loss
    for i, t in ipairs(times) do
      local at = ("%s/t%.4g"):format(name, t)
      scalars[at] = row.losses[i]
      scalars[at .. "_error"] = row.errors[i] ~= json.null and row.errors[i] or nil
    end
    sum, samples = sum + row.loss * row.samples, samples + row.samples
  end
  scalars.eval_loss = sum / samples
  return scalars
end

--- Measures the loss of a checkpoint.
---@param one table  checkpoint of moonreel.watch.found
---@param o table    loss: measure(settings, {write}) of moonreel.job.eval_loss; overrides, device,
---   threads
---@return table     scalars: name -> number, eval_loss over all samples; loss: {times, buckets}
function loss.measure(one, o)
  local rows, times = o.loss(settings_of(one, o), { write = function() end })
  if not rows then
    base.raise("MR_E_STOPPED", "stopped by a signal")
  end
  local buckets = json.array {}
  for i, row in ipairs(rows) do
    buckets[i] = { resolution = row.resolution, frames = row.frames, samples = row.samples,
      loss = row.loss, losses = json.array(row.losses), errors = json.array(row.errors) }
  end
  return { scalars = scalars_of(rows, times), loss = { times = json.array(times),
    buckets = buckets } }
end

return loss
