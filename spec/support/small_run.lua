--- A run of tiny/demo that is small enough to be trained many times by a spec, with a scratch
-- directory for its outputs.
local demo_data = require "spec.support.demo_data"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

local small_run = {}

--- Lines of one kind in a run's journal.
---@param dir string
---@param kind string
---@return table[]
function small_run.entries(dir, kind)
  local list = {}
  for entry in run.entries(dir) do
    if entry.kind == kind then
      list[#list + 1] = entry
    end
  end
  return list
end

--- Train with a function put before the last step of the trainer, whose argument is the run.
---@return boolean ok
---@return integer|any result  exit code or error
---@return string[] lines      of the log
---@return string dir          of the run; nil when it was not created
function small_run.train(s, before)
  local lines, dir = {}, nil
  table.insert(trainer.steps, #trainer.steps, {"spec", function(r)
    dir = r.dir
    if before then
      before(r)
    end
  end})
  local ok, result = pcall(trainer.run, s, {write = function(line) lines[#lines + 1] = line end})
  table.remove(trainer.steps, #trainer.steps - 1)
  return ok, result, lines, dir
end

--- A scratch directory for such runs.
---@return table  out: the directory; words(...) and bake(...): command line and settings of a run
-- with further fields; remove()
function small_run.new()
  local runs = {out = demo_data.scratch()}

  function runs.words(...)
    return {"dataset.data_path=" .. demo_data.path(), "outputs=" .. runs.out, "threads=1",
      "num_workers=1", "warmup_steps=2", "model.depth=1", "model.hidden_size=32",
      "model.num_heads=2", "text_encoder.width=32", "model.caption_channels=32", ...}
  end

  function runs.bake(...) return settings.bake("tiny/demo", runs.words(...)) end

  function runs:remove()
    os.execute("rm -r '" .. self.out .. "'")
    demo_data.remove()
  end

  return runs
end

return small_run
