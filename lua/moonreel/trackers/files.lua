--- The files of trackers. Some grow while a run trains, some are written at once.
-- @module moonreel.trackers.files
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

local files = {}

local WAITING_MAX <const> = 16 << 20 -- the most bytes kept in memory while the disk is full

--- Opens a file. Specs replace it to simulate a full disk.
files.open = io.open

-- reads a whole file, also one of gigabytes
local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return assert(file:read "a")
end

-- ---- record of written files ----

local function relative(ledger, path) return path:sub(#ledger.folder + 2) end

local function print_of(text) return { bytes = #text, hash = base.hash128(text) } end

-- Reads written.json of a tracker's folder: file -> {bytes, hash} at the time when the file was
-- closed. It shows whether another program has changed a file.
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
---@field good integer        bytes that are certainly written
---@field waiting string[]    the following bytes, which are not yet on disk
---@field error string|nil  why they cannot be written
local File = {}
File.__index = File

-- returns the result of a call on a file; raises an error with the file's path if the call failed
local function check(self, result, why)
  if not result then
    local text = tostring(why)
    error(text:sub(1, #self.path) == self.path and text or self.path .. ": " .. text, 0)
  end
  return result
end

-- the open file, which is created when first needed
local function handle_of(self)
  if self.handle then
    return self.handle
  end
  if not self.made then
    base.make_dir(self.path:match "^(.*)/[^/]*$")
    if base.exists(self.path) then
      error(self.path .. ": another program created this file; try: move it away", 0)
    end
    check(self, files.open(self.path, "wb")):close()
    self.made = true
  end
  self.handle = check(self, files.open(self.path, "r+b"))
  self.handle:setvbuf "no"
  return self.handle
end

-- checks that no other program has appended bytes
local function check_alone(self, handle)
  local size = check(self, handle:seek "end")
  local most = self.good + (self.error and self.waiting_bytes or 0)
  if size < self.good or size > most then
    self.foreign = ("%s: has %d bytes, but this run wrote %d: another program writes to it"):format(
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

--- Appends a text. Bytes that the disk does not accept wait in memory and are written by the next
-- call; `error` says why. An incomplete end is overwritten.
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
    self.error = nil
  else
    self.error = tostring(type(why) == "table" and why.message or why)
    if self.handle then
      self.handle:close()
      self.handle = nil
    end
    self.lost = self.waiting_bytes > WAITING_MAX
  end
end

--- Closes the file and records what it contains.
function File:close()
  if self.handle then
    self.handle:close()
    self.handle = nil
    if not self.error then
      remember(open_ledger(self.folder), self.path, read(self.path))
    end
  end
end

local Growing = {}
Growing.__index = Growing

--- Creates a store whose files grow with each call.
---@param folder string  folder of the tracker
---@return table store  with file(path), put(path, data) and error()
function files.growing(folder) return setmetatable({ folder = folder }, Growing) end

--- Creates a file.
---@param path string
---@return mr.TrackerFile
function Growing:file(path)
  self.newest = setmetatable({ path = path, folder = self.folder, good = 0, waiting = {},
    waiting_bytes = 0 }, File)
  return self.newest
end

--- Why the newest file cannot be written; nil: it can.
---@return string|nil
function Growing:error() return self.newest and self.newest.error end

-- writes a file completely or not at all
local function put(path, data)
  if not base.exists(path) or read(path) ~= data then
    base.make_dir(path:match "^(.*)/[^/]*$")
    base.replace_file(path, data)
  end
end

--- Writes a whole file.
---@param path string
---@param data string
function Growing.put(_, path, data) put(path, data) end

-- ---- files that are written at once ----

local Whole = {}
Whole.__index = Whole

--- Creates a store whose files are written when they are complete. If a file exists already, it is
-- left unchanged if it has the same bytes; it is written again if it is the beginning of the new
-- file (complete or torn) or if this run wrote it before; it is reported if another program wrote
-- it.
---@param given table  folder: of the tracker; whole: fun(text): length of the complete records of a
---   file; closed: fun(path): says that a file must not change any more, nil: there are no such
---   files
---@return table store  with file(path), put(path, data) and `report`: {written, kept, left = paths
---   that were not changed, because another program wrote them}
function files.whole(given)
  return setmetatable({ ledger = open_ledger(given.folder), whole = given.whole,
    closed = given.closed,
    report = { written = 0, kept = 0, left = {} } }, Whole)
end

-- is the file the beginning of a text, except for a torn end, or unchanged since it was closed?
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

--- Creates a file, which close() writes.
function Whole:file(path)
  local list = {}
  return {
    write = function(_, text) list[#list + 1] = text end,
    close = function() settle(self, path, table.concat(list)) end,
  }
end

--- Writes a whole file.
function Whole.put(_, path, data) put(path, data) end

return files
