--- Videos and pictures whose paths stand in a line of the journal.
-- Covers: lua/moonreel/trackers/media.lua
local core = require "moonreel.core.media"
local folder = require "spec.support.folder"
local media = require "moonreel.trackers.media"

describe("samples of a run", function()
  local dir
  local pixels = {}
  for i = 1, 5 * 3 * 16 * 24 do
    pixels[i] = string.char((i * 7 + i // 1152 * 31) % 256)
  end
  pixels = table.concat(pixels)
  setup(function()
    dir = folder.new()
    core.encode(dir.path .. "/a.mp4", pixels, { height = 16, width = 24, frames = 5, fps = 8 })
    core.encode(dir.path .. "/b.png", pixels:sub(1, 1152), { height = 16, width = 24 })
    core.encode(dir.path .. "/c.jpg", pixels:sub(1, 1152), { height = 16, width = 24 })
  end)
  teardown(function() dir:remove() end)

  it("are listed when their files exist in the run's folder", function()
    local list = media.of({ files = { "a.mp4", { path = "b.png", name = "p", caption = "c" },
      "none.png", "../x.png", "a.txt", 5, { path = 7 } } }, dir.path)
    assert.same({ { path = dir.path .. "/a.mp4", kind = "mp4", clip = true, name = "a" },
      { path = dir.path .. "/b.png", kind = "png", name = "p", caption = "c" } }, list)
    assert.same({}, media.of({ files = "a.mp4" }, dir.path))
  end)

  it("are left out when their path leads out of the run's folder", function()
    dir:write("inner/x", "")
    assert.same({}, media.of({ files = { "../b.png" } }, dir.path .. "/inner"))
  end)

  it("are shown as pictures, and clips as GIFs with all frames", function()
    local function shown(name) return media.picture(media.of({ files = { name } }, dir.path)[1]) end
    local data, h, w = shown "b.png"
    assert.same({ "\x89PNG", 16, 24 }, { data:sub(1, 4), h, w })
    data, h, w = shown "c.jpg"
    assert.same({ "\xff\xd8", 16, 24 }, { data:sub(1, 2), h, w })
    data, h, w = shown "a.mp4"
    assert.same({ "GIF89a", 16, 24 }, { data:sub(1, 6), h, w })
    dir:write("a.gif", data)
    assert.equal(5, core.scan(dir.path .. "/a.gif").frames)
    assert.equal(data, (shown "a.gif"))
    assert.equal(data, (shown "a.mp4"))
  end)
end)
