--- Run directories: makes them, locks them, writes and reads their journal. outputs/NNN-name/ holds
-- recipe.lua, settings.json, journal.jsonl, ckpt/, samples/, log/; a run of several stages holds
-- settings.json and stages/NAME/, each with these files.
-- @module moonreel.run
local core = require "moonreel.core.run"
local core_journal = require "moonreel.core.journal"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

local run = {}

--- Make outputs/NNN-name, NNN = 1 + the largest number there, with ckpt/, samples/ and log/, or
-- with stages/ alone.
---@param staged boolean|nil
---@return string path
function run.create(outputs, name, staged) return core.create(outputs, name, staged) end

--- Make RUN/stages/NAME with ckpt/, samples/ and log/; one that is there is taken as it is.
---@return string path
function run.stage(path, name) return core.stage(path, name) end

--- The stages of a run that have begun, oldest first, as {name, path}; nil for a run without
-- stages.
---@return table[]|nil
function run.stages(path)
  if not base.exists(path .. "/stages/.") then
    return nil
  end
  local file, begun = path .. "/settings.json", {}
  -- a launch killed at once may have made the directory alone
  if not base.exists(file) then
    return begun
  end
  for _, one in ipairs(json.decode(base.read_file(file), file).settings.stages) do
    local dir = path .. "/stages/" .. one.name
    if base.exists(dir .. "/.") then
      begun[#begun + 1] = { name = one.name, path = dir }
    end
  end
  return begun
end

--- The run that a directory is a stage of, and the stage's name; nil when it is no stage.
function run.outer(path)
  local outer, name = path:match("^(.*)/stages/([^/]+)$")
  if outer and base.exists(outer .. "/settings.json") then
    return outer, name
  end
end

--- Become the one writer of a run directory; raises MR_E_LOCK naming the owner.
-- The lock has id(), fence(), dir(), check(), close().
function run.lock(path) return core.lock(path) end

--- Who holds a run: {run = id, fence, owned, dead, host, pid}.
function run.owner(path) return core.owner(path) end

---@class mr.RunJournal
local Journal = {}
Journal.__index = Journal
Journal.__name = "mr.RunJournal"

--- Open <path>/journal.jsonl for append. A line cut by a crash is removed.
---@return mr.RunJournal
function run.journal(path)
  return setmetatable({ handle = core_journal.open(path .. "/journal.jsonl") }, Journal)
end

--- Append one entry: a table of JSON values. Where the disk does not take it, it waits in memory
-- and is written before the next one.
function Journal:append(entry) self.handle:append(json.encode(entry)) end

--- Entries that wait for the disk: their number, why, and how many were left out for good because
-- too many waited.
---@return integer waiting
---@return string reason
---@return integer left_out
function Journal:waiting() return self.handle:waiting() end

--- Make all entries so far durable; raises MR_E_IO, also while entries wait.
function Journal:sync() self.handle:sync() end

--- Close; harmless twice.
function Journal:close() self.handle:close() end
Journal.__close = Journal.close

--- The directory in which a run was started first: relative paths of its recipe count from there.
---@param dir string  of the run
---@return string|nil  absolute; nil where its journal does not begin with it
function run.began_in(dir)
  local first = base.exists(dir .. "/journal.jsonl") and run.entries(dir)()
  return first and type(first.directory) == "string" and first.directory or nil
end

--- Iterate over the entries of a journal file or run directory, oldest first. A cut last line is
-- not given; a line that is no object of JSON is skipped.
---@param path string  run directory or file
---@return fun(): table?
function run.entries(path)
  local file = base.exists(path .. "/journal.jsonl") and path .. "/journal.jsonl" or path
  local reader = core_journal.read(file)
  return function()
    while true do
      local line = reader:next()
      if not line then
        reader:close()
        return nil
      end
      local ok, entry = pcall(json.decode, line)
      if ok and type(entry) == "table" then
        return entry
      end
    end
  end
end

return run
