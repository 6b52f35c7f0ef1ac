--- Renders the checkpoints of a run as they appear, in a separate process. It renders each complete
-- and verified checkpoint once, in the order of their steps. The run and the watcher may be killed
-- at any moment: results that exist are complete, and the next watcher continues.
-- @module moonreel.watch
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local found = require "moonreel.watch.found"
local glance = require "moonreel.runs.glance"
local loss = require "moonreel.watch.loss"
local options = require "moonreel.text.options"
local pins = require "moonreel.watch.pins"
local render = require "moonreel.watch.render"
local report = require "moonreel.watch.report"
local settings = require "moonreel.settings"
local shelf = require "moonreel.watch.shelf"

local watch = {}

-- seconds: between two checks; without growth until a copy counts as abandoned
local POLL_S <const>, SETTLE_S <const> = 1, 10

-- errors that mean that a checkpoint is damaged or only partly copied
local NOT_WHOLE <const> = { MR_E_CKPT = true, MR_E_FORMAT = true, MR_E_IO = true,
  MR_E_HASH = true }

---@class mr.RunWatch
local Watch = {}
Watch.__index = Watch

local read_options = options.declare("watch.open", {
  { "sets", "table", "of moonreel.watch.sets; required" },
  { "last_step", "integer", "checkpoints up to this step are skipped" },
  { "every", "integer", "only checkpoints at multiples of this number of steps" },
  { "only_first_of_epoch", "boolean", "the first checkpoint of each epoch, and the last one" },
  { "pinned", "boolean", "only checkpoints that the run keeps for this watcher; then end" },
  { "once", "boolean", "only checkpoints that exist now; then end" },
  { "save_to", "text", "write results to this folder, and report nothing to the run" },
  { "silent", "boolean", "report nothing into the journal of the run", default = false },
  { "ema", "boolean", "use the averaged weights; absent: as sampling.ema says" },
  { "device", "text", "where to compute; absent: the device of the settings" },
  { "threads", "integer", "threads of the device; absent: as the settings say" },
  { "overrides", "table", "fields that replace those of the checkpoints", default = {} },
  { "metrics", "table", "metrics of moonreel.watch.metric", default = {} },
  { "loss", "function", "moonreel.job.eval_loss.measure, called if a set asks for the loss" },
  { "pull", "function", "copies new checkpoints; called before each check; true: the run there has "
    .. "ended" },
  { "tell", "function", "(event): called when something happened to a checkpoint; required" },
  { "note", "function", "(line): called with messages for the user; required" },
  { "progress", "function", "(): called while a rendering is made" },
})

--- Creates a watcher of a run.
---@param dir string   folder of the run, which must exist
---@param given table  see help(watch.open)
---@return mr.RunWatch
function watch.open(dir, given)
  local o = read_options(given)
  local self = setmetatable({ dir = dir, o = o, keys = {}, failed = {}, reported = {}, settled = {},
    counts = { rendered = 0, failed = 0 }, looked_s = 0 }, Watch)
  self.found = found.new(dir, { sets = o.sets, last_step = o.last_step, every = o.every,
    only_first_of_epoch = o.only_first_of_epoch, pinned = o.pinned })
  return self
end

-- prints a line once
local function once(self, key, line)
  if self.reported[key] ~= line then
    self.reported[key] = line
    self.o.note(line)
  end
end

-- the folder for renderings of a checkpoint
local function folder_of(self, one)
  local to = self.o.save_to
  return to and (one.stage and to .. "/" .. one.stage or to) or one.dir
end

-- what is asked of a checkpoint: its place, and whether it is done
local function place_of(self, one, set)
  local mark = one.id .. set.name
  if not self.keys[mark] then
    local own = settings.from_json(one.settings, one.path)
    own = #self.o.overrides > 0 and settings.with(own, self.o.overrides) or own
    self.keys[mark] = set:key(own, self.o.ema)
  end
  return shelf.place(folder_of(self, one), { step = one.step, set = set.name, id = one.id,
    key = self.keys[mark] })
