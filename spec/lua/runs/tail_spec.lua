--- Lines of files that grow.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local tail = require "moonreel.runs.tail"

local dir, path
before_each(function()
  dir = folder.new()
  path = dir.path .. "/j"
end)
after_each(function() dir:remove() end)

local function append(text)
  local file <close> = assert(io.open(path, "ab"))
  file:write(text)
end

local function all(lines)
  local list = {}
  for line in lines do
    list[#list + 1] = line
  end
  return list
end

describe("a file that is followed", function()
  it("returns whole lines once, and later lines when they come", function()
    local one = tail.open(path)
    assert.same({}, all(one:lines()))
    append("a\nb\nhal")
    assert.same({ "a", "b" }, all(one:lines()))
    assert.same({}, all(one:lines()))
    append("f\n\nc\n")
    assert.same({ "half", "", "c" }, all(one:lines()))
  end)

  it("continues after another launch has cut off an unfinished line", function()
    local one = tail.open(path)
    append("a\nunfinished")
    assert.same({ "a" }, all(one:lines()))
    base.replace_file(path, "a\n")
    append("start\n")
    assert.same({ "start" }, all(one:lines()))
  end)

  it("begins again when the file was replaced by a shorter one", function()
    append("aaaa\nbbbb\n")
    local one = tail.open(path)
    all(one:lines())
    base.replace_file(path, "c\n")
    assert.same({ "c" }, all(one:lines()))
  end)

  it("has lines of any length, and continues after a reader that stops early", function()
    local long = ("x"):rep(300000)
    append("a\n" .. long .. "\nb\n")
    local one = tail.open(path)
    assert.equal("a", one:lines()())
    assert.same({ long, "b" }, all(one:lines()))
  end)

  it("returns JSON objects and skips all else", function()
    append('{"n":1}\nno\n[1,2]\n3\n{"n":2}\n{"n":')
    local numbers = {}
    for entry in tail.open(path):entries() do
      numbers[#numbers + 1] = entry.n
    end
    assert.same({ 1, 2 }, numbers)
  end)
end)

describe("the newest lines of a file", function()
  local function newest(count)
    local seen = {}
    local bytes = tail.newest(path, function(entry)
      seen[#seen + 1] = entry.n
      return #seen == count
    end)
    return seen, bytes
  end

  it("come first, without one that is cut", function()
    assert.same({ {}, 0 }, { newest(2) })
    append('{"n":1}\n{"n":2}\nbad\n\n{"n":3}\n{"n":4')
    assert.same({ { 3, 2 }, 35 }, { newest(2) })
    assert.same({ 3, 2, 1 }, (newest(9)))
  end)

  it("are read by blocks, for lines of any length", function()
    local want = {}
    for i = 1, 300 do
      append(('{"n":%d,"x":"%s"}\n'):format(i, ("y"):rep(i * 37 % 1500)))
      want[i] = 301 - i
    end
    assert.same(want, (newest(1000)))
    append(('{"n":301,"x":"%s"}\n'):format(("z"):rep(500000)))
    table.insert(want, 1, 301)
    assert.same(want, (newest(1000)))
    append(("cut "):rep(100000))
    assert.same(want, (newest(1000)))
  end)

  it("are found by a text that they contain, across blocks", function()
    assert.is_nil(tail.newest_with(path, '"k":'))
    append('{"k":1,"x":"' .. ("y"):rep(400000) .. '"}\n{"n":2}\n')
    assert.equal(1, tail.newest_with(path, '"k":').k)
    append('{"k":2}\n')
    for i = 1, 30000 do
      append(('{"n":%d,"x":"%s"}\n'):format(i, ("z"):rep(i % 50)))
    end
    append('{"n":3')
    assert.equal(2, tail.newest_with(path, '"k":').k)
    assert.equal(30000, tail.newest_with(path, '"n":30000').n)
    assert.is_nil(tail.newest_with(path, '"absent":'))
  end)
end)
