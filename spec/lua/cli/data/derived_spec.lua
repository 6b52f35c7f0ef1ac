--- moonreel data: subcommands that make new indexes from others, run as by a user.
-- Covers: lua/moonreel/cli/data/filter.lua lua/moonreel/cli/data/merge.lua
-- Covers: lua/moonreel/cli/data/append.lua lua/moonreel/cli/data/split.lua
-- Covers: lua/moonreel/cli/data/join.lua lua/moonreel/cli/derived.lua
-- lua/moonreel/cli/longwork.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local signalled = dofile "spec/support/signalled.lua"

local dir
setup(function()
  dir = demo_data.scratch()
  base.make_dir(dir .. "/a")
  base.make_dir(dir .. "/b")
  for i = 1, 12 do
    local name = ("%s/%s/%02d.mkv"):format(dir, i <= 8 and "a" or "b", i)
    data.encode(name, string.char(20 * i):rep(i * 3 * 32 * 32), { frames = i, height = 32,
      width = 32 })
    base.replace_file(name:gsub("mkv$", "txt"), i % 4 == 0 and "" or "clip " .. i)
  end
  data.ingest(dir .. "/a", dir .. "/a.mrx")
  data.ingest(dir .. "/b", dir .. "/b.mrx")
end)
teardown(function() os.execute("rm -r '" .. dir .. "'") end)

local run = folder.data_command(function() return dir end)
local function frames(name)
  local list, index = {}, data.open(dir .. "/" .. name)
  for i = 1, #index do
    list[i] = index:row(i).frames
  end
  return table.concat(list, " ")
end

describe("moonreel data filter", function()
  it("keeps rows and reports why others are left out", function()
    local out = run "filter @/a.mrx '#text > 0 and num_frames > 2' -o @/f.mrx"
    assert.matches("f%.mrx: 4 of 8 rows, fp_order %x+\n  4 rows: #text > 0 and num_frames > 2 is "
      .. "false\n", out)
    assert.equal("3 5 6 7", frames "f.mrx")
    local report = json.decode(run "filter @/f.mrx true --limit 3 -o @/f.mrx --json")
    assert.equal("3 5 6", frames "f.mrx")
    assert.same({ 4, 3, { ["after the first --limit rows"] = 1 } }, { report.rows_in,
      report.rows_out,
      report.left_out })
    assert.equal(data.open(dir .. "/f.mrx").meta.fp_set, report.fp_set)
  end)

  it("refuses wrong usage, and leaves no files", function()
    local _, err = run("filter @/a.mrx 'fsp > 1' -o @/no.mrx", 2)
    assert.matches("no field 'fsp', did you mean 'fps'", err)
    _, err = run("filter @/a.mrx 'fps > 1'", 2)
    assert.matches("no output given %(%-o%); usage: moonreel data filter NAME.mrx EXPR", err)
    _, err = run("filter @/a.mrx -o @/no.mrx", 2)
    assert.matches("expected NAME.mrx EXPR, got '[^ ]+a.mrx';", err)
    _, err = run("fliter @/a.mrx", 2)
    assert.matches("'fliter' is not a subcommand of 'data', did you mean 'filter'%?; "
      .. "expected one of append, ", err)
    run("filter @/a.mrx 'num_frames > 99' -o @/no.mrx", 4)
    run("filter @/none.mrx true -o @/no.mrx", 4)
    assert.is_false(base.exists(dir .. "/no.mrx"))
  end)

  it("leaves no files when a signal stops it", function()
    local before = [[
      local derive = require "moonreel.data.derive"
      local run = derive.run
      function derive.run(given)
        local tick, choose, n = given.tick, given.choose, 0
        function given.choose(...)
          n = n + 1
          if n == 5 then send() end
          tick(n, 8)
          return choose(...)
        end
        return run(given)
      end]]
    for signal, code in pairs { INT = 130, TERM = 143 } do
      local done = signalled(signal, before, { "data", "filter", dir .. "/a.mrx", "true", "-o",
        dir .. "/s.mrx" })
      assert.equal(code, done.exit, done.output)
      assert.matches("stopped by a signal; nothing was written", done.output)
    end
    for _, name in ipairs(base.list_dir(dir)) do
      assert.is_nil(name:match("^s%.mrx"))
    end
  end)
end)

