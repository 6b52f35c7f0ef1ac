--- Reads from a journal the sessions of a run, and one line for each step that counts. A session
-- begins with the line "start". This line and the line "rollback" name the step from which the run
-- continues; earlier lines of later steps no longer count.
-- @module moonreel.runs.events
local run = require "moonreel.run"
local tail = require "moonreel.runs.tail"

local events = {}

local LAST_STEP <const> = 100000000 -- a larger number is damage, not a step

local Events = {}
Events.__index = Events

---@class mr.Events
---@field steps table[]     lines "step" and "skip" that count, by their number; there may be gaps
---@field undone table[]    lines that a later session or a rollback discarded, in the order of time
---@field sessions table[]  {start = its line, first, last = numbers of its steps (nil: it has no
---   steps), ended = wall time of its newest line}, oldest first
---@field events table[]    all other lines, in the order of time
---@field last table|nil    the newest line
---@field highest integer   the largest number of a step that counts; 0: no step counts

--- Makes an empty record of events.
---@param kept (fun(line: table): any)|nil  what is kept of a step's line (not nil or false) in
---   place of the line; then other lines are not kept. A million lines take 300 MB
---@return mr.Events
function events.new(kept)
  return setmetatable({ steps = {}, undone = {}, sessions = {}, events = {}, highest = 0,
    kept = kept }, Events)
end

-- the run is at this step: later steps no longer count
local function stand_at(self, step)
  for number = self.highest, step + 1, -1 do
    local line = self.steps[number]
    self.steps[number] = nil
    if line and not self.kept then
      self.undone[#self.undone + 1] = line
    end
  end
  self.highest = math.min(self.highest, step)
end

local function add_step(self, line)
  local session = self.sessions[#self.sessions]
  stand_at(self, line.step - 1)
  self.steps[line.step], self.highest = self.kept and self.kept(line) or line, line.step
  if session then
    session.first, session.last = session.first or line.step, line.step
  end
end

--- Takes the next line.
---@param line table  a line of the journal
---@return string     "session", "rollback", "step" (lines "step" and "skip") or "event"
function Events:add(line)
  local kind, what = line.kind, "event"
  local whole = math.type(line.step) == "integer" and line.step <= LAST_STEP
  self.last = line
  if kind == "start" and whole then
    self.sessions[#self.sessions + 1], what = { start = line }, "session"
    stand_at(self, line.step)
  elseif kind == "rollback" and whole then
    what = "rollback"
    stand_at(self, line.step)
  elseif (kind == "step" or kind == "skip") and whole then
    what = "step"
    add_step(self, line)
  end
  if what ~= "step" and not self.kept then
    self.events[#self.events + 1] = line
  end
  local session = self.sessions[#self.sessions]
  if session then
    session.ended = line.wall or session.ended
  end
  return what
end

--- The lines of steps that count, in their order.
---@return table[]
function Events:curve()
  local list = {}
  for number = 1, self.highest do
    list[#list + 1] = self.steps[number]
  end
  return list
end

--- Reads a journal up to its present end.
---@param path string  a run's directory, or the file
---@param kept function|nil  as in events.new
---@return mr.Events
function events.read(path, kept)
  local self = events.new(kept)
  for line in run.entries(path) do
    self:add(line)
  end
  return self
end

--- The steps that count in the parts of a run, one part after another; `stage` of each line is the
-- name of its stage, if there are stages.
---@param parts table[]  from moonreel.runs.find.parts; a part without a journal has no steps
---@return table[]
function events.steps(parts)
  local list = {}
  for _, part in ipairs(parts) do
    local self = events.new()
    for entry in tail.open(part.dir .. "/journal.jsonl"):entries() do
      self:add(entry)
    end
    for _, line in ipairs(self:curve()) do
      line.stage = part.stage
      list[#list + 1] = line
    end
  end
  return list
end

return events
