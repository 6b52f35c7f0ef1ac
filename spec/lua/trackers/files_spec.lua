--- Files to which a tracker appends, and files that an export writes as a whole.
-- Covers: lua/moonreel/trackers/files.lua
local base = require "moonreel.core.base"
local files = require "moonreel.trackers.files"
local folder = require "spec.support.folder"

describe("a file that a tracker appends to", function()
  local dir, store, disk

  -- opens a file on a disk that takes `disk.room` more bytes
  local function open(path, mode)
    local file, why = io.open(path, mode)
    return file and setmetatable({}, { __index = function(_, name)
      return function(_, ...)
        if name == "write" and #... > disk.room then
          file:write((...):sub(1, disk.room))
          disk.room = 0
          return nil, "No space left on device"
        end
        disk.room = disk.room - (name == "write" and #... or 0)
        return file[name](file, ...)
      end
    end }), why
  end

  before_each(function()
    dir, disk = folder.new(), { room = math.huge }
    files.open, store = open, files.growing(dir.path .. "/t")
  end)
  after_each(function()
    files.open = io.open
    dir:remove()
  end)

  it("holds each write as soon as it was made", function()
    local file = store:file(dir.path .. "/t/a")
    file:write "one "
    assert.equal("one ", base.read_file(dir.path .. "/t/a"))
    file:write "two"
    assert.equal("one two", base.read_file(dir.path .. "/t/a"))
    file:close()
    assert.matches('"a".-"bytes": 7', base.read_file(dir.path .. "/t/written.json"))
  end)

  it("keeps bytes for a full disk in memory and writes them later without a gap", function()
    local file = store:file(dir.path .. "/t/a")
    disk.room = 7
    file:write "12345"
    file:write "67890"
    assert.equal(dir.path .. "/t/a: No space left on device", store:error())
    assert.equal("1234567", base.read_file(dir.path .. "/t/a"))
    file:write "abc"
    assert.matches("No space left", store:error())
    disk.room = math.huge
    file:write "def"
    assert.is_nil(store:error())
    assert.equal("1234567890abcdef", base.read_file(dir.path .. "/t/a"))
  end)

  it("is given up when more than 16 MB wait for the disk", function()
    local file = store:file(dir.path .. "/t/a")
    disk.room = 0
    for _ = 1, 9 do
      file:write(("x"):rep(2 << 20))
    end
    assert.is_true(file.lost)
    disk.room = math.huge
    file:write "more"
    assert.equal("", base.read_file(dir.path .. "/t/a"))
  end)

  it("is left alone once another program has written to it", function()
    local file = store:file(dir.path .. "/t/a")
    file:write "one"
    local other <close> = io.open(dir.path .. "/t/a", "a")
    other:write("theirs"):flush()
    file:write "two"
    assert.matches("has 9 bytes, but this run wrote 3: another program writes to it",
      store:error())
    file:write "three"
    file:close()
    assert.equal("onetheirs", base.read_file(dir.path .. "/t/a"))
    file = store:file(dir.path .. "/t/a")
    file:write "again"
    assert.matches("another program created this file", store:error())
    assert.equal("onetheirs", base.read_file(dir.path .. "/t/a"))
  end)
end)

describe("a file that an export writes", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  -- exports `text` to a file whose records are lines; returns the counts of the report
  local function made(text, given)
    local store = files.whole { folder = dir.path, whole = function(there)
      return #there:match "^.*\n" or 0
    end, closed = given and given.closed }
    local file = store:file(dir.path .. "/a")
    file:write(text)
    file:close()
    local report = store.report
    return ("%d %d %d"):format(report.written, report.kept, #report.left)
  end
  local function now() return base.exists(dir.path .. "/a") and base.read_file(dir.path .. "/a") end

  it("is written when it is missing and kept when it is equal", function()
    assert.equal("1 0 0", made "one\n")
    assert.equal("0 1 0", made "one\n")
    assert.equal("one\n", now())
  end)

  it("replaces a file that is shorter or ends in a torn record", function()
    dir:write("a", "one\n")
    assert.equal("1 0 0", made "one\ntwo\n")
    dir:write("a", "one\ntw")
    assert.equal("1 0 0", made "one\ntwo\n")
    dir:write("a", "one\n\0\0\0\0\0\0\0\0\0\0")
    assert.equal("1 0 0", made "one\ntwo\n")
    assert.equal("one\ntwo\n", now())
  end)

  it("replaces a file that this run wrote before", function()
    assert.equal("1 0 0", made "one\nend\n")
    assert.equal("1 0 0", made "one\ntwo\nend\n")
    assert.equal("one\ntwo\nend\n", now())
  end)

  it("leaves a file that another program wrote or that is closed", function()
    dir:write("a", "one\ntheirs\n")
    assert.equal("0 0 1", made "one\ntwo\nthree\n")
    assert.equal("one\ntheirs\n", now())
    dir:write("a", "one\n")
    assert.equal("0 0 1", made("one\ntwo\n", { closed = function() return true end }))
    assert.equal("one\n", now())
  end)
end)