describe("moonreel data join", function()
  it("stops while it reads a table of unknown length", function()
    base.replace_file(dir .. "/long.csv", "path,text\n" .. ("01.mkv,one\n"):rep(3000))
    local done = signalled("INT", [[
      local core = require "moonreel.core.index"
      local read, n = core.read_table, 0
      function core.read_table(file, each)
        return read(file, function(row)
          n = n + 1
          if n == 5 then send() end
          if n == 2900 then print("read all of it") end
          each(row)
        end)
      end]], { "data", "join", dir .. "/a.mrx", dir .. "/long.csv", "-o", dir .. "/s.mrx" })
    assert.equal(130, done.exit, done.output)
    assert.equal("moonreel: stopped by a signal; nothing was written\n", done.output)
  end)
end)

describe("moonreel data merge", function()
  it("joins indexes one after the other", function()
    assert.matches("m.mrx: 12 of 12 rows", (run "merge @/b.mrx @/a.mrx -o @/m.mrx"))
    assert.equal("9 10 11 12 1 2 3 4 5 6 7 8", frames "m.mrx")
  end)

  it("refuses a sample that occurs twice, or keeps the first one", function()
    run "filter @/a.mrx 'num_frames < 3' -o @/few.mrx"
    local _, err = run("merge @/few.mrx @/b.mrx @/a.mrx -o @/t.mrx", 4)
    assert.matches("few.mrx and [^ ]+/a.mrx have 2 samples in common, the first is 01.mkv "
      .. "%(row 1 and row 1%); try: %-%-duplicates first, which keeps those of [^ ]+/few.mrx", err)
    _, err = run("merge @/a.mrx -o @/t.mrx", 2)
    assert.matches("merge: expected A.mrx B.mrx %.%.%., got '[^ ]+a.mrx'; usage", err)
    local out = run "merge @/few.mrx @/b.mrx @/a.mrx --duplicates first -o @/t.mrx"
    assert.matches("12 of 14 rows.*\n  2 rows: in an earlier index, too\n", out)
    assert.equal("1 2 9 10 11 12 3 4 5 6 7 8", frames "t.mrx")
    _, err = run("merge @/a.mrx @/b.mrx --duplicates last -o @/t.mrx", 2)
    assert.matches("expected first or refuse, got 'last'", err)
  end)
end)

describe("moonreel data append", function()
  it("adds clips that are not in the index yet", function()
    run "filter @/a.mrx 'num_frames ~= 2' -o @/p.mrx"
    local out = run "append @/p.mrx @/a -o @/p.mrx"
    assert.matches("p.mrx: 8 of 15 rows.*\n  7 rows: in the index already\n", out)
    assert.equal("1 3 4 5 6 7 8 2", frames "p.mrx")
    base.replace_file(dir .. "/b/more.json", '[{"file":"09.mkv","text":"nine","tags":["x"]},\n'
      .. '{"file":"10.mkv","span":[0,0.1],"text":"ten"}]')
    out = run "append @/p.mrx @/b/more.json --columns path=file -o @/n.mrx"
    assert.matches("n.mrx: 10 of 10 rows.*\n  column 'tags' ignores 1 lists or objects without "
      .. "a meaning here, .*\n  1 samples are parts of their files, as 'span' says;", out)
    assert.same({ "nine" }, data.open(dir .. "/n.mrx"):row(9).captions)
    for _, name in ipairs(base.list_dir(dir)) do
      assert.is_nil(name:match("append"))
    end
  end)
end)

