--- The training of a run as a list of named steps.
-- @module moonreel.trainer
local base = require "moonreel.core.base"
local loop = require "moonreel.trainer.loop"
local options = require "moonreel.text.options"
local setup = require "moonreel.trainer.setup"
local signal = require "moonreel.core.signal"

local trainer = {}

--- The steps of a run, in order: name and function(r). A program may insert its own.
trainer.steps = {
  {"check the settings", setup.check},
  {"find what to start from", setup.find},
  {"take the run directory", setup.directory},
  {"open what to start from", setup.source},
  {"compare the recipe with the checkpoint's", setup.compare},
  {"declare the models", setup.models},
  {"open the data", setup.data},
  {"fill the state", setup.fill},
  {"prepare for checkpoints", setup.saver},
  {"predict the cost of each bucket", loop.predict},
  {"train", loop.run},
}

--- What the steps share, each from the step that makes it on.
---@class mr.Run
---@field settings table      baked; stage: of a run with stages, as in `run`; notes: lines to say
---   once the run has begun
---@field progress table      what the run says; journal, lock, dir: of its directory
---@field found table?        what ckpt.resolve found for `load`; found_weights: for `ckpt_path`;
---   source: that checkpoint, open
---@field continues boolean   it goes on in the directory of `found`; scratch: epoch, step and data
---   position are left behind
---@field device mr.Device    facts, dtype (compute), machine (as in manifests), pipe, exec, update:
---   what runs on it
---@field index mr.Index      loader, plan (buckets), feed, sampler (state of the loader after the
---   last batch)
---@field step integer        batches taken, also skipped ones; updates: optimizer steps; bad: bad
---   steps in a row; saved_step
---@field saver mr.Saver      lr_at(updates), total_steps, programs: micro-steps by shape, kept:
---   what closes with the run
local Run = {}
Run.__index = Run

--- Close this with the run, newest first.
function Run:keep(object)
  self.kept[#self.kept + 1] = object
  return object
end

function Run:close()
  if self.catches then
    signal.release()
  end
  if self.progress then
    self.progress:finish()
  end
  for i = #self.kept, 1, -1 do
    self.kept[i]:close()
  end
  self.kept = {}
  -- a run that failed before its first step leaves nothing behind
  if self.made and not self.started then
    base.remove_dir(self.dir)
  end
end
Run.__close = Run.close

local read_options = options.declare("trainer.run", {
  { "write", "function", "takes each line of the log instead of standard output" },
  { "stage", "table", "of a run with stages: {outer, name, dir, begun, previous}" },
})

--- Train a recipe.
---@param settings table  baked
---@param given table|nil    write: takes each line of the log instead of standard output; stage: of
---   a run with stages
--   (moonreel.trainer.stages), {outer, name, dir, begun, previous}
---@return integer exit code
---@return table facts     dir, step, loss
function trainer.run(settings, given)
  local o = read_options(given)
  local r <close> = setmetatable({settings = settings, write = o.write, stage = o.stage,
    catches = signal.catch(), notes = {}, programs = {}, kept = {}}, Run)
  local result
  for _, step in ipairs(trainer.steps) do
    result = step[2](r)
  end
  return result, {dir = r.dir, step = r.step, loss = r.last_loss}
end

return trainer
