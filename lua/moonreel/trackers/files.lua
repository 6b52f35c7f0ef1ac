--- The files of trackers: files that grow while a run trains, and files that are written at once.
-- @module moonreel.trackers.files
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

local files = {}

local WAITING_MAX <const> = 16 << 20 -- bytes that a file holds back while the disk is full

--- How files are opened; specs put a full disk here.
files.open = io.open

-- a whole file, also one of gigabytes
local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return assert(file:read "a")
end

-- ---- what was written ----

local function relative(ledger, path) return path:sub(#ledger.folder + 2) end

local function print_of(text) return { bytes = #text, hash = base.hash128(text) } end

-- what written.json of a tracker's folder says: file -> {bytes, hash} as it was when it was closed,
-- so that a file that something else has changed is known
local function open_ledger(folder)
  local path = folder .. "/written.json"
  local good, list = pcall(function() return json.decode(base.read_file(path), path) end)
  return { folder = folder, path = path, list = good and type(list) == "table" and list or {} }
end

local function is_ours(ledger, path, text)
  local row = ledger.list[relative(ledger, path)]
  return type(row) == "table" and row.bytes == #text and row.hash == base.hash128(text)
end

local function remember(ledger, path, text)
  if not is_ours(ledger, path, text) then
    ledger.list[relative(ledger, path)] = print_of(text)
    base.replace_file(ledger.path, json.encode(ledger.list, { indent = 1 }) .. "\n")
  end
end

-- ---- files that grow ----

---@class mr.TrackerFile
---@field path string
---@field good integer        bytes that are written for sure
---@field waiting string[]    what follows them, not yet on the disk
---@field trouble string|nil  why the disk does not take it
local File = {}
File.__index = File

-- the result of a call on a file; raises with the file's path where there is none
local function check(self, result, why)
  if not result then
    local text = tostring(why)
    error(text:sub(1, #self.path) == self.path and text or self.path .. ": " .. text, 0)
  end
  return result
end

-- the file, open; made when it is first needed
local function handle_of(self)
  if self.handle then
    return self.handle
  end
  if not self.made then
    base.make_dir(self.path:match "^(.*)/[^/]*$")
    if base.exists(self.path) then
      error(self.path .. ": something else has made this file", 0)
    end
    check(self, files.open(self.path, "wb")):close()
    self.made = true
  end
  self.handle = check(self, files.open(self.path, "r+b"))
  self.handle:setvbuf "no"
  return self.handle
end

-- nothing is written behind the bytes of another writer
local function check_alone(self, handle)
  local size = check(self, handle:seek "end")
  local most = self.good + (self.trouble and self.waiting_bytes or 0)
  if size < self.good or size > most then
    self.foreign = ("%s: has %d bytes, %d were written here: something else writes to it"):format(
      self.path, size, self.good)
    error(self.foreign, 0)
  end
end

local function try(self)
  local handle = handle_of(self)
  check_alone(self, handle)
  check(self, handle:seek("set", self.good))
  check(self, handle:write(table.concat(self.waiting)))
end

--- Write, behind what was written before. What the disk does not take waits in memory and is tried
-- again with the next call; `trouble` says why. A torn end is written over, never appended to.
---@param text string
function File:write(text)
  if self.foreign or self.lost then
    return
  end
  self.waiting[#self.waiting + 1] = text
  self.waiting_bytes = self.waiting_bytes + #text
  local good, why = pcall(try, self)
  if good then
    self.good, self.waiting, self.waiting_bytes = self.good + self.waiting_bytes, {}, 0
    self.trouble = nil
  else
    self.trouble = tostring(type(why) == "table" and why.message or why)
    if self.handle then
      self.handle:close()
      self.handle = nil
    end
    self.lost = self.waiting_bytes > WAITING_MAX
  end
end

--- Close it and note what it holds.
function File:close()
  if self.handle then
    self.handle:close()
    self.handle = nil
    if not self.trouble then
      remember(open_ledger(self.folder), self.path, read(self.path))
    end
  end
end

local Growing = {}
Growing.__index = Growing

--- A store whose files grow call by call.
---@param folder string  of the tracker
---@return table store  with file(path), put(path, data) and trouble()
function files.growing(folder) return setmetatable({ folder = folder }, Growing) end

--- A new file.
---@param path string
---@return mr.TrackerFile
function Growing:file(path)
  self.newest = setmetatable({ path = path, folder = self.folder, good = 0, waiting = {},
    waiting_bytes = 0 }, File)
  return self.newest
end

--- Why the newest file cannot be written; nil: it can.
---@return string|nil
function Growing:trouble() return self.newest and self.newest.trouble end

-- a file that is there whole or not at all
local function put(path, data)
  if not base.exists(path) or read(path) ~= data then
    base.make_dir(path:match "^(.*)/[^/]*$")
    base.replace_file(path, data)
  end
end

--- Write a whole file.
---@param path string
---@param data string
function Growing.put(_, path, data) put(path, data) end

-- ---- files that are made whole ----

local Whole = {}
Whole.__index = Whole

--- A store whose files are written when they are complete. One that is there already is left alone
-- where it has the same bytes, written again where it is the beginning of them, torn or not, or
-- what was written here before, and reported where something else wrote to it.
---@param given table  folder: of the tracker; whole: fun(text): length of the whole records
---   of a file; closed: fun(path) says that a file may not change any more, nil: none
---@return table store  with file(path), put(path, data) and `report`: {written, kept, left =
---   paths that were not touched, as something else wrote to them}
function files.whole(given)
  return setmetatable({ ledger = open_ledger(given.folder), whole = given.whole,
    closed = given.closed,
    report = { written = 0, kept = 0, left = {} } }, Whole)
end

-- is what a file has the beginning of a text, but for a torn end, or as it was closed here?
local function may_replace(self, path, there, text)
  if is_ours(self.ledger, path, there) then
    return true
  end
  if #there <= #text and text:sub(1, #there) == there then
    return true
  end
  local n = self.whole(there)
  return n <= #text and n < #there and text:sub(1, n) == there:sub(1, n)
end

local function settle(self, path, text)
  local report = self.report
  local there = base.exists(path) and read(path)
  if there == text then
    report.kept = report.kept + 1
    remember(self.ledger, path, text)
  elseif there and (self.closed and self.closed(path)
      or not may_replace(self, path, there, text)) then
    report.left[#report.left + 1] = path
  else
    put(path, text)
    remember(self.ledger, path, text)
    report.written = report.written + 1
  end
end

--- A new file; it is written by its close().
function Whole:file(path)
  local list = {}
  return {
    write = function(_, text) list[#list + 1] = text end,
    close = function() settle(self, path, table.concat(list)) end,
  }
end

--- Write a whole file.
function Whole.put(_, path, data) put(path, data) end

return files
