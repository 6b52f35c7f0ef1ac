--- moonreel data cut makes scenes from clips, in threads; run as by a user.
-- Covers: core/index/sweep.c core/bind/sweep.c lua/moonreel/data/scenes.lua
local base = require "moonreel.core.base"
local core = require "moonreel.core.index"
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local scenes = require "moonreel.data.scenes"

local SIDE = 32

-- a scene has a brightness of its own, and a bar that moves
local function frame(light, i)
  local row = {}
  for x = 1, SIDE do
    row[x] = string.char((x + i) % SIDE < 4 and 255 - light or light)
  end
  return table.concat(row):rep(3 * SIDE)
end

local function clip(path, lengths)
  local pixels, lights = {}, { 40, 120, 200, 70 }
  for s, length in ipairs(lengths) do
    for i = 1, length do
      pixels[#pixels + 1] = frame(lights[s], i)
    end
  end
  data.encode(path, table.concat(pixels), { frames = #pixels, height = SIDE, width = SIDE,
    gop = 10, fps = 10 })
end

local dir
setup(function()
  dir = demo_data.scratch()
  base.make_dir(dir .. "/clips")
  clip(dir .. "/clips/1.mp4", { 13, 17, 12 })
  clip(dir .. "/clips/2.mp4", { 25 })
  clip(dir .. "/clips/3.mp4", { 12, 5, 15 })
  data.png(dir .. "/clips/4.png", frame(50, 1), { height = SIDE, width = SIDE })
  for i = 1, 4 do
    base.replace_file(("%s/clips/%d.txt"):format(dir, i), "clip " .. i)
  end
  data.ingest(dir .. "/clips", dir .. "/all.mrx")
end)
teardown(function() os.execute("rm -r '" .. dir .. "'") end)

local run = folder.data_command(function() return dir end)

local function ranges(name)
  local index <close> = data.open(dir .. "/" .. name)
  local list = {}
  for i = 1, #index do
    local row = index:row(i)
    list[i] = ("%s %d+%d"):format(row.path, row.start, row.frames)
    assert.equal("clip " .. row.path:match("%d"), row.text)
  end
  return list
end

describe("moonreel data cut", function()
  it("makes a row of each scene, with its frames", function()
    local out = run "cut @/all.mrx -o @/cut.mrx"
    assert.matches("cut.mrx: 7 of 4 rows, .*\n  2 clips were cut, 6 scenes in all, 1 more are too "
      .. "short\n", out)
    assert.same({ "1.mp4 0+13", "1.mp4 13+17", "1.mp4 30+12", "2.mp4 0+25", "3.mp4 0+12",
      "3.mp4 17+15", "4.png 0+1" }, ranges "cut.mrx")
    -- a clip that is not cut keeps its key
    local all <close> = data.open(dir .. "/all.mrx")
    local cut <close> = data.open(dir .. "/cut.mrx")
    assert.equal(all:row(2).key, cut:row(4).key)
    assert.is_nil(all.core:find(cut:row(2).key))
    assert.equal("1.2", tostring(cut:row(3).duration_ms / 1000))
  end)

  it("makes scenes that a loader decodes as clips", function()
    run "cut @/all.mrx -o @/cut.mrx"
    local cut <close> = data.open(dir .. "/cut.mrx")
    local loader <close> = data.loader { index = cut, seed = 1, epochs = 1, threads = 2,
      resolutions = { tiny = { pixels = SIDE * SIDE, aspects = { ["1.00"] = { SIDE, SIDE } } } },
      bucket_config = { tiny = { [12] = { 1.0, 1 } } } }
    local lights, batch = {}, loader:next()
    while batch do
      local pixels, one = batch:tensor():totable(), 3 * SIDE * SIDE
      local row = cut:row(batch.ids[1] + 1)
      for t = 0, 11 do
        local found = {}
        for _, x in ipairs { 1, 9, 17, 25 } do
          found[#found + 1] = pixels[t * one + x]
        end
        table.sort(found)
        lights[row.path .. row.start] = lights[row.path .. row.start] or found[2]
        assert.near(lights[row.path .. row.start], found[2], 12)
      end
      loader:release(batch)
      batch = loader:next()
    end
    assert.near(40, lights["1.mp40"], 8)
    assert.near(120, lights["1.mp413"], 8)
    assert.near(200, lights["1.mp430"], 8)
  end)

  it("follows its options, and writes an index that other commands read", function()
    local report = json.decode((run "cut @/all.mrx -o @/cut.mrx --least-seconds 0.5 --json"))
    assert.same({ 8, 2, 7, 0 }, { report.rows_out, report.cut, report.scenes, report.short })
    report = json.decode((run "cut @/all.mrx -o @/none.mrx --threshold 100 --threads 3 --json"))
    assert.same({ 4, 0 }, { report.rows_out, report.cut })
    local _, none = run("cut @/all.mrx -o @/no.mrx --part 2/2", 4)
    assert.matches("no row remains of 4", none)
    run "cut @/all.mrx -o @/cut.mrx --part 1/2"
    assert.matches("7 good, 0 bad", (run "scan @/cut.mrx --decode"))
    assert.matches("7 good, 0 bad", (run "scan @/cut.mrx"))
    run "preview @/cut.mrx -o @/sheet.png"
    local _, err = run("cut @/all.mrx -o @/no.mrx --threshold x", 2)
    assert.matches("%-%-threshold: expected a number from 0 on, got 'x'", err)
  end)
end)

describe("scenes.find", function()
  -- differences of n frames, with some larger ones
  local function changes(n, quiet, peaks)
    local list = { 0 }
    for i = 2, n do
      list[i] = peaks[i - 1] or quiet
    end
    return list
  end
  local function at(list, given)
    local firsts = {}
    for i, range in ipairs(scenes.find(list, 10, given)) do
      firsts[i] = range[1]
    end
    return firsts
  end

  it("finds differences that stand out, not fast motion", function()
    assert.same({ 0, 20 }, at(changes(50, 1, { [20] = 30 })))
    assert.same({ 0 }, at(changes(50, 11, { [20] = 30 })))
    assert.same({ 0, 20 }, at(changes(50, 9.9, { [20] = 30 })))
    assert.same({ 0 }, at(changes(50, 1, { [20] = 11.9 })))
  end)
  it("finds no flash, and no scene that is too short", function()
    assert.same({ 0 }, at(changes(50, 1, { [20] = 30, [21] = 30 })))
    assert.same({ 0 }, at(changes(50, 1, { [20] = 30, [22] = 30 })))
    assert.same({ 0, 25 }, at(changes(50, 1, { [20] = 30, [25] = 40, [45] = 30 })))
    assert.same({ 9 }, at(changes(50, 1, { [9] = 30, [41] = 30 })))
    assert.same({ 0, 9, 41 }, at(changes(50, 1, { [9] = 30, [41] = 30 }), { least_s = 0.9 }))
  end)
  it("covers clips of any length", function()
    assert.same({ { 0, 1 } }, scenes.find({ 0 }, 10))
    assert.same({ {}, 2 }, { scenes.find({ 0, 99 }, 10) })
  end)
end)

describe("index.sweep", function()
  it("returns answers in the order of the rows, for any number of threads", function()
    local index <close> = data.open(dir .. "/all.mrx")
    for threads = 1, 5 do
      local sweep <close> = core.sweep(index.core, { 4, 2, 2, 1, 3 }, { threads = threads,
        look = "changes" })
      local rows = {}
      for i = 1, 5 do
        local seen
        repeat
          seen = sweep:next()
        until seen
        assert.is_nil(seen.class)
        rows[i] = seen.row .. ":" .. #seen.changes
      end
      assert.same({ "4:1", "2:25", "2:25", "1:42", "3:32" }, rows)
      assert.is_nil(sweep:next(0))
    end
  end)
  it("decodes in processes only when isolated", function()
    local index <close> = data.open(dir .. "/all.mrx")
    -- processes below this one
    local function children()
      local n = 0
      for _, thread in ipairs(base.list_dir "/proc/self/task") do
        local file <close> = io.open(("/proc/self/task/%s/children"):format(thread))
        n = n + select(2, (file and file:read "a" or ""):gsub("%d+", ""))
      end
      return n
    end
    local before, found = children(), {}
    for _, isolated in ipairs { false, true } do
      local sweep <close> = core.sweep(index.core, { 1, 2 }, { threads = 1, isolated = isolated })
      repeat until sweep:next()
      found[#found + 1] = children() > before
    end
    assert.same({ false, true }, found)
  end)
  it("returns the answer of each row, for any number of rows", function()
    local index <close> = data.open(dir .. "/all.mrx")
    local rows = {}
    for i = 1, 600 do
      rows[i] = i <= 256 and 4 or 2 + i % 2 * 2
    end
    local sweep <close>, n = core.sweep(index.core, rows, { look = "changes", threads = 2 }), 0
    while n < #rows do
      local seen = sweep:next()
      if seen then
        n = n + 1
        assert.same({ rows[n], rows[n] == 4 and 1 or 25 }, { seen.row, #seen.changes })
      end
    end
  end)
  it("ends early on request, and refuses wrong usage", function()
    local index <close> = data.open(dir .. "/all.mrx")
    local sweep = core.sweep(index.core, { 1, 2, 3 }, { look = "frames" })
    sweep:close()
    assert.error_matches(function() sweep:next() end, "closed")
    assert.error_matches(function() core.sweep(index.core, { 1 }, { look = "hard" }) end,
      "expected packets, frames or changes")
    sweep = core.sweep(index.core, { 99 })
    assert.error_matches(function()
      while not sweep:next() do end
    end, "row 98 of an index of 4 rows")
    assert.error_matches(function() sweep:next() end, "row 98 of an index of 4 rows")
  end)
end)
