--- What a run renders while it trains (sampling.every): checkpoints are put aside when they are
-- committed, and rendered by `moonreel watch RUN --due` beside the run, or on its device between
-- two steps. No failure of a rendering ends the run.
-- @module moonreel.trainer.renderings
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local cadence = require "moonreel.trainer.cadence"
local ckpt = require "moonreel.ckpt"
local json = require "moonreel.core.json"
local life = require "moonreel.core.life"
local pins = require "moonreel.watch.pins"
local process = require "moonreel.core.process"
local processors = require "moonreel.trainer.processors"
local report = require "moonreel.watch.report"
local sets = require "moonreel.watch.sets"
local shelf = require "moonreel.watch.shelf"
local signal = require "moonreel.core.signal"
local stream = require "moonreel.core.stream"

local renderings = {}

local LOOK_S <const>, ATTEMPTS <const> = 0.5, 3 -- between two looks; of a process that is killed

--- Refuse before the first step what no checkpoint could render.
---@param s table            settings
---@param pipe mr.Pipeline
function renderings.check(s, pipe)
  if s.sampling.every == 0 then
    return
  elseif pipe.reconstructs then
    blame.raise(s, "sampling.every", "MR_E_RECIPE", "sampling.every = %d: %s is an autoencoder, "
      .. "which renders no prompts; try: sampling.every = 0", s.sampling.every, s.model.type)
  end
  local field = s.sampling.prompt_path and not s:plain "sampling.prompts" and "sampling.prompt_path"
    or "sampling.every"
  blame.field(s, field, require("moonreel.sample").rehearse, s, pipe)
end

local function say(r, ...) r.progress:say(string.format(...)) end

-- is the rendering of a committed checkpoint still to be made?
local function is_open(r, step)
  local good, text = pcall(base.read_file, ckpt.dir(r.dir, step) .. "/MANIFEST.json")
  return good and not select(2, shelf.place(r.dir, { step = step, set = sets.OWN,
    id = base.hash128(text) }))
end

-- put a checkpoint aside, which a failure of does not end the run
local function add(r, step)
  local good, there = pcall(function()
    return is_open(r, step) and pins.add(r.dir, sets.OWN, step)
  end)
  if not good then
    say(r, "step %d is not put aside to be rendered: %s", step, tostring(there))
  elseif there then
    r.renders.waits = true
  end
end

--- Find what a launch before this one has left to be rendered.
---@param r mr.Run
function renderings.open(r)
  if not r.team.leads or r.settings.sampling.every == 0 then
    return
  end
  r.renders = { looked_s = 0, attempts = 0, waits = #pins.list(r.dir, sets.OWN) > 0 }
  for _, step in ipairs(ckpt.steps(r.dir)) do
    if cadence.renders(r.settings, step) then
      add(r, step)
    end
  end
  r:keep { close = function() renderings.stop(r) end }
end

--- A checkpoint is committed.
---@param r mr.Run
---@param step integer
function renderings.committed(r, step)
  if r.renders and cadence.renders(r.settings, step) then
    add(r, step)
  end
end

-- ---- beside the run ----

-- processors that the run leaves
local function spare(r)
  if r.settings.sampling.threads > 0 then
    return r.settings.sampling.threads
  end
  local used = r.facts.device == "cpu" and r.facts.threads * r.team.size or r.team.size
  return math.max(1, processors.count() - used)
end

local function start(r)
  local x = r.renders
  x.waits, x.text, x.errors = false, "", ""
  local good, child = pcall(stream.spawn, { "nice", "-n", "19", process.program(), "watch", r.dir,
    "--due", "--json", "--threads", tostring(spare(r)), "device=cpu" })
  if good then
    x.child = child
  else
    say(r, "nothing is rendered: %s", tostring(child))
  end
end

-- what became of a set, as the process says it
local function tell(r, line)
  local good, event = pcall(json.decode, line, "a line of watch")
  if good and event.state == "failed" then
    say(r, "step %d is not rendered: %s", event.step, event.text)
  elseif good then
    say(r, "step %d is rendered: %s, %.1f s", event.step, event.path, event.seconds)
  end
end

-- read what the process says; true: it has ended
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

-- the process has ended
local function collect(r)
  local x = r.renders
  local code = stream.reap(x.child.pid, true)
  x.child.input:close()
  x.child.output:close()
  x.child.errors:close()
  x.child = nil
  for line in x.errors:gmatch "[^\n]+" do
    say(r, "watch: %s", base.printable(line))
  end
  local left = pins.list(r.dir, sets.OWN)
  x.attempts = #left > 0 and code ~= 0 and x.attempts + 1 or 0
  if x.attempts >= ATTEMPTS then
    for _, one in ipairs(left) do
      say(r, "step %d is not rendered: exit code %d of the process that does so, %d times",
        one.step, code, ATTEMPTS)
      report.leave(r.dir, ("step%d-%s-failed"):format(one.step, sets.OWN), { kind = "samples",
        step = one.step, set = sets.OWN, event = "fail", text = ("exit code %d"):format(code),
        wall = base.wall_s() })
      pins.drop(one)
    end
    x.attempts, left = 0, {}
  end
  x.waits = #left > 0
end

-- lines of watchers, ours and others', go into the journal
local function deliver(r)
  local good, why = pcall(report.deliver, r.dir, function(line) r.journal:append(line) end)
  if not good and r.renders then
    say(r, "what was rendered is not in the journal: %s", tostring(why))
  end
end

--- Go on with what is rendered beside the run: called after each step, it waits for nothing.
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

--- End what is being rendered; the next launch makes it.
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
  local watching <close> = require("moonreel.watch").open(r.dir, { sets = sets.of {}, pinned = true,
    device = r.facts.device, threads = r.settings.threads, note = function(line)
      say(r, "watch: %s", line)
    end, tell = function(event) tell(r, json.encode(event)) end })
  watching:run()
end

-- all ranks wait for the first one
local function here(r)
  local before = life.phase "open"
  r.team:first(function()
    local good, why = pcall(render_here, r)
    if not good then
      say(r, "step %d is not rendered: %s", r.step, tostring(why))
    end
    return {}
  end)
  life.phase(before)
end

--- Render the checkpoint of this step on the run's device, where the recipe says so.
---@param r mr.Run
---@param commit fun(r: mr.Run)  returns when it is committed
function renderings.between(r, commit)
  if r.settings.sampling.on == "device" and cadence.renders(r.settings, r.step) then
    commit(r)
    here(r)
    r.looked_s = nil
  end
end

--- The last checkpoint is committed: render it, too, and wait for what is being rendered. A request
-- to stop ends that.
---@param r mr.Run
function renderings.finish(r)
  local s = r.settings
  if s.sampling.every == 0 then
    return
  end
  if r.renders then
    add(r, r.step)
  end
  if s.sampling.on == "device" then
    here(r)
  end
  local x, told = r.renders, false
  while x and (x.child or x.waits and s.sampling.on == "host") and not signal.pending() do
    r.looked_s = nil
    renderings.look(r)
    told = told or say(r, "waits for what is still being rendered") or true
    base.sleep(0.05)
  end
  renderings.stop(r)
  r.looked_s = nil
  renderings.look(r)
end

return renderings
