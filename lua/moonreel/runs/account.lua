--- Where the wall time of a run went, from its journal: steps that count, waits for data, saves,
-- steps done twice, what lies between launches.
-- @module moonreel.runs.account
local story = require "moonreel.runs.story"
local tail = require "moonreel.runs.tail"

local account = {}

local function number(value) return type(value) == "number" and value or 0 end

-- seconds of steps, and those in which they waited for data
local function steps_of(list)
  local seconds, waits, n = 0, 0, 0
  for _, line in ipairs(list) do
    local wait = math.min(number(line.data_wait_s), number(line.time_s))
    seconds, waits, n = seconds + number(line.time_s) - wait, waits + wait, n + 1
  end
  return seconds, waits, n
end

--- Follow journals for an account.
---@class mr.Account
local Account = {}
Account.__index = Account

---@return mr.Account
function account.new()
  return setmetatable({ story = story.new(), saves_s = 0, saves = 0, between_s = 0, stopped_s = 0,
    launches = 0, rollbacks = 0, inside_s = 0 }, Account)
end

--- Take the next line of the journal.
---@param entry table
function Account:add(entry)
  local wall = type(entry.wall) == "number" and entry.wall or nil
  local kind = entry.kind
  if kind == "start" then
    self.launches = self.launches + 1
    if wall and self.newest then
      local gap = math.max(0, wall - self.newest)
      local asked = self.last == "end" or self.last == "stop"
      local field = asked and "stopped_s" or "between_s"
      self[field] = self[field] + gap
    end
  elseif kind == "save" and entry.event == "commit" then
    self.saves_s, self.saves = self.saves_s + number(entry.copy_s), self.saves + 1
  elseif kind == "rollback" then
    self.rollbacks = self.rollbacks + 1
  end
  if wall then
    -- a launch begins with its line "start"; until then another one's time goes on
    if self.newest and kind ~= "start" then
      self.inside_s = self.inside_s + math.max(0, wall - self.newest)
    end
    self.first = self.first or kind == "start" and wall or nil
    self.newest = math.max(self.newest or wall, wall)
  end
  self.last = kind
  self.story:add(entry)
end

--- The account: rows {what, seconds, share = of the whole, from 0 to 1, n = how often}. The first
-- one is what trained; the last one is the whole, from the first launch to the newest line.
---@return table[] rows
function Account:rows()
  local train_s, wait_s, steps = steps_of(self.story:curve())
  local undone_s, undone_wait_s, undone = steps_of(self.story.undone)
  local known = train_s + wait_s + undone_s + undone_wait_s + self.saves_s
  local whole = self.inside_s + self.between_s + self.stopped_s
  local rows = {
    { what = "training", seconds = train_s, n = steps },
    { what = "waiting for data", seconds = wait_s },
    { what = "saving", seconds = self.saves_s, n = self.saves },
    { what = "steps taken back", seconds = undone_s + undone_wait_s, n = undone },
    { what = "other work of a launch", seconds = math.max(0, self.inside_s - known) },
    { what = "restarting after a failure", seconds = self.between_s },
    { what = "stopped on request", seconds = self.stopped_s },
    { what = "whole run", seconds = whole, n = self.launches },
  }
  for _, row in ipairs(rows) do
    row.share = whole > 0 and row.seconds / whole or nil
  end
  return rows
end

--- The account of the parts of a run.
---@param parts table[]  of find.parts
---@return mr.Account[]  one for each part
function account.of(parts)
  local list = {}
  for i, part in ipairs(parts) do
    local one = account.new()
    for entry in tail.open(part.dir .. "/journal.jsonl"):entries() do
      one:add(entry)
    end
    list[i] = one
  end
  return list
end

return account
