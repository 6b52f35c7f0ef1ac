--- The events of a run in the order of time, from all files that record them: journals of the run
-- or of its stages, notes, samples that could not be read. It may be read again while the run
-- writes.
-- @module moonreel.runs.history
local find = require "moonreel.runs.find"
local json = require "moonreel.core.json"
local notes = require "moonreel.runs.notes"
local tail = require "moonreel.runs.tail"
local words = require "moonreel.runs.words"

local history = {}

local History = {}
History.__index = History

---@param dir string          directory of the run
---@param every integer       print one line for this many steps; all other lines are shown
---@return mr.History
function history.open(dir, every)
  return setmetatable({ dir = dir, every = every, files = {}, of_path = {} }, History)
end

-- begins to follow a file, once
local function follow(self, path, kind, stage)
  if not self.of_path[path] then
    local one = { tail = tail.open(path), kind = kind, context = { stage = stage }, hosts = {} }
    self.of_path[path], self.files[#self.files + 1] = one, one
  end
end

-- finds new files: a stage may have begun since the last look
local function find_files(self)
  follow(self, notes.path(self.dir), "notes")
  for _, part in ipairs(find.parts(self.dir)) do
    follow(self, part.dir .. "/journal.jsonl", "journal", part.stage)
    follow(self, part.dir .. "/quarantine.jsonl", "quarantine", part.stage)
  end
end

-- Is this line of a journal shown? The first step of each launch is shown. The report of a host is
-- shown if it is the first of its launch, or if the faults of the host have changed.
local function is_shown(self, file, entry)
  if entry.kind == "node" and self.every > 1 then
    local faults = type(entry.faults) == "table" and json.encode(entry.faults) or ""
    local host = tostring(entry.host)
    local changed = file.hosts[host] ~= faults
    file.hosts[host] = faults
    return changed
  elseif entry.kind ~= "step" then
    return true
  end
  local first = file.began
  file.began = false
  return first or type(entry.step) ~= "number" or entry.step % self.every == 0
end

-- most lines are steps that are not shown
local function is_passed(self, file, line)
  local step = self.every > 1 and file.kind == "journal" and not file.began and tail.step_of(line)
  return step and step % self.every ~= 0
end

-- decodes the lines that may be shown
local function entries_of(self, file)
  local lines = file.tail:lines()
  return function()
    while true do
      local line = lines()
      local entry = line and not is_passed(self, file, line) and tail.decode(line)
      if entry or not line then
        return entry or nil
      end
    end
  end
end

local function read(self, file, into)
  for entry in entries_of(self, file) do
    local wall = entry.wall or file.kind == "quarantine" and entry.time
    -- A line without a time gets that of the line before. Lines of one file keep their order, even
    -- if a clock was set back.
    file.wall = type(wall) == "number" and wall or file.wall
    file.place = math.max(file.place or 0, file.wall or 0)
    if entry.kind == "start" then
      file.began, file.hosts, file.context.total = true, {}, entry.total
    end
    if file.kind == "quarantine" then
      into[#into + 1] = { wall = file.wall, place = file.place, kind = "failed",
        stage = file.context.stage, text = words.failed(entry), entry = entry }
    elseif is_shown(self, file, entry) then
      into[#into + 1] = { wall = file.wall, place = file.place, kind = tostring(entry.kind),
        stage = file.context.stage, entry = entry, text = words.of(entry, file.context) }
    end
  end
end

--- The events since the last call, oldest first.
---@return table[]  {wall = seconds since 1970 or nil, kind, stage, text, entry}
function History:more()
  find_files(self)
  local list = {}
  for _, file in ipairs(self.files) do
    read(self, file, list)
  end
  -- a stable order: lines of one file keep their order
  for i, one in ipairs(list) do
    one.at = i
  end
  table.sort(list, function(a, b)
    if a.place ~= b.place then
      return a.place < b.place
    end
    return a.at < b.at
  end)
  return list
end

return history
