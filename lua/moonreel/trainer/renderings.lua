--- Uses of a run's checkpoints while it trains: renderings (sampling.every) and evaluation losses
-- (eval.every). Checkpoints are queued when they are committed. `moonreel watch RUN --due`
-- processes them in parallel with the run, or the run itself does so on its device between two
-- steps. A failure there does not end the run.
-- @module moonreel.trainer.renderings
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local cadence = require "moonreel.trainer.cadence"
local ckpt = require "moonreel.ckpt"
local json = require "moonreel.core.json"
local life = require "moonreel.core.life"
local pins = require "moonreel.watch.pins"
local process = require "moonreel.core.process"
local rendering_cost = require "moonreel.trainer.rendering_cost"
local report = require "moonreel.watch.report"
local sets = require "moonreel.watch.sets"
local shelf = require "moonreel.watch.shelf"
local signal = require "moonreel.core.signal"
local stream = require "moonreel.core.stream"

local renderings = {}

local LOOK_S <const>, ATTEMPTS <const> = 0.5,
  3 -- between two looks; starts of a process that is killed

--- Refuses, before the first step, a recipe whose checkpoints could not be rendered.
---@param s table            settings
---@param pipe mr.Pipeline
function renderings.check(s, pipe)
  if pipe.reconstructs and s.eval.every > 0 then
    blame.raise(s, "eval.every", "MR_E_RECIPE", "eval.every = %d measures losses at times, but "
      .. "%s is an autoencoder, whose loss has no times; try: eval.every = 0", s.eval.every,
      s.model.type)
  elseif s.eval.every > 0 then
    require "moonreel.settings.eval_times"(s)
  end
  if s.sampling.every == 0 then
    return
  elseif pipe.reconstructs then
    blame.raise(s, "sampling.every", "MR_E_RECIPE", "sampling.every = %d renders prompts, but %s "
      .. "is an autoencoder, which has no prompts; try: sampling.every = 0", s.sampling.every,
      s.model.type)
  end
  local field = s.sampling.prompt_path and not s:plain "sampling.prompts" and "sampling.prompt_path"
    or "sampling.every"
  blame.field(s, field, require("moonreel.sample").rehearse, s, pipe)
end

local function say(r, ...) r.progress:say(string.format(...)) end

-- does a set of a committed checkpoint still have to be made?
local function is_open(r, step, set)
  local good, text = pcall(base.read_file, ckpt.dir(r.dir, step) .. "/MANIFEST.json")
  return good and not select(2, shelf.place(r.dir, { step = step, set = set,
    id = base.hash128(text) }))
end

-- A rendering that would exceed the time limit of the recipe is left to `moonreel watch`. But the
-- last one of a run is made.
local function is_left(r, step)
  local share = step < r.total_steps and r.renders.cost:excess()
  if share then
    local text = ("renderings would take %.1f %% of the time, sampling.most_share = %g"):format(
      share * 100, r.settings.sampling.most_share)
    say(r, "step %d is not rendered: %s; try: moonreel watch %s --every %d", step, text, r.dir,
      r.settings.sampling.every)
    r.journal:append { kind = "samples", step = step, set = sets.OWN, event = "skip", text = text,
      wall = base.wall_s() }
  end
  return share
end

-- queues a checkpoint for sets; a failure here does not end the run
local function add(r, step, due)
  for set in pairs(due) do
    local good, there = pcall(function()
      return is_open(r, step, set) and pins.add(r.dir, set, step)
    end)
    if not good then
      say(r, "step %d cannot be queued for the set %s: %s", step, set, tostring(there))
    elseif there then
      r.renders.waits = true
    end
  end
end