end

-- the line for the journal of the run
local function line_of(one, set, path, made)
  local files = require("moonreel.core.json").array {}
  for i, clip in ipairs(made.clips or {}) do
    files[i] = { path = path .. "/" .. clip.file, caption = clip.prompt,
      name = ("%s/%s"):format(set.name, clip.file:gsub("%.%w+$", "")) }
  end
  return { kind = "samples", step = one.step, set = set.name, path = path, files = files,
    scalars = next(made.scalars) and made.scalars or nil, seconds = made.seconds,
    cpu_s = made.cpu_s, text = made.failure, wall = base.wall_s() }
end

local function reports(self) return not (self.o.silent or self.o.save_to) end

-- ---- one set of one checkpoint ----

-- the models of a checkpoint, which stay open for its next set
local function sampler_of(self, one)
  if not self.open or self.open.id ~= one.id then
    self:close()
    self.open = { id = one.id, sampler = render.open(one, self.o) }
  end
  return self.open.sampler
end

--- Closes the open models. It may be called twice.
function Watch:close()
  if self.open then
    self.open.sampler:close()
    self.open = nil
  end
end
Watch.__close = Watch.close

-- pins new checkpoints, which the run may remove during a rendering
local function keep_new(self)
  if base.now_s() - self.looked_s < POLL_S then
    return
  end
  self.looked_s = base.now_s()
  for _, one in ipairs(self.keeps and self.found:list(false) or {}) do
    for _, set in ipairs(one.id and not one.pin and self.o.sets or {}) do
      local pinned = ("%s %s %s"):format(one.id, set.name, one.dir)
      if not self.failed[one.id .. set.name] and not self.reported[pinned]
          and not select(2, place_of(self, one, set)) then
        self.reported[pinned] = pins.add(one.dir, set.name, one.step)
      end
    end
  end
end

local function make(self, one, set, folder)
  if set.loss then
    self:close()
    return loss.measure(one, self.o)
  end
  return render.set(sampler_of(self, one), set, folder, { metrics = self.o.metrics,
    progress = function()
      keep_new(self)
      if self.o.progress then
        self.o.progress()
      end
    end })
end

local function finish(self, one, set, path, work, made)
  local folder = folder_of(self, one)
  if reports(self) then
    report.leave(folder, ("step%d-%s"):format(one.step, path:match "([^/]+)$"),
      line_of(one, set, path, made))
  end
  work:finish(path, { id = one.id, key = self.keys[one.id .. set.name], step = one.step,
    epoch = one.epoch, set = set.name, clips = made.clips, scalars = made.scalars,
    loss = made.loss, seconds = made.seconds, failure = made.failure })
end

-- renders a set of a checkpoint into its place
local function try(self, one, set, path)
  local began, clock, folder = base.now_s(), os.clock(), folder_of(self, one)
  local work <close> = shelf.begin(folder, set.name)
  local made = make(self, one, set, work.path)
  made.seconds, made.cpu_s = base.now_s() - began, os.clock() - clock
  finish(self, one, set, path, work, made)
  if made.failure then
    self.o.note(("step %d: a metric function failed: %s"):format(one.step, made.failure))
  end
  self.counts.rendered = self.counts.rendered + 1
  self.o.tell { step = one.step, stage = one.stage, set = set.name, state = "rendered",
    path = folder .. "/" .. path, seconds = made.seconds, cpu_s = made.cpu_s,
    scalars = made.scalars }
end

-- reports a failed rendering to the user and the run; this process does not try it again
local function fail(self, one, set, why)
  self.failed[one.id .. set.name] = true
  self.counts.failed = self.counts.failed + 1
  if reports(self) then
    report.leave(one.dir, ("step%d-%s-failed"):format(one.step, set.name), { kind = "samples",
      step = one.step, set = set.name, event = "fail", text = why, wall = base.wall_s() })
  end
  self.o.tell { step = one.step, stage = one.stage, set = set.name, state = "failed", text = why }
