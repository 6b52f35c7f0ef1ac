--- The training of a run as a list of named steps.
-- @module moonreel.trainer
local base = require "moonreel.core.base"
local bench = require "moonreel.core.bench"
local bucket_trial = require "moonreel.trainer.bucket_trial"
local gpu = require "moonreel.trainer.gpu"
local renderings = require "moonreel.trainer.renderings"
local samples = require "moonreel.trainer.samples"
local life = require "moonreel.core.life"
local loop = require "moonreel.trainer.loop"
local predict = require "moonreel.trainer.predict"
local run = require "moonreel.run"
local options = require "moonreel.text.options"
local check = require "moonreel.trainer.check"
local directory = require "moonreel.trainer.directory"
local origin = require "moonreel.trainer.origin"
local setup = require "moonreel.trainer.setup"
local writer = require "moonreel.trainer.writer"
local signal = require "moonreel.core.signal"
local team = require "moonreel.comm.team"
local tracking = require "moonreel.trainer.tracking"
local weights = require "moonreel.trainer.weights"

local trainer = {}

local LOST_S <const> = 10 -- for a save after the ranks have lost contact

--- The steps of a run, in order: name, function(r), and the phase that others see. A program may
-- insert its own.
trainer.steps = {
  {"check the settings", check.run, "open"},
  {"find what to start from", origin.find, "open"},
  {"take the run directory", directory.take, "open"},
  {"open what to start from", origin.source, "open"},
  {"compare the recipe with the checkpoint's", origin.compare, "open"},
  {"declare the models", setup.models, "device"},
  {"find the size of communication buckets", bucket_trial.run, "device"},
  {"allocate their state", setup.state, "device"},
  {"open the data", samples.open, "index"},
  {"fill the state", setup.fill, "weights"},
  {"prepare for checkpoints", writer.open, "weights"},
  {"predict the cost of each bucket", predict.run, "compile"},
  {"watch the weights", weights.open, "compile"},
  {"open the trackers", tracking.open, "open"},
  {"see what is still to be rendered", renderings.open, "open"},
  {"train", loop.run},
}

--- The fields that the steps share. Each field exists from the step on that makes it.
---@class mr.Run
---@field settings table      the baked recipe
---@field stage table?        the place of this run in the list of stages, as trainer.run takes it
---@field launch mr.Launch?   where the settings come from, as trainer.run takes it
---@field watch function?     sees each micro-step and each state, as trainer.run takes it
---@field evaluate function?  measures the evaluation loss of a checkpoint, as trainer.run takes it
---@field notes string[]      lines to print when the run has begun
---@field progress table      prints what happens
---@field found table?        the result of ckpt.resolve for `load`
---@field found_weights table? the result for `ckpt_path`
---@field source mr.Checkpoint? either of them, open
---@field continues boolean   the run continues in the directory of `found`
---@field scratch boolean     epoch, step and data position of `found` are not used
---@field start table?        epoch and step in it that start_epoch and start_step set instead
---@field dir string          the run's directory; `lock` and `journal` are open in it
---@field device mr.Device    the device; `facts` describe it, `machine` is what manifests say
---@field dtype string        compute dtype
---@field pipe mr.Pipeline    the models
---@field exec mr.Exec        their state
---@field update mr.Update    the optimizer step
---@field index mr.Index      the samples
---@field loader mr.Loader    decodes them; `sampler` is its state after the last batch
---@field plan table          the buckets
---@field feed mr.Feed        makes inputs of batches
---@field step integer        batches taken, also skipped ones
---@field updates integer     optimizer steps made
---@field bad integer         bad steps in a row; `rolled_back_at`: the step from which the run went
---   back
---@field spikes mr.Spikes    statistics of norms and losses; `spike`: the spike of the last step
---@field recent table[]      samples of the last steps
---@field weights mr.WeightWatch? measures the weights; `alarms`: the alarms that are on
---@field histograms table?   counts weights and gradients; its update follows the counting
---@field hosts table?        state of the host reports: when to look, what was seen and printed
---@field epoch_ends boolean?  the last step took the last batch of an epoch
---@field lr_at function      the learning rate of an update
---@field total_steps integer steps that the run will make
---@field trackers mr.Trackers? TensorBoard and W&B, if the recipe asks for them
---@field saver mr.Saver      writes checkpoints
---@field began_bytes integer bytes of the process when the run began
---@field team mr.Team        the ranks of the run; the first has lock and journal and prints
---@field mesh mr.Mesh        how they are arranged: which share a batch, which have their own
---@field share table?        what this rank writes of a checkpoint
---@field micros integer      micro-batches of a step, of all ranks: step_ranks x accumulate
---@field ranks mr.Ranks?     the parameters and state that they share
---@field reduced boolean?    every micro-step ends with the reduction of gradients
---@field bucket_size table?  size of communication buckets, found by trial: elements, ranks; tried,
---   formula; or kept from an earlier launch
---@field choices table?      the recomputation of the run that is continued
---   (moonreel.trainer.programs)
---@field reported boolean?       ranks communicate within micro-steps, so they begin them together
---@field programs mr.Programs compiled micro-steps by shape
---@field bucket_of table     buckets by the keys of their shapes; `unseen`: those without a batch
---   so far
---@field kept table          objects that are closed with the run
local Run = {}
Run.__index = Run

