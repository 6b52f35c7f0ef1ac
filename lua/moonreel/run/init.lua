--- Run directories: creates them, locks them, writes and reads their journal. outputs/NNN-name/
-- contains recipe.lua, settings.json, journal.jsonl, ckpt/, samples/, log/. A run of several stages
-- contains settings.json and stages/NAME/, each with these files.
-- @module moonreel.run
local core = require "moonreel.core.run"
local core_journal = require "moonreel.core.journal"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

local run = {}

-- the folders of a path that do not exist, outermost first
local function missing(path)
  local list = {}
  while path and path ~= "" and not base.exists(path) do
    table.insert(list, 1, path)
    path = path:match("^(.*[^/])/+[^/]+/*$")
  end
  return list
end

-- removes folders again, innermost first; one in which another process has made a run stays
local function remove_empty(folders)
  for i = #folders, 1, -1 do
    os.remove(folders[i])
  end
end

--- Creates outputs/NNN-name with ckpt/, samples/ and log/, or with only stages/. NNN is 1 + the
-- largest number there.
---@param staged boolean|nil
---@return string path
---@return string[] made  folders around it that did not exist, for run.discard
function run.create(outputs, name, staged)
  local made = missing(outputs)
  local good, path = pcall(core.create, outputs, name, staged)
  if not good then
    remove_empty(made)
    error(path, 0)
  end
  return path, made
end

--- Removes the directory of a run that did not begin, and the folders that were made for it.
---@param path string
---@param made string[]  from run.create; of those the empty ones are removed
function run.discard(path, made)
  base.remove_dir(path)
  remove_empty(made)
end

--- Creates RUN/stages/NAME with ckpt/, samples/ and log/. An existing folder is used unchanged.
---@return string path
function run.stage(path, name) return core.stage(path, name) end

--- The stages of a run that have begun, oldest first, as {name, path}; nil: the run has no stages.
---@return table[]|nil
function run.stages(path)
  if not base.exists(path .. "/stages/.") then
    return nil
  end
  local file, begun = path .. "/settings.json", {}
  -- a launch that was killed early may have created only the directory
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

--- The run of a stage directory, and the stage's name; nil: it is not a stage.
function run.outer(path)
  local outer, name = path:match("^(.*)/stages/([^/]+)$")
  if outer and base.exists(outer .. "/settings.json") then
    return outer, name
  end
end

--- Acquires the lock of a run directory as its only writer; raises MR_E_LOCK with the owner.
-- The lock has id(), fence(), dir(), check(), close().
function run.lock(path) return core.lock(path) end

--- The owner of a run's lock: {run = id, fence, owned, dead, host, pid}.
function run.owner(path) return core.owner(path) end

---@class mr.RunJournal
local Journal = {}
Journal.__index = Journal
Journal.__name = "mr.RunJournal"

--- Opens <path>/journal.jsonl to append. A line that a crash cut off is removed.
---@return mr.RunJournal
function run.journal(path)
  return setmetatable({ handle = core_journal.open(path .. "/journal.jsonl") }, Journal)
end

--- Appends an entry, a table of JSON values. If the disk does not accept it, it waits in memory and
-- is written before the next entry.
function Journal:append(entry) self.handle:append(json.encode(entry)) end

--- Entries that wait for the disk: their number, the reason, and how many were dropped because too
-- many waited.
---@return integer waiting
---@return string reason
---@return integer left_out
function Journal:waiting() return self.handle:waiting() end

--- Makes all entries so far durable; raises MR_E_IO, also while entries wait.
function Journal:sync() self.handle:sync() end

--- Closes the journal. It may be called twice.
function Journal:close() self.handle:close() end
Journal.__close = Journal.close

--- The directory in which a run was first started. Relative paths of its recipe start there.
---@param dir string  folder of the run
---@return string|nil  absolute; nil: its journal does not begin with this entry
function run.began_in(dir)
  local first = base.exists(dir .. "/journal.jsonl") and run.entries(dir)()
  return first and type(first.directory) == "string" and first.directory or nil
end

--- Iterates over the entries of a journal file or run directory, oldest first. An incomplete last
-- line is left out; a line that is not a JSON object is skipped.
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
