--- Frames of clips in one picture, and moonreel data preview.
-- Covers: lua/moonreel/cli/data/preview.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local sheet = require "moonreel.data.sheet"

local place, index
setup(function()
  place = folder.new()
  base.make_dir(place.path .. "/clips")
  -- the brightness of each frame is its number
  for i, size in ipairs { { 32, 64 }, { 64, 32 }, { 48, 80 } } do
    local frames = {}
    for n = 0, 4 * i - 1 do
      frames[n + 1] = string.char(60 + 15 * n):rep(3 * size[1] * size[2])
    end
    data.encode(("%s/clips/%d.mkv"):format(place.path, i), table.concat(frames),
      { frames = 4 * i, height = size[1], width = size[2], quality = 1 })
    place:write(("clips/%d.txt"):format(i), "clip " .. i)
  end
  data.ingest(place.path .. "/clips", place.path .. "/i.mrx")
  index = data.open(place.path .. "/i.mrx")
end)
teardown(function() place:remove() end)

describe("data.sheet", function()
  it("shows frames from the first to the last of each clip", function()
    local path = place.path .. "/s.png"
    local failed, height, width = sheet.write(path, { index:row(1), index:row(2), index:row(3) },
      { frames = 3, height = 32, width = 48 })
    assert.same({}, failed)
    -- a line of text, 12 pixels high, stands above each line of frames
    assert.same({ 3 * 48 + 4, 3 * 52 + 4 }, { height, width })
    local pixels = data.decode(path)
    assert.equal(3 * height * width, #pixels)
    -- brightness in the middle of tile `column` of line `row`, and next to it
    local function at(row, column, y, x)
      y, x = 4 + 12 + (row - 1) * 48 + 16 + (y or 0), 4 + (column - 1) * 52 + 24 + (x or 0)
      return pixels:byte(y * width + x + 1)
    end
    for row = 1, 3 do
      for column, frame in ipairs { 0, (4 * row - 1) // 2, 4 * row - 1 } do
        assert.is_true(math.abs(at(row, column) - (60 + 15 * frame)) < 6)
      end
    end
    -- a wide clip has a border above and below, a tall one at its sides
    assert.equal(40, at(1, 1, -15))
    assert.is_true(at(1, 1, 0, -22) > 50)
    assert.equal(40, at(2, 1, 0, -15))
    assert.is_true(at(2, 1, -15) > 50)
  end)
end)

describe("moonreel data preview", function()
  it("takes evenly spaced rows, or the named ones", function()
    local words = ("data preview %s/i.mrx -o %s/p.png "):format(place.path, place.path)
    local out, err, code = folder.moonreel(words .. "--count 2")
    assert.equal(0, code, err)
    assert.matches("\n +1 +4 +32 +64 +24 +1.mkv +clip 1\n +3 +12 +48 +80 +24 +3.mkv +clip 3\n", out)
    assert.matches("p.png: 988 x 228 pixels", out)
    os.rename(place.path .. "/clips/2.mkv", place.path .. "/clips/gone")
    out, err, code = folder.moonreel(words .. "--id 2.mkv --id 1 --frames 1 --json")
    os.rename(place.path .. "/clips/gone", place.path .. "/clips/2.mkv")
    assert.equal(0, code, err)
    local report = json.decode(out)
    assert.same({ 2, 1, 2 }, { report.rows[1].row, report.rows[2].row, report.failed[1].row })
    assert.matches("cannot open", report.failed[1].detail)
    assert.equal(2, select(3, folder.moonreel(words .. "--id nobody")))
  end)
end)
