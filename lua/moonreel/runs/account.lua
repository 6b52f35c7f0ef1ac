--- Accounts for the wall time of a run, from its journal: steps that count, waits for data and for
-- other ranks, saves, repeated steps, time between launches; for the run and for each host.
-- @module moonreel.runs.account
local events = require "moonreel.runs.events"
local tail = require "moonreel.runs.tail"

local account = {}

local function number(value) return type(value) == "number" and value or 0 end
local function table_of(value) return type(value) == "table" and value or {} end

-- ---- hosts of a launch ----

-- the hosts in a line "start": {name, ranks} of each
local function hosts_of(entry)
  local list = {}
  for _, host in ipairs(table_of(entry.hosts)) do
    host = table_of(host)
    list[#list + 1] = type(host.name) == "string" and { name = host.name,
      ranks = math.max(1, number(host.ranks)) } or nil
  end
  return list
end

-- Seconds in which a step waited for data and for other ranks, on a host; without a host the mean
-- of all ranks. Nil: the host had no part in the step. If a line has no values by host, those of
-- all ranks are used.
local function waits_of(line, hosts, name)
  local waits = table_of(line.host_waits)
  local data, others, ranks = 0, 0, 0
  for i, host in ipairs(hosts) do
    if not name or host.name == name then
      local own = table_of(waits.data_s)[i]
      data = data + host.ranks * number(type(own) == "number" and own or line.data_wait_s)
      others = others + host.ranks * number(table_of(waits.others_s)[i])
      ranks = ranks + host.ranks
    end
  end
  if ranks == 0 and name then
    return nil
  elseif ranks == 0 then
    return number(line.data_wait_s), 0
  end
  return data / ranks, others / ranks
end

-- ---- the account of the run or of one host ----

local function ledger(name)
  return { name = name, saves_s = 0, saves = 0, between_s = 0, stopped_s = 0, launches = 0,
    inside_s = 0 }
end

--- Follows journals for an account.
---@class mr.Account
local Account = {}
Account.__index = Account

---@return mr.Account
function account.new()
  local all = ledger()
  -- `now`: the hosts of the current launch; `placed`: the hosts of a step's line
  return setmetatable({ events = events.new(), all = all, hosts = {}, now = { all }, here = {},
    placed = {} }, Account)
end

-- adds to the fields of all objects in a list
local function add(list, field, value)
  for _, one in ipairs(list) do
    one[field] = one[field] + value
  end
end

-- begins a launch: its hosts, and the time since the launch before for hosts that were in both
local function begin(self, entry, wall)
  local before = self.now
  self.here, self.now = hosts_of(entry), { self.all }
  for _, host in ipairs(self.here) do
    if not self.hosts[host.name] then
      self.hosts[host.name] = ledger(host.name)
      self.hosts[#self.hosts + 1] = self.hosts[host.name]
    end
    self.now[#self.now + 1] = self.hosts[host.name]
  end
  if wall and self.newest then
    local asked, both = self.last == "end" or self.last == "stop", {}
    for _, one in ipairs(before) do
      both[one] = true
    end
    for _, one in ipairs(self.now) do
      add({ both[one] and one or nil }, asked and "stopped_s" or "between_s",
        math.max(0, wall - self.newest))
    end
  end
  add(self.now, "launches", 1)
end

--- Takes the next line of the journal.
---@param entry table
function Account:add(entry)
  local wall = type(entry.wall) == "number" and entry.wall or nil
  local kind = entry.kind
  if kind == "start" then
    begin(self, entry, wall)
  elseif kind == "save" and entry.event == "commit" then
    add(self.now, "saves_s", number(entry.copy_s))
    add(self.now, "saves", 1)
  end
  if wall then
    -- a launch begins with its line "start"; until then the time belongs to the launch before
    if self.newest and kind ~= "start" then
      add(self.now, "inside_s", math.max(0, wall - self.newest))
    end
    self.newest = math.max(self.newest or wall, wall)
  end
  self.last, self.placed[entry] = kind, self.here
  self.events:add(entry)
end

-- seconds of steps, and of their waits for data and for other ranks
local function steps_of(self, list, name)
  local seconds, data_s, others_s, n = 0, 0, 0, 0
  for _, line in ipairs(list) do
    local data, others = waits_of(line, self.placed[line], name)
    if data then
      local time = number(line.time_s)
      data = math.min(data, time)
      others = math.min(others, time - data)
      seconds, data_s, others_s, n = seconds + time - data - others, data_s + data,
        others_s + others, n + 1
    end
  end
  return seconds, data_s, others_s, n
end

-- the rows of the run, or of a host
local function rows_of(self, one)
  local train_s, data_s, others_s, steps = steps_of(self, self.events:curve(), one.name)
  local undone_s, undone_data_s, undone_others_s, undone = steps_of(self, self.events.undone,
    one.name)
  undone_s = undone_s + undone_data_s + undone_others_s
  local known = train_s + data_s + others_s + undone_s + one.saves_s
  local whole = one.inside_s + one.between_s + one.stopped_s
  local rows = {
    { what = "training", seconds = train_s, n = steps },
    { what = "waiting for data", seconds = data_s },
    { what = "waiting for other ranks", seconds = others_s },
    { what = "saving", seconds = one.saves_s, n = one.saves },
    { what = "steps taken back", seconds = undone_s, n = undone },
    { what = "other work of a launch", seconds = math.max(0, one.inside_s - known) },
    { what = "restarting after a failure", seconds = one.between_s },
    { what = "ended or stopped, until the next launch", seconds = one.stopped_s },
    { what = "whole run", seconds = whole, n = one.launches },
  }
  for _, row in ipairs(rows) do
    row.share, row.host = whole > 0 and row.seconds / whole or nil, one.name
  end
  return rows
end

--- The account of the run: rows {what, seconds, share = of the whole, from 0 to 1, n = count}. The
-- first row is the training time, as the mean of all ranks; the last one is the whole run, from the
-- first launch to the newest line.
---@return table[] rows
function Account:rows() return rows_of(self, self.all) end

--- The account of each host of a run with several, over the launches of which it was a part: lists
-- of the same rows, with `host`.
---@return table[][] lists
function Account:by_host()
  local lists = {}
  for i, one in ipairs(#self.hosts > 1 and self.hosts or {}) do
    lists[i] = rows_of(self, one)
  end
  return lists
end

--- The accounts of the parts of a run.
---@param parts table[]  from find.parts
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
