--- moonreel data: clips compared with their files, samples that failed, parts for many machines.
-- Covers: lua/moonreel/cli/data/scan.lua lua/moonreel/cli/data/quarantine.lua
-- Covers: lua/moonreel/data/examine.lua lua/moonreel/data/quarantine.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"

local dir
local function clip(i) return ("%s/clips/%03d.mp4"):format(dir, i) end
setup(function()
  dir = demo_data.scratch()
  base.make_dir(dir .. "/clips")
  local lines = { "path,text" }
  for i = 1, 3 do
    local pixels = {}
    for n = 1, 6 * 3 * 32 * 32 do
      pixels[n] = string.char((n * n * 31 + n // 7 * i) % 251)
    end
    data.encode(clip(i), table.concat(pixels), { frames = 6, height = 32, width = 32 })
    lines[i + 1] = ("%03d.mp4,clip %d"):format(i, i)
  end
  for i = 4, 200 do
    os.execute(("ln '%s' '%s'"):format(clip(3), clip(i)))
    lines[i + 1] = ("%03d.mp4,clip %d"):format(i, i)
  end
  base.replace_file(dir .. "/clips/list.csv", table.concat(lines, "\n") .. "\n")
  data.ingest(dir .. "/clips/list.csv", dir .. "/all.mrx")
  data.ingest(dir .. "/clips/list.csv", dir .. "/part.mrx", { part = 3, parts = 4 })
end)
teardown(function() os.execute("rm -r '" .. dir .. "'") end)

local run = folder.data_command(function() return dir end)

-- runs work while clip i has the contents that f returns
local function damaged(i, f, work)
  local whole = base.read_file(clip(i))
  local kept = clip(i) .. ".kept"
  os.rename(clip(i), kept)
  local text = f(whole)
  if text then
    base.replace_file(clip(i), text)
  end
  local ok, problem = pcall(work)
  os.rename(kept, clip(i))
  assert(ok, problem)
end

describe("moonreel data scan", function()
  it("finds missing, changed and damaged files, and leaves them out", function()
    assert.matches("all.mrx: 200 good, 0 bad\n", (run "scan @/all.mrx"))
    damaged(1, function() return nil end, function()
      damaged(2, function(text) return text:sub(1, #text // 2) end, function()
        local out = run("scan @/all.mrx --bad @/bad.jsonl", 1)
        assert.matches("198 good, 2 bad\n  1 gone, the first: .*001.mp4: does not exist\n  1 %l+, ",
          out)
        local first = json.decode(base.read_file(dir .. "/bad.jsonl"):match("[^\n]+"))
        assert.same({ 1, "001.mp4", "gone" }, { first.row, first.path, first.class })
        out = run "scan @/all.mrx -o @/good.mrx"
        assert.matches("good.mrx: 198 of 200 rows.*\n  1 rows: gone\n", out)
      end)
    end)
    -- a file of another size differs from that of the index
    damaged(2, function(text) return text .. "more" end, function()
      assert.matches("1 stale, the first: .*002.mp4: bytes is %d+, the index says %d+",
        (run("scan @/all.mrx", 1)))
    end)
  end)

  it("finds wrong key frames of an index, and keeps the others", function()
    local core = require "moonreel.core.index"
    local pixels = {}
    for n = 1, 20 * 3 * 32 * 32 do
      pixels[n] = string.char((n * n * 31 + n // 3072 * 9) % 251)
    end
    base.make_dir(dir .. "/keys")
    data.encode(dir .. "/keys/a.mp4", table.concat(pixels), { frames = 20, height = 32, width = 32,
      codec = "mpeg4", gop = 5 })
    data.ingest(dir .. "/keys", dir .. "/keys.mrx")
    assert.matches("1 good, 0 bad\n", (run "scan --decode @/keys.mrx"))
    -- like the index of a file whose container marks each frame as a key frame
    do
      local index <close> = data.open(dir .. "/keys.mrx")
      local builder <close> = core.builder(dir .. "/believed.mrx")
      local keys = {}
      for i = 1, 20 do
        keys[i] = (i - 1) * 512
      end
      builder:copy(index.core, 1, { keys = keys })
      builder:meta("sources", "[]")
      builder:finish()
    end
    local out = run("scan --decode @/believed.mrx", 1)
    assert.matches("0 good, 1 bad\n  1 keys, the first: .*a.mp4: 16 of 20 key frames in the index "
      .. "are not key frames: decoding that begins there gives other frames; try: %-%-output", out)
    out = run "scan --decode @/believed.mrx -o @/mended.mrx"
    assert.matches("1 good, 0 bad\n  1 listed wrong key frames; only the right ones are kept", out)
    assert.matches("1 good, 0 bad\n", (run "scan --decode @/mended.mrx"))
    local mended <close> = data.open(dir .. "/mended.mrx")
    assert.equal(4, mended:row(1).keys)
    assert.error_matches(function()
      local builder <close> = core.builder(dir .. "/wrong.mrx")
      builder:copy(mended.core, 1, { keys = { 0, 512, 512 } })
    end, "a.mp4: keys%[3%]: expected times that grow")
  end)

  it("decodes each frame on request", function()
    damaged(2, function(text)
      local at = #text * 2 // 3
      return text:sub(1, at) .. ("\255"):rep(300) .. text:sub(at + 301)
    end, function()
      assert.matches("200 good, 0 bad", (run "scan @/all.mrx"))
      local report = json.decode((run("scan @/all.mrx --decode --part 1/3 --json", 1)))
      assert.same({ good = 71, bad = 1 }, { good = report.good, bad = report.bad })
      assert.equal(1, report.classes.corrupt)
    end)
  end)
end)

describe("parts", function()
  it("are disjoint, cover everything, and are joined when all are present", function()
    local rows = 0
    for i = 1, 3 do
      local report = json.decode((run(("ingest @/clips/list.csv --part %d/3 -o @/p%d.mrx --json")
        :format(i, i))))
      rows = rows + report.rows
    end
    assert.equal(200, rows)
    run "merge @/p1.mrx @/p3.mrx @/p2.mrx --parts -o @/w.mrx"
    assert.equal(data.open(dir .. "/all.mrx").meta.fp_set, data.open(dir .. "/w.mrx").meta.fp_set)
    for i = 1, 2 do
      run(("scan @/all.mrx --part %d/2 -o @/s%d.mrx"):format(i, i))
    end
    run "merge @/s1.mrx @/s2.mrx --parts -o @/w.mrx"
    assert.equal(data.open(dir .. "/all.mrx").meta.fp_set, data.open(dir .. "/w.mrx").meta.fp_set)
    for words, pattern in pairs { ["@/p1.mrx @/p3.mrx"] = "of 3 parts these are missing: 2",
      ["@/p1.mrx @/p1.mrx"] = "p1.mrx: is part 1, but so is .*p1.mrx",
      ["@/p1.mrx @/part.mrx"] = "part.mrx: was made from another input than .*p1.mrx",
      ["@/p1.mrx @/s2.mrx"] = "s2.mrx: was made from another input than",
      ["@/p1.mrx @/all.mrx"] = "all.mrx: was not made with %-%-part" } do
      local _, err = run("merge " .. words .. " --parts -o @/no.mrx", 4)
      assert.matches(pattern, err)
    end
  end)

  it("are refused when they are wrong", function()
    for _, text in ipairs { "0/2", "3/2", "x", "1" } do
      local _, err = run("ingest @/clips/list.csv -o @/no.mrx --part " .. text, 2)
      assert.matches("%-%-part: expected I/N", err)
    end
    local _, err = run("ingest @/clips/list.csv -o @/no.mrx --part 5/5", 4)
    assert.matches("part 5 of 5 of its 200 rows is empty; try: fewer parts", err)
  end)
end)

describe("moonreel data quarantine", function()
  local rows, path
  local function event(i, class, epoch)
    return json.encode { key = rows[i].key, row = i - 1, class = class, path = rows[i].path,
      detail = "why", epoch = epoch, attempt = 1, time = 1.5, host = "h",
      fp_order = data.open(dir .. "/all.mrx").meta.fp_order } .. "\n"
  end
  before_each(function()
    local index <close> = data.open(dir .. "/all.mrx")
    rows = { index:row(1), index:row(2), index:row(3) }
    base.make_dir(dir .. "/run")
    path = dir .. "/run/quarantine.jsonl"
    base.replace_file(path, event(1, "corrupt", 0) .. event(2, "io", 0) .. event(2, "io", 1)
      .. "{torn\n" .. event(1, "corrupt", 1) .. event(3, "short", 1))
  end)

  it("lists samples, and reports which are left out", function()
    local out = run "quarantine list @/run"
    assert.matches("row +class +events +from +to +left out +path +detail\n +1 +corrupt +2 +0 +1 "
      .. "+yes +001.mp4 +why\n +2 +io +2 +0 +1 +no ", out)
    local list = json.decode((run("quarantine list @/run/quarantine.jsonl --class short --json")))
    assert.same({ 1, 3 }, { #list, list[1].row })
  end)

  it("removes events, and keeps lines that it does not understand", function()
    assert.matches("2 events removed, 3 kept", (run "quarantine clear @/run --class io"))
    assert.matches("2 events removed, 1 kept", (run("quarantine clear @/run --key "
      .. rows[1].key)))
    assert.equal("{torn\n" .. event(3, "short", 1), base.read_file(path))
    run "quarantine clear @/run"
    assert.matches("no samples", (run "quarantine list @/run"))
  end)

  it("reads samples again, and removes those that are readable now", function()
    damaged(1, function(text) return text:sub(1, 700) end, function()
      assert.matches("2 samples are good now, their 3 events are removed; 1 are bad, 0 are not in",
        (run "quarantine retry @/run @/all.mrx"))
    end)
    assert.equal("{torn\n", (base.read_file(path):gsub('{"attempt[^\n]*\n', "")))
  end)

  it("writes an index without the samples that are left out", function()
    assert.matches("q.mrx: 199 of 200 rows.*\n  1 rows: corrupt\n",
      (run "quarantine apply @/run @/all.mrx -o @/q.mrx"))
    assert.is_nil(data.open(dir .. "/q.mrx").core:find(rows[1].key))
  end)

  it("refuses wrong usage", function()
    for words, pattern in pairs { ["forget @/run"] = "expected list, clear, retry or apply, got "
      .. "'forget'", ["retry @/run"] = "needs the index",
      ["apply @/run @/all.mrx"] = "no output given" } do
      local _, err = run("quarantine " .. words, 2)
      assert.matches(pattern, err)
    end
    local _, err = run("quarantine list @/clips", 4)
    assert.matches("has no quarantine.jsonl", err)
    _, err = run("quarantine list @/nowhere", 4)
    assert.matches("no such run or file", err)
  end)
end)