-- the checkpoints that are queued for any set of the run: {step, set, ...}
local function waiting(r)
  local list = {}
  for set in pairs(cadence.sets(r.settings)) do
    for _, one in ipairs(pins.list(r.dir, set)) do
      one.set = set
      list[#list + 1] = one
    end
  end
  return list
end

--- Finds the checkpoints that an earlier launch has left in the queue.
---@param r mr.Run
function renderings.open(r)
  if not r.team.leads or not next(cadence.sets(r.settings)) then
    return
  end
  local s = r.settings.sampling
  if r.settings.eval.every > 0 and s.on == "device" and not r.evaluate then
    base.raise("MR_E_USAGE", "trainer.run: eval.every on the run's device needs a function that "
      .. "evaluates; try: evaluate = require('moonreel.job.eval_loss').measure")
  end
  r.renders = { looked_s = 0, attempts = 0, waits = #waiting(r) > 0,
    cost = rendering_cost.new(s) }
  if s.every > 0 then
    r.renders.cost:predict(r)
  end
  for _, step in ipairs(ckpt.steps(r.dir)) do
    local due = cadence.sets(r.settings, step)
    -- with a limit, checkpoints that are not in the queue were skipped because of it
    due[sets.OWN] = s.most_share == 0 and due[sets.OWN] or nil
    add(r, step, due)
  end
  r:keep { close = function() renderings.stop(r) end }
end

--- Queues a committed checkpoint.
---@param r mr.Run
---@param step integer
function renderings.committed(r, step)
  local due = cadence.sets(r.settings, step)
  if r.renders then
    due[sets.OWN] = due[sets.OWN] and not is_left(r, step) or nil
    add(r, step, due)
  end
end

-- ---- in parallel with the run ----

local function start(r)
  local x, due = r.renders, cadence.sets(r.settings)
  x.waits, x.text, x.errors = false, "", ""
  local words = { "nice", "-n", "19", process.program(), "watch", r.dir, "--due", "--json",
    "--threads", tostring(rendering_cost.threads(r)), "--device", "cpu" }
  words[#words + 1] = due[sets.LOSS] and "--eval-loss" or nil
  words[#words + 1] = not due[sets.OWN] and "--loss-only" or nil
  local good, child = pcall(stream.spawn, words)
  if good then
    x.child = child
  else
    say(r, "renderings cannot be started: %s", tostring(child))
  end
end

-- the participle for a set, as text
local function done_to(set) return set == sets.LOSS and "evaluated" or "rendered" end

-- reports what happened to a set, from a line of the process
local function tell(r, line)
  local good, event = pcall(json.decode, line, "a line of watch")
  if good and event.state == "failed" then
    say(r, "step %d is not %s: %s", event.step, done_to(event.set), event.text)
  elseif good and event.scalars and event.scalars.eval_loss then
    say(r, "step %d is evaluated: loss %.4f, %s, %s", event.step, event.scalars.eval_loss,
      event.path, rendering_cost.text(event.seconds))
  elseif good then
    r.renders.cost:took(event)
    say(r, "step %d is rendered: %s, %s", event.step, event.path,
      rendering_cost.text(event.seconds))
  end
end

-- reads lines of the process; true: the process has ended
local function hear(r)
  local x, open = r.renders, false
  for _, name in ipairs { "output", "errors" } do
    local bytes = x.child[name]:read()
    local into = name == "output" and "text" or "errors"
    x[into], open = x[into] .. (bytes or ""), open or bytes ~= nil
  end
  for line in x.text:gmatch "([^\n]*)\n" do
    tell(r, line)
  end
  x.text = x.text:match "[^\n]*$"
  return not open
end

-- handles the end of the process
local function collect(r)
  local x = r.renders
  local code = stream.reap(x.child.pid, true)
  x.child.input:close()
  x.child.output:close()
  x.child.errors:close()
  x.child = nil
  local last = ""
  for line in x.errors:gmatch "[^\n]+" do
    last = line
    say(r, "watch: %s", base.printable(line))
  end
  local left = waiting(r)
  x.attempts = #left > 0 and code ~= 0 and x.attempts + 1 or 0
  if x.attempts >= ATTEMPTS then
    for _, one in ipairs(left) do
      say(r, "step %d is not %s: its process ended with exit code %d, %d times", one.step,
        done_to(one.set), code, ATTEMPTS)
      report.leave(r.dir, ("step%d-%s-failed"):format(one.step, one.set), { kind = "samples",
        step = one.step, set = one.set, event = "fail", wall = base.wall_s(),
        text = ("exit code %d: %s"):format(code, base.printable(last)) })
      pins.drop(one)
    end
    x.attempts, left = 0, {}
  end
  x.waits = #left > 0
end

-- copies lines of watchers, the run's and others', into the journal
local function deliver(r)
  local good, why = pcall(report.deliver, r.dir, function(line) r.journal:append(line) end)
  if not good and r.renders then
    say(r, "the journal does not record the renderings: %s", tostring(why))
  end
end

--- Continues the renderings in parallel with the run. It is called after each step and never waits.
---@param r mr.Run
function renderings.look(r)
  local now = base.now_s()
  if not r.team.leads or now - (r.looked_s or 0) < LOOK_S then
    return
  end
  r.looked_s = now
  local x = r.renders
  if x and x.child then
    if hear(r) then
      collect(r)
    end
  elseif x and x.waits and r.settings.sampling.on == "host" then
    start(r)
  end
  deliver(r)
end

--- Ends the rendering in progress; the next launch makes it again.
---@param r mr.Run
function renderings.stop(r)
  local x = r.renders
  if x and x.child then
    hear(r)
    stream.reap(x.child.pid, true)
    x.child = nil
  end
end

-- ---- on the run's device ----

local function render_here(r)
  local due = cadence.sets(r.settings)
  local watching <close> = require("moonreel.watch").open(r.dir, { pinned = true,
    sets = sets.of { loss = due[sets.LOSS], loss_only = not due[sets.OWN] },
    loss = r.evaluate,
    device = r.facts.device, threads = r.settings.threads, note = function(line)
      say(r, "watch: %s", line)
    end, tell = function(event) tell(r, json.encode(event)) end })
  watching:run()
end

-- renders on the first rank; all ranks wait for it
local function here(r)
  local before = life.phase "open"
  r.team:first(function()
    local good, why = pcall(render_here, r)
    if not good then
      say(r, "renderings and evaluations due at step %d failed: %s", r.step, tostring(why))
    end
    return {}
  end)
  life.phase(before)
end

--- Makes the sets that are due for the checkpoint of this step on the run's device, if the recipe
-- says so.
---@param r mr.Run
---@param commit fun(r: mr.Run)  returns when the checkpoint is committed
function renderings.between(r, commit)
  if r.settings.sampling.on == "device" and next(cadence.sets(r.settings, r.step)) then
    commit(r)
    here(r)
    r.looked_s = nil
  end
end

--- The cost of renderings: for the journal, and as a line for the log; nil if there were no
-- renderings.
---@param r mr.Run
---@param busy string|nil  the reason why times cannot be compared with the prediction
---@return table|nil facts
---@return string|nil line
function renderings.took(r, busy)
  if r.renders then
    return r.renders.cost:facts(), r.renders.cost:line(busy)
  end
end

--- After the last checkpoint is committed: makes all of its sets, too, and waits for the set in
-- progress. A stop request ends that.
---@param r mr.Run
function renderings.finish(r)
  local s, due = r.settings, cadence.sets(r.settings)
  if not next(due) then
    return
  end
  if r.renders then
    add(r, r.step, due)
  end
  if s.sampling.on == "device" then
    here(r)
  end
  local x, reported = r.renders, false
  while x and (x.child or x.waits and s.sampling.on == "host") and not signal.pending() do
    r.looked_s = nil
    renderings.look(r)
    reported = reported or say(r, "waits for what is still being %s",
      due[sets.OWN] and "rendered" or "evaluated") or true
    base.sleep(0.05)
  end
  renderings.stop(r)
  r.looked_s = nil
  renderings.look(r)
end

return renderings