describe("moonreel data split", function()
  it("makes parts of equal size in the order of a number", function()
    local out = run "split @/a.mrx --by num_frames --quantiles 3 -o @/q.mrx"
    assert.matches("q%-1%.mrx: 3 of 8 rows", out)
    assert.equal("1 2 3", frames "q-1.mrx")
    assert.equal("4 5 6", frames "q-2.mrx")
    assert.equal("7 8", frames "q-3.mrx")
  end)

  it("leaves out the top, and rows that have no value", function()
    local report = json.decode(run("split @/a.mrx --by bytes --quantiles 2 --trim-top 0.25 "
      .. "-o @/r --json"))
    assert.equal(2, #report.indexes)
    assert.equal(2, report.indexes[1].left_out.trimmed)
    assert.equal(3, report.indexes[1].rows_out)
    assert.is_true(report.indexes[1].to <= report.indexes[2].from)
  end)

  it("refuses values that have no order", function()
    for words, pattern in pairs { ["--by codec"] = "no number 'codec'", [""] = "needs %-%-by FIELD",
      ["--by fps --trim-top 1"] = "share from 0 to below 1, got '1'" } do
      local _, err = run("split @/a.mrx -o @/x " .. words, 2)
      assert.matches(pattern, err)
    end
    local _, err = run("split @/a.mrx --by num_frames --quantiles 9 -o @/x", 4)
    assert.matches("8 rows have a value of num_frames; expected at least 9", err)
  end)
end)

describe("moonreel data join", function()
  setup(function()
    base.replace_file(dir .. "/scores.csv", "path,text,aesthetic,camera,text_2\n"
      .. "01.mkv,one,5.5,pan,the first\n/elsewhere/02.mkv,,4.5,zoom,\n02.mkv,two,9,zoom,\n"
      .. "77.mkv,x,1,pan,\n")
  end)

  it("adds the captions and numbers of a table to rows", function()
    local out = run "join @/a.mrx @/scores.csv -o @/j.mrx"
    assert.matches("j.mrx: 8 of 8 rows.*\n  2 rows got values from the table, which has 4 rows\n"
      .. "  column 'camera' is left out: 4 of its values are not numbers, the first: 'pan'", out)
    local joined = data.open(dir .. "/j.mrx")
    assert.same({ "aesthetic" }, joined.meta.columns)
    assert.same({ "one", "the first" }, joined:row(1).captions)
    assert.same({ "two" }, joined:row(2).captions)
    assert.equal(9, joined:row(2).columns.aesthetic)
    assert.same({ "clip 3" }, joined:row(3).captions)
    run "filter @/j.mrx 'aesthetic > 5' -o @/good.mrx"
    assert.equal("1 2", frames "good.mrx")
  end)

  it("appends captions, keeps them, or leaves out rows that are not named", function()
    local report = json.decode((run("join @/a.mrx @/scores.csv -o @/k.mrx --inner --json "
      .. "--captions append")))
    assert.same({ 2, 6, { "aesthetic" } }, { report.joined, report.left_out["not in the table"],
      report.columns })
    assert.same({ "clip 1", "one", "the first" }, data.open(dir .. "/k.mrx"):row(1).captions)
    run "join @/a.mrx @/scores.csv -o @/k.mrx --captions keep"
    assert.same({ "clip 1" }, data.open(dir .. "/k.mrx"):row(1).captions)
  end)

  it("accepts tables without captions, but no file name that two paths share", function()
    base.replace_file(dir .. "/numbers.csv", "path,flow\n01.mkv,3\n/x/02.mkv,4\n/y/02.mkv,5\n"
      .. "/x/03.mkv,6\n")
    local report = json.decode((run "join @/a.mrx @/numbers.csv -o @/k.mrx --inner --json"))
    assert.equal(2, report.joined)
    local joined = data.open(dir .. "/k.mrx")
    assert.same({ 3, 6 }, { joined:row(1).columns.flow, joined:row(2).columns.flow })
    assert.same({ "clip 1" }, joined:row(1).captions)
    base.replace_file(dir .. "/rows.jsonl", '{"path":"01.mkv","flow":2}\n{"flow":1}\n')
    local _, err = run("join @/a.mrx @/rows.jsonl -o @/k.mrx", 4)
    assert.matches("rows.jsonl:2: no text value 'path'", err)
    base.replace_file(dir .. "/rows.csv", "flow,text\n1,2\n")
    _, err = run("join @/a.mrx @/rows.csv -o @/k.mrx", 4)
    assert.matches("rows.csv:1: no column 'path'; columns found: flow, text\n", err)
  end)

  it("reads a table as ingest does, with whole numbers apart from reals", function()
    base.replace_file(dir .. "/odd.csv", "file,uid,aes,note\n01.mkv,9007199254740993,5,a \\, b\n"
      .. "02.mkv,2,5.5,c\n")
    run("join @/a.mrx @/odd.csv --columns path=file,-=note --escape '\\' -o @/k.mrx")
    local joined = data.open(dir .. "/k.mrx")
    assert.same({ uid = "whole", aes = "real" }, joined.meta.kinds)
    assert.equal(9007199254740993, joined:row(1).columns.uid)
    assert.equal("integer", math.type(joined:row(1).columns.uid))
    assert.same({ uid = 2, aes = 5.5 }, joined:row(2).columns)
    -- a part of a clip is not named by its path
    base.replace_file(dir .. "/parts.csv", 'path,timestamp,text\n01.mkv,"[[0, 1], [1, 2]]",'
      .. '"[\'a\', \'b\']"\n')
    local _, err = run("join @/a.mrx @/parts.csv -o @/k.mrx", 4)
    assert.matches("parts.csv:2: the sample is a part of '01.mkv', and its path names", err)
    base.replace_file(dir .. "/parts.csv", 'path,timestamp,text\n01.mkv,"[[0, 1], [1, 2]]",a\n')
    _, err = run("join @/a.mrx @/parts.csv -o @/k.mrx", 4)
    assert.matches("parts.csv:2: timestamp has 2 items, but there is one caption", err)
  end)

  it("joins whole numbers with reals as reals, unless that would round them", function()
    for name, values in pairs { x = { 7, 8 }, y = { 0.5, 1 }, z = { 9007199254740993, 1 } } do
      base.replace_file(dir .. "/v.csv", ("path,v\n01.mkv,%s\n09.mkv,%s\n"):format(
        table.unpack(values)))
      run(("join @/%s.mrx @/v.csv --inner -o @/%s.mrx"):format(name == "y" and "b" or "a", name))
    end
    run "merge @/x.mrx @/y.mrx -o @/xy.mrx"
    local merged = data.open(dir .. "/xy.mrx")
    assert.same({ v = "real" }, merged.meta.kinds)
    assert.same({ 7.0, 1.0 }, { merged:row(1).columns.v, merged:row(2).columns.v })
    local _, err = run("merge @/z.mrx @/y.mrx -o @/zy.mrx", 4)
    assert.matches("01.mkv: column 'v' cannot represent 9007199254740993; expected numbers that a "
      .. "double represents exactly", err)
  end)

  it("joins on keys, and refuses wrong usage", function()
    local key = data.open(dir .. "/a.mrx"):row(3).key
    base.replace_file(dir .. "/keys.jsonl", ('{"path":"%s","text":"third","flow":2}\n'):format(key))
    run "join @/a.mrx @/keys.jsonl --on key -o @/k.mrx"
    assert.equal(2, data.open(dir .. "/k.mrx"):row(3).columns.flow)
    local _, err = run("join @/a.mrx @/keys.jsonl --on name -o @/k.mrx", 2)
    assert.matches("%-%-on: expected path, key, got 'name'", err)
    _, err = run("join @/a.mrx @/none.csv -o @/k.mrx", 4)
    assert.matches("none.csv: cannot open", err)
  end)
end)
