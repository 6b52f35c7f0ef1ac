--- Trackers during a run: TensorBoard files and W&B runs that follow its journal.
-- @module moonreel.trainer.tracking
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local run = require "moonreel.run"
local trackers = require "moonreel.trackers"

local tracking = {}

local kinds = { "tensorboard", "wandb" }

--- The part of the line "start" about trackers: those that the run writes, and the values of its
-- recipe for them. The recipe in the run's folder may be that of an earlier session.
---@param s table  settings
---@return table|nil
function tracking.reported(s)
  local wandb = s.wandb and { project = s.wandb_project, entity = s.wandb_entity,
    log = s.wandb_log } or nil
  if wandb and s.wandb_tags then
    wandb.tags = json.array {}
    for i = 1, #s.wandb_tags do
      wandb.tags[i] = s.wandb_tags[i]
    end
  end
  return (wandb or s.tensorboard) and { wandb = wandb, tensorboard = s.tensorboard or nil } or nil
end

--- Opens the trackers that the recipe asks for, on the first rank. A tracker that fails is reported
-- once, in log and journal, and does not end the run.
---@param r mr.Run
function tracking.open(r)
  local names = {}
  for _, name in ipairs(kinds) do
    names[#names + 1] = r.settings[name] and name or nil
  end
  if not r.team.leads or #names == 0 then
    return
  end
  local root = run.outer(r.dir) or r.dir
  local function say(line) r.progress:say(line) end
  r.trackers = r:keep(trackers.open { dir = r.dir, root = root, branch = r.lock:fence(),
    names = names, say = say, report = function(name, why)
      r.journal:append { kind = "tracker", tracker = name, step = r.step, text = why,
        wall = base.wall_s() }
      say(("%s cannot be written: %s; the run continues\n  try: moonreel log %s --export %s, later")
        :format(name, why, root, name))
    end })
end

--- Writes the new lines of the journal.
---@param r mr.Run
function tracking.look(r)
  if r.trackers then
    r.trackers:look()
  end
end

return tracking
