--- Splits a run's journal into parts, each of which continues after a step of the part before: a
-- session, or what follows a rollback within a session. The stages of a run form one sequence: a
-- stage begins where the stage before it ended, whatever the numbers of its own steps are.
-- @module moonreel.trackers.follow
local base = require "moonreel.core.base"
local run = require "moonreel.run"
local tail = require "moonreel.runs.tail"

local follow = {}

---@class mr.TrackerPart
---@field number integer   from 1
---@field how string       "start": a new run; "resume": continues after the newest step; "rewind":
---   continues after an older step, and later steps are taken back
---@field step integer     the step after which it continues
---@field wall number      start in seconds since 1970, at least 1 s after the previous part
---@field first_wall number start of part 1
---@field id string        id of the run
---@field name string      name of the run: the name of its folder
---@field dir string       the folder of the run or stage
---@field root string      the run's folder
---@field opens boolean    it is the first part of its journal
---@field session table     the line "start" of its session
---@field whole boolean    its session continued or ended in order, and no tracker failed in it

---@class mr.TrackerFollower
---@field parts mr.TrackerPart[]
---@field writers table[]   each with begin(part), step(line, step), note(line, step),
---   finish(line, step), close(line)
local Follower = {}
Follower.__index = Follower

--- The time of a line in seconds since 1970; nil: it has no valid time.
---@param line table  line of the journal
---@return number|nil
function follow.wall(line)
  local wall = line.wall
  return type(wall) == "number" and wall >= 0 and wall < 1e10 and wall or nil
end

local function folders_of(root)
  local list = {}
  for _, stage in ipairs(run.stages(root) or { { path = root } }) do
    if base.exists(stage.path .. "/journal.jsonl") then
      list[#list + 1] = stage.path
    end
  end
  return list
end

--- Creates a follower that starts at the beginning of a run.
---@param root string       folder of the run; for a run with stages the outer folder
---@param writers table[]|nil
---@param wanted nil|fun(part: mr.TrackerPart): boolean  parts that writers receive; absent: all
---@return mr.TrackerFollower
function follow.new(root, writers, wanted)
  return setmetatable({ root = root, writers = writers or {}, wanted = wanted, parts = {},
    folders = folders_of(root), at = 0, base = 0, highest = 0 }, Follower)
end

local function each(self, name, ...)
  for _, writer in ipairs(self.on and self.writers or {}) do
    writer[name](writer, ...)
  end
end

--- Closes the open part.
---@param line table|nil  the line that ends it
function Follower:close_part(line)
  if self.open then
    self.open = nil
    each(self, "close", line)
  end
end

local function begin(self, how, step, line)
  local before = self.parts[#self.parts]
  self:close_part(line)
  local wall = follow.wall(line) or 0
  if before then
    wall = math.max(wall, before.wall + 1)
  end
  local part = { number = #self.parts + 1, how = how, step = step, wall = wall,
    first_wall = before and before.first_wall or wall, id = self.id or "unnamed",
    name = self.root:match "([^/]+)/*$", dir = self.folders[self.at], root = self.root,
    opens = self.opens, session = self.session or {}, whole = true }
  self.opens, self.ended = false, false
  self.parts[#self.parts + 1], self.open, self.highest = part, part, step
  self.on = not self.wanted or self.wanted(part)
  each(self, "begin", part)
end

local function begin_session(self, line)
  -- the count of a stage may begin again
  if self.opens then
    self.base = self.highest - (#self.parts > 0 and line.step or self.highest)
  end
  local before, step = self.parts[#self.parts], self.base + line.step
  if before and not self.ended then
    before.whole = false
  end
  -- all stages form one run
  self.id = self.id or tostring(line.run):match "^[%w_-]+$"
  self.session = line
  begin(self, not before and "start" or step < self.highest and "rewind" or "resume", step, line)
end

--- Takes the next line.
---@param line table  line of the journal
function Follower:take(line)
  local kind, whole = line.kind, math.type(line.step) == "integer"
  local step = whole and self.base + line.step
  if kind == "start" and whole then
    begin_session(self, line)
  elseif kind == "rollback" and whole then
    each(self, "note", line, step)
    begin(self, "rewind", step, line)
  elseif (kind == "step" or kind == "skip") and whole then
    if not self.open or step <= self.highest then
      begin(self, #self.parts == 0 and "start" or step <= self.highest and "rewind" or "resume",
        step - 1, line)
    end
    self.highest = step
    each(self, "step", line, step)
  elseif self.open then
    local part = self.open
    if kind == "tracker" or self.ended then
      part.whole = false
    end
    if kind == "end" or kind == "stop" then
      self.ended = true
      each(self, "finish", line, step or self.highest)
    else
      each(self, "note", line, step or self.highest)
    end
  end
end

-- A step that no writer receives is not decoded. Is this line such a step, and after the last one?
local function is_passed(self, line)
  local step = not (self.on and #self.writers > 0) and self.open and tail.step_of(line)
  if step and self.base + step > self.highest then
    self.highest = self.base + step
    return true
  end
end

-- the next line of the journals: a table, or nil
local function next_line(self)
  self.lines = self.lines or self.reader and self.reader:lines()
  while true do
    local line = self.lines and self.lines()
    local entry = line and not is_passed(self, line) and tail.decode(line)
    if entry then
      return entry
    elseif not line and self.at < #self.folders then
      self.at = self.at + 1
      self.reader = tail.open(self.folders[self.at] .. "/journal.jsonl")
      self.lines, self.opens = self.reader:lines(), true
    elseif not line then
      self.lines = nil -- a later call continues after the last whole line
      return nil
    end
  end
end

--- Takes all available lines, up to a line that `stop` selects, which is returned.
---@param stop nil|fun(line: table, dir: string): boolean
---@return table|nil line
function Follower:look(stop)
  while true do
    local line = next_line(self)
    if not line or stop and stop(line, self.folders[self.at]) then
      return line
    end
    self:take(line)
  end
end

return follow
