--- Shows a run in other tools: TensorBoard event files and offline W&B runs. Both are made from the
-- journal, and can be made from it again at any time, byte for byte.
-- @module moonreel.trackers
local base = require "moonreel.core.base"
local files = require "moonreel.trackers.files"
local follow = require "moonreel.trackers.follow"
local run = require "moonreel.run"

local trackers = {}

-- trackers by name, with new(store), path(part), whole(text), closed(path)
local kinds = { tensorboard = "moonreel.trackers.tensorboard", wandb = "moonreel.trackers.wandb" }
local names = { "tensorboard", "wandb" }

-- writes from the journals what is missing of some parts
local function make(name, root, wanted, stop)
  local kind = require(kinds[name])
  local store = files.whole { folder = root .. "/" .. name, whole = kind.whole,
    closed = kind.closed }
  local follower = follow.new(root, { kind.new(store) }, wanted)
  local line = follower:look(stop)
  follower:close_part(line)
  return store.report, follower
end

-- does the newest session of a run write this tracker's files itself?
local function writes(root, name)
  local follower = follow.new(root)
  follower:look()
  local last = follower.parts[#follower.parts]
  return last and type(last.session.trackers) == "table" and last.session.trackers[name] ~= nil
end

--- Makes the files of a tracker from a run's journal. Existing complete files are left unchanged; a
-- torn file is written again.
---@param path string   the folder of the run, or of a stage, which means its run
---@param name string   "tensorboard" or "wandb"
---@return table report  folder: where the files are; parts: sessions and rollbacks; written, kept:
---   number of files; left: paths with contents that this run did not write, or that were uploaded
---   already. Errors: MR_E_USAGE for an unknown tracker; MR_E_LOCK if a running run writes the
---   files itself; MR_E_DATA if the run has no journal or no session; MR_E_IO
function trackers.export(path, name)
  if not kinds[name] then
    base.raise("MR_E_USAGE", ("--export %s: there is no such tracker; expected one of %s"):format(
      tostring(name),
      table.concat(names, ", ")))
  end
  path = #path > 1 and path:gsub("/+$", "") or path
  local root = run.outer(path) or path
  if not base.exists(root .. "/journal.jsonl") and not base.exists(root .. "/stages/.") then
    base.raise("MR_E_DATA", root .. ": there is no journal.jsonl; try: the folder of a run")
  end
  local owner = run.owner(root)
  if owner.owned and not owner.dead and writes(root, name) then
    base.raise("MR_E_LOCK", ("%s is running on %s (pid %s) and writes %s/%s itself; try: this "
      .. "command after it has ended"):format(root, owner.host, owner.pid, root, name))
  end
  local report, follower = make(name, root)
  if #follower.parts == 0 then
    base.raise("MR_E_DATA", root .. ": its journal has no session yet, so there is nothing to show")
  end
  report.folder, report.parts = root .. "/" .. name, #follower.parts
  return report
end

-- ---- during a run that trains ----

---@class mr.Trackers
local Trackers = {}
Trackers.__index = Trackers

-- Wraps a writer so that its failures do not end the run: the first failure is reported, and then
-- the writer is not used again.
local function guarded(self, name, writer, store)
  local function fail(why)
    self.failed[name] = why
    self.report(name, why)
  end
  return setmetatable({}, { __index = function(_, method)
    return function(_, ...)
      if not self.off[name] then
        local good, why = pcall(writer[method], writer, ...)
        if not good then
          self.off[name] = true
        end
        why = not good and tostring(type(why) == "table" and why.message or why)
          or store:error()
        if why and not self.failed[name] then
          fail(why)
        end
      end
    end
  end })
end

-- Completes parts before the session that begins: parts that a killed session left, and parts that
-- no tracker wrote.
local function mend(self, kind, name, root, stop, parts)
  local wanted, any = {}, false
  for _, part in ipairs(parts) do
    local path = kind.path(part)
    if not part.whole or not base.exists(path) then
      wanted[part.number], any = true, true
    end
  end
  if any then
    local report = make(name, root, function(part) return wanted[part.number] end, stop)
    for _, path in ipairs(report.left) do
      if not (kind.closed and kind.closed(path)) then
        self.say(path .. ": contains data that this run did not write; it is left unchanged")
      end
    end
  end
end

--- Begins to write the requested files, during a run whose line "start" is in its journal.
---@param given table  dir: folder of the run or stage; root: of the run; branch: of its lock;
---   names: list of trackers; say: fun(line): messages for the user; report: fun(name, why): called
---   once for a tracker that fails
---@return mr.Trackers
function trackers.open(given)
  local self = setmetatable({ failed = {}, off = {}, say = given.say, report = given.report },
    Trackers)
  local function is_ours(line, dir)
    return line.kind == "start" and line.branch == given.branch and dir == given.dir
  end
  self.follower = follow.new(given.root)
  local start = self.follower:look(is_ours)
  if not start then
    return self
  end
  -- the last part is incomplete if its session did not end
  local last = self.follower.parts[#self.follower.parts]
  if last and not self.follower.ended then
    last.whole = false
  end
  for _, name in ipairs(given.names) do
    local kind = require(kinds[name])
    local good, why = pcall(mend, self, kind, name, given.root, is_ours, self.follower.parts)
    if not good then
      self.failed[name] = tostring(type(why) == "table" and why.message or why)
      self.report(name, self.failed[name])
    end
    local store = files.growing(given.root .. "/" .. name)
    table.insert(self.follower.writers, guarded(self, name, kind.new(store), store))
  end
  self.follower.open = nil
  self.follower:take(start)
  self:look()
  return self
end

--- Writes what is new in the journal. Failures are reported, not raised.
function Trackers:look()
  local good, why = pcall(self.follower.look, self.follower)
  if not good and not self.failed.journal then
    self.failed.journal = true
    self.report("journal", tostring(type(why) == "table" and why.message or why))
  end
end

--- Writes the rest and closes the files. It may be called twice.
function Trackers:close()
  self:look()
  self.follower:close_part()
end
Trackers.__close = Trackers.close

return trackers
