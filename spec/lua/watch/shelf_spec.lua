--- Folders of renderings, checkpoints that are kept for them, and lines that wait for the journal.
-- Covers: lua/moonreel/watch/shelf.lua lua/moonreel/watch/pins.lua lua/moonreel/watch/report.lua
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local made_run = require "spec.support.made_run"
local pins = require "moonreel.watch.pins"
local report = require "moonreel.watch.report"
local run = require "moonreel.run"
local shelf = require "moonreel.watch.shelf"

local dir = folder.new()
teardown(function() dir:remove() end)

describe("a folder of renderings", function()
  local function asked(id) return { step = 7, set = "s", id = id, key = "k" } end

  it("appears only when it is complete", function()
    do
      local work <close> = shelf.begin(dir.path, "s")
      base.replace_file(work.path .. "/a.mp4", "half")
    end
    assert.is_nil(select(2, shelf.place(dir.path, asked "1")))
    assert.is_false(base.exists(dir.path .. "/samples/step7"))
    local work <close> = shelf.begin(dir.path, "s")
    assert.same({}, base.list_dir(work.path))
    base.replace_file(work.path .. "/a.mp4", "whole")
    work:finish(shelf.place(dir.path, asked "1"), { id = "1", key = "k", n = 3 })
    local path, done = shelf.place(dir.path, asked "1")
    assert.same({ "samples/step7/s", 3 }, { path, done.n })
  end)

  it("is kept, and another name is used, for another checkpoint or other settings", function()
    assert.same({ "samples/step7/s.2" }, { shelf.place(dir.path, asked "2") })
    local other = asked "1"
    other.key = "l"
    assert.same({ "samples/step7/s.2" }, { shelf.place(dir.path, other) })
    base.make_dir(dir.path .. "/samples/step7/s.2")
    assert.same({ "samples/step7/s.3" }, { shelf.place(dir.path, asked "2") })
  end)

  it("is written by one process at a time", function()
    local lock <close> = shelf.lock(dir.path, "t")
    assert.truthy(lock)
    local none, why = shelf.lock(dir.path, "t")
    assert.is_nil(none)
    assert.matches("is being written by", why)
  end)
end)

describe("a checkpoint that the watcher keeps for a set", function()
  local at = dir.path .. "/r"

  it("remains when the run removes it", function()
    dir:write("r/ckpt/step-000000000004/shard.safetensors", "weights")
    dir:write("r/ckpt/step-000000000004/MANIFEST.json", "{}")
    assert.is_true(pins.add(at, "s", 4))
    base.remove_dir(ckpt.dir(at, 4))
    local one = pins.list(at, "s")[1]
    assert.same({ 4, "weights" }, { one.step, base.read_file(one.path .. "/shard.safetensors") })
    pins.drop(one)
    assert.same({}, pins.list(at, "s"))
  end)

  it("remains when its step now belongs to another checkpoint", function()
    local function save(text)
      base.remove_dir(ckpt.dir(at, 6))
      dir:write("r/ckpt/step-000000000006/MANIFEST.json", text)
      assert.is_true(pins.add(at, "s", 6))
    end
    save "1"
    local one = pins.list(at, "s")[1]
    one.id = base.hash128 "1"
    save "2"
    pins.drop(one)
    assert.equal("2", base.read_file(pins.list(at, "s")[1].path .. "/MANIFEST.json"))
    one.id = base.hash128 "2"
    pins.drop(one)
    assert.same({}, pins.list(at, "s"))
  end)

  it("is refused when it is gone, and the rest of a killed process is removed", function()
    base.make_dir(at .. "/samples/.watch/s/.step-000000000009-999999999")
    assert.is_false(pins.add(at, "s", 9))
    assert.same({}, base.list_dir(at .. "/samples/.watch/s"))
  end)

  it("is removed when its process is a zombie", function()
    -- the shell's child ends at once, and the program that replaces the shell never waits for it
    local log = at .. "/log"
    background.start(log, "/bin/sh", "-c", "sleep 0 & echo $!; exec sleep 60")
    local pid = background.await("the child", log, function()
      return base.read_file(log):match "%d+"
    end)
    background.await("its end", log, function()
      return base.read_file("/proc/" .. pid .. "/stat"):find "%) Z " or nil
    end)
    base.make_dir(at .. "/samples/.watch/s/.step-000000000009-" .. pid)
    pins.add(at, "s", 9)
    assert.same({}, base.list_dir(at .. "/samples/.watch/s"))
    background.stop()
  end)
end)

describe("a line that waits for the journal", function()
  it("is appended once, in the order of time, after its folder exists", function()
    local at = made_run.make(dir, "j", { made_run.start(0), made_run.step(1, 1),
      { kind = "samples", report = "step1-s", step = 1 }, { kind = "end", step = 1 } }, false)
    for i, name in ipairs { "step1-s", "step3-s", "step2-s", "step4-s" } do
      report.leave(at, name, { kind = "samples", step = i, wall = 10 - i,
        path = name == "step4-s" and "samples/step4/s" or nil })
    end
    report.deliver_late(at)
    local steps = {}
    for line in run.entries(at) do
      steps[#steps + 1] = line.kind == "samples" and line.step or nil
    end
    assert.same({ 1, 3, 2 }, steps)
    assert.same({ "step4-s.json" }, base.list_dir(at .. "/samples/.watch/lines"))
    dir:write("j/samples/step4/s/rendering.json", json.encode {})
    report.deliver_late(at)
    assert.same({}, base.list_dir(at .. "/samples/.watch/lines"))
  end)

  it("waits for the next launch when the run was killed", function()
    local at = made_run.make(dir, "d", { made_run.start(0), made_run.step(1, 1) }, false)
    report.leave(at, "x", { kind = "samples", step = 1 })
    os.execute(("cd '%s' && rm lock"):format(at))
    report.deliver_late(at)
    assert.same({ "x.json" }, base.list_dir(at .. "/samples/.watch/lines"))
  end)
end)
