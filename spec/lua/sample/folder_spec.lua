--- Folders of renderings: no file of an earlier rendering is lost.
local base = require "moonreel.core.base"
local folder = require "moonreel.sample.folder"
local scratch = require "spec.support.folder"

describe("sample.folder", function()
  local dir
  before_each(function() dir = scratch.new() end)
  after_each(function() dir:remove() end)

  local function numbered() return folder.new(nil, dir.path .. "/samples") end

  it("gives a folder without a name the number after the largest one, on first use", function()
    local unused = numbered()
    assert.is_false(base.exists(dir.path .. "/samples"))
    local one = numbered()
    assert.equal(dir.path .. "/samples/001", one:path())
    assert.equal(one:path(), one:path())
    dir:write("samples/009/clip.mp4", "x")
    dir:write("samples/100-old/clip.mp4", "x")
    dir:write("samples/sample_0000.mp4", "x")
    assert.equal(dir.path .. "/samples/010", numbered():path())
    assert.equal(dir.path .. "/samples/011", unused:path())
    dir:write("samples/1000/clip.mp4", "x")
    assert.equal(dir.path .. "/samples/1001", numbered():path())
  end)

  it("takes another number when a concurrent process was faster", function()
    local list = base.list_dir
    finally(function() base.list_dir = list end)
    base.list_dir = function(path)
      local names = list(path)
      base.make_dir(path .. "/001")
      base.make_dir(path .. "/002")
      return names
    end
    assert.equal(dir.path .. "/samples/003", numbered():path())
  end)

  it("that cannot be made is named, also by what closes it", function()
    dir:write("samples", "a file")
    for _, named in ipairs { false, dir.path .. "/samples/in" } do
      local _, problem = pcall(function()
        local one <close> = folder.new(named or nil, dir.path .. "/samples")
        one:path()
      end)
      assert.equal("MR_E_IO", problem.code, tostring(problem))
      assert.matches("/samples", tostring(problem))
    end
    assert.equal("a file", base.read_file(dir.path .. "/samples"))
  end)

  it("refuses to replace files in a named folder, and creates the folder", function()
    local there = dir:write("clips/a.mp4", "x")
    local one = folder.new(dir.path .. "/clips")
    one:keep { "b.mp4", "a.png" }
    local good, problem = pcall(one.keep, one, { "b.mp4", "a.mp4" })
    assert.is_false(good)
    assert.equal("MR_E_USAGE", problem.code)
    local said = ("sample: %s exists already, from an earlier rendering; expected an unused "
      .. "name; try: another --out or --sample-name, --overwrite, or no --out for a numbered "
      .. "folder below samples/"):format(there)
    assert.equal(said, problem.message:sub(-#said))
    assert.equal(dir.path .. "/clips", one:path())
    assert.equal(dir.path .. "/deep/er", folder.new(dir.path .. "/deep/er"):path())
    assert.is_true(base.exists(dir.path .. "/deep/er/."))
  end)

  it("removes a folder that it created and did not use, and no other", function()
    base.make_dir(dir.path .. "/empty")
    for _, given in ipairs { false, dir.path .. "/new", dir.path .. "/empty" } do
      local one = folder.new(given or nil, dir.path .. "/samples")
      local path = one:path()
      do
        local closed <close> = one
        assert.is_true(base.exists(closed:path()))
      end
      assert.equal(given == dir.path .. "/empty", base.exists(path), path)
    end
    local full = numbered()
    dir:write("samples/001/clip.mp4", "x")
    do
      local closed <close> = full
      dir:write("samples/002/clip.mp4", closed:path())
    end
    assert.is_true(base.exists(dir.path .. "/samples/002/clip.mp4"))
  end)
end)