end

-- returns "done", "failed", "busy": another process renders the set, or "grows": the checkpoint is
-- not complete
local function one_set(self, one, set)
  if select(2, place_of(self, one, set)) then
    return "done"
  elseif self.failed[one.id .. set.name] then
    return "failed"
  end
  local folder = folder_of(self, one)
  local lock <close>, taken = shelf.lock(folder, set.name)
  if not lock then
    once(self, folder .. set.name, ("%s: another process renders the set %s: %s"):format(folder,
      set.name, taken))
    return "busy"
  end
  -- another process may have rendered it in the meantime
  local path, done = place_of(self, one, set)
  if done then
    return "done"
  end
  local good, why = pcall(try, self, one, set, path)
  if good then
    return "done"
  elseif type(why) == "table" and why.code == "MR_E_STOPPED" then
    error(why, 0)
  end
  local text = tostring(type(why) == "table" and why.message or why)
  local whole = pcall(function()
    local source <close> = ckpt.open(one.path)
    source:verify()
  end)
  if not whole and type(why) == "table" and (NOT_WHOLE[why.code] or why.code == nil) then
    once(self, one.path, ("step %d is not complete yet: %s"):format(one.step, text))
    return "grows"
  end
  fail(self, one, set, text)
  return "failed"
end

-- ---- a look at all of them ----

-- Is a checkpoint that cannot be read yet still being copied? It is abandoned if the run has ended
-- and the checkpoint has not grown for a while.
local function settles(self, one)
  local size = found.size(one.path)
  local was = self.settled[one.path]
  if not was or was.size ~= size then
    self.settled[one.path] = { size = size, since = base.now_s() }
    return true
  end
  return base.now_s() - was.since < SETTLE_S
end

-- handles one checkpoint; true: it has to be checked again
local function take(self, one)
  if not one.id or not one.settings then
    return settles(self, one)
  end
  local waits = false
  for _, set in ipairs(self.o.sets) do
    if not one.set or one.set == set.name then
      local state = one_set(self, one, set)
      waits = waits or state == "busy" or state == "grows" and settles(self, one)
      if one.pin and (state == "done" or state == "failed") then
        pins.drop(one)
      end
    end
  end
  return waits
end

-- handles all checkpoints; true: there is something to check again
local function pass(self, ended)
  local waits, any = false, false
  for _, one in ipairs(self.found:list(ended)) do
    local before = self.counts.rendered
    waits = take(self, one) or waits
    any = any or self.counts.rendered > before
  end
  self:close()
  return waits or any
end

local function deliver(self)
  if reports(self) then
    for _, part in ipairs(require("moonreel.runs.find").parts(self.dir)) do
      report.deliver_late(part.dir)
    end
  end
end

-- checkpoints that are skipped because they are not complete
local function left(self)
  local list = {}
  for _, one in ipairs(self.found:list(true)) do
    if not one.pin and (not one.id or self.reported[one.path]) then
      list[#list + 1] = one.step
    end
  end
  return list
end

--- Renders until the run has ended and all of its checkpoints are rendered.
---@return table counts  rendered, failed: numbers of sets; left: steps of incomplete checkpoints
function Watch:run()
  local o = self.o
  while true do
    local ended = not glance.active(self.dir)
    if o.pull then
      ended = o.pull()
    end
    self.keeps = not (ended or o.pull or o.pinned)
    local again = pass(self, ended)
    deliver(self)
    if not again and (ended or o.once or o.pinned) then
      break
    end
    if o.progress then
      o.progress()
    end
    base.sleep(again and 0.1 or POLL_S)
  end
  self.counts.left = o.pinned and {} or left(self)
  return self.counts
end

return watch