--- Registers an object that is closed with the run, newest first.
function Run:keep(object)
  self.kept[#self.kept + 1] = object
  return object
end

-- writes the error that ends a run into its journal and its log
local function record(r, problem)
  if not problem or not r.progress then
    return
  end
  local reported = type(problem) == "table" and problem or {message = tostring(problem)}
  r.progress:note(tostring(reported.message))
  if r.started and r.journal then
    pcall(r.journal.append, r.journal, {kind = "error", step = r.step, code = reported.code,
      text = tostring(reported.message), wall = base.wall_s()})
  end
end

function Run:close(problem)
  record(self, problem)
  -- a save in progress waits for its ranks, also for a rank that is lost
  if type(problem) == "table" and problem.code == "MR_E_NODE" and self.saver then
    self.saver:part(LOST_S)
  end
  if self.catches then
    signal.release()
  end
  if self.progress then
    self.progress:finish()
    self.progress:close()
  end
  for i = #self.kept, 1, -1 do
    self.kept[i]:close()
  end
  self.kept = {}
  -- a run that failed before its first step leaves no directory
  if self.made and not self.started then
    run.discard(self.dir, self.made)
  end
end
Run.__close = Run.close

-- A stop request is obeyed at once while there is nothing to save; ranks that wait for each other
-- obey it between two steps.
local function set_up(r)
  signal.raises(r.team.size == 1)
  for i = 1, #trainer.steps - 1 do
    local _, step, phase = table.unpack(trainer.steps[i])
    life.phase(phase or "open")
    r.team:try(function()
      step(r)
      if signal.pending() then
        base.raise("MR_E_STOPPED", "stopped by a signal")
      end
    end)
  end
  signal.raises(false)
end

-- the message about what ended the run
local function why_not(problem)
  local number = signal.pending()
  signal.raises(false)
  if number and type(problem) == "table" and problem.code == "MR_E_STOPPED" then
    return { code = problem.code, exit = 128 + number,
      message = "stopped by a signal before the first step; nothing was saved" }
  end
  return team.traced(problem)
end

local read_options = options.declare("trainer.run", {
  { "write", "function", "takes each line of the log instead of standard output" },
  { "stage", "table", "of a run with stages: {outer, name, dir, begun, previous}" },
  { "team", "mr.Team", "the ranks of the run; absent: this process alone" },
  { "launch", "mr.Launch", "what the command line of the run that is continued had set" },
  { "watch", "function", "(step, micro, batch, program): sees each micro-step and each state" },
  { "evaluate", "function", "moonreel.job.eval_loss.measure, for eval.every on the run's device" },
})

--- Trains a recipe.
---@param settings table  baked
---@param given table|nil    write: takes each line of the log instead of standard output; stage:
---   the place in the list of stages, {outer, name, dir, begun, previous}
---   (moonreel.trainer.stages); team: the ranks of the run, each of which calls this; launch: gives
---   other settings if the checkpoint that is continued was made with other settings than expected;
---   watch(step, micro, batch, program): called after each micro-batch of this rank, with its
---   inputs and the mr.MicroStep that has run it (moonreel.trainer.dump reads both), and with micro
---   = 0 and no batch before the first step and after each update. It changes no bit of the run
---@return integer exit code
---@return table facts     dir, step, loss
function trainer.run(settings, given)
  local o = read_options(given)
  local r <close> = setmetatable({settings = settings, write = o.write, stage = o.stage,
    launch = o.launch, watch = o.watch, evaluate = o.evaluate,
    dates = true, team = o.team or team.new(), catches = signal.catch(), notes = {}, kept = {},
    began_bytes = bench.resident()}, Run)
  life.publish(r.team.rank, r.team.size)
  local good, problem = xpcall(set_up, why_not, r)
  if not good then
    error(problem, 0)
  end
  local result = gpu.reported(r, trainer.steps[#trainer.steps][2])
  return result, {dir = r.dir, step = r.step, loss = r.last_loss}
end

return trainer
