--- New indexes derived from others: which rows, which changes, and their sources.
-- Covers: core/bind/builder.c lua/moonreel/data/row.lua
local base = require "moonreel.core.base"
local core = require "moonreel.core.index"
local data = require "moonreel.data"
local derive = require "moonreel.data.derive"
local export = require "moonreel.data.export"
local json = require "moonreel.core.json"
local scratch = require("spec.support.demo_data").scratch

local dir, index
setup(function()
  dir = scratch()
  base.make_dir(dir .. "/clips")
  local lines = {}
  for i = 1, 5 do
    data.encode(("%s/clips/%d.mkv"):format(dir, i), string.char(40 * i):rep(i * 3 * 32 * 48),
      { frames = i, height = 32, width = 48 })
    lines[i] = ("%d.mkv,clip %d"):format(i, i)
  end
  base.replace_file(dir .. "/clips/list.csv", "path,text\n" .. table.concat(lines, "\n") .. "\n")
  data.ingest(dir .. "/clips/list.csv", dir .. "/all.mrx")
  index = data.open(dir .. "/all.mrx")
end)
teardown(function() os.execute("rm -r '" .. dir .. "'") end)

local function texts(path)
  local out, made = {}, data.open(path)
  for i = 1, #made do
    out[i] = made:row(i).text
  end
  return table.concat(out, "; ")
end

describe("data.export", function()
  it("names the row whose path JSON cannot hold", function()
    base.make_dir(dir .. "/bytes")
    os.execute(("cp '%s/clips/1.mkv' '%s/bytes/\xff.mkv'"):format(dir, dir))
    data.ingest(dir .. "/bytes", dir .. "/bytes.mrx")
    local ok, message = pcall(export.jsonl, data.open(dir .. "/bytes.mrx"), dir .. "/bytes.jsonl")
    assert.is_false(ok)
    assert.equal("MR_E_DATA", message.code)
    assert.matches("bytes%.mrx: row 1: the path '.*\xff%.mkv' is not UTF%-8", tostring(message))
    assert.is_false(base.exists(dir .. "/bytes.jsonl"))
  end)
end)

describe("data.derive", function()
  it("refuses an output path at which other files are", function()
    base.make_dir(dir .. "/kept")
    base.replace_file(dir .. "/kept/clip.mp4", "pixels")
    base.replace_file(dir .. "/list.txt", "a list")
    base.make_dir(dir .. "/none")
    for name, problem in pairs {
      kept = "kept: is a folder with 'clip%.mp4' in it; expected a new name",
      ["list.txt"] = "list%.txt: exists and is not an index; expected a new name" } do
      local ok, message = pcall(derive.run, { output = dir .. "/" .. name, from = { index },
        made = "filter" })
      assert.is_false(ok)
      assert.equal("MR_E_USAGE", message.code)
      assert.matches(problem, tostring(message))
    end
    assert.equal("pixels", base.read_file(dir .. "/kept/clip.mp4"))
    assert.equal("a list", base.read_file(dir .. "/list.txt"))
    -- an empty folder and an index are replaced
    for _ = 1, 2 do
      assert.equal(5, derive.run({ output = dir .. "/none", from = { index },
        made = "filter" }).rows_out)
    end
  end)

  it("keeps the chosen rows with their keys, and counts the others by reason", function()
    local report = derive.run { output = dir .. "/odd.mrx", from = { index }, made = "filter",
      by = "odd ones", choose = function(row)
        return row.frames % 2 == 1, row.frames < 3 and "few frames" or nil
      end }
    assert.equal(5, report.rows_in)
    assert.equal(3, report.rows_out)
    assert.same({ ["few frames"] = 1, ["left out"] = 1 }, report.left_out)
    assert.equal("clip 1; clip 3; clip 5", texts(dir .. "/odd.mrx"))
    local odd = data.open(dir .. "/odd.mrx", { verify = true })
    assert.equal(report.fp_order, odd.meta.fp_order)
    for _, field in ipairs { "key", "file", "keys", "bytes", "mtime_ns", "fps" } do
      assert.equal(index:row(3)[field], odd:row(2)[field])
    end
    assert.equal(2, odd.core:find(index:row(3).key))
    assert.is_nil(odd.core:find(index:row(2).key))
    assert.has_error(function() odd.core:find("xyz") end)
  end)

  it("records in its sources which indexes it was made from", function()
    derive.run { output = dir .. "/same.mrx", from = { index }, made = "copy" }
    local copy = data.open(dir .. "/same.mrx")
    assert.equal(index.meta.fp_order, copy.meta.fp_order)
    local origin = json.decode(copy.meta.sources)[1]
    assert.equal("copy", origin.made)
    assert.equal(5, origin.rows_out)
    assert.equal(index.meta.fp_set, origin.from[1].fp_set)
    assert.equal(dir .. "/clips/list.csv", origin.from[1].sources[1].path)
  end)

  it("changes captions and columns, which a later derive keeps", function()
    derive.run { output = dir .. "/scored.mrx", from = { index }, made = "join",
      columns = { "aesthetic" }, choose = function(row)
        return row.frames == 2 and { captions = { "two", "a pair" } }
          or { columns = row.frames > 3 and { aesthetic = row.frames / 2 } or {} }
      end }
    local scored = data.open(dir .. "/scored.mrx")
    assert.same({ "aesthetic" }, scored.meta.columns)
    assert.same({ "two", "a pair" }, scored:row(2).captions)
    assert.same({}, scored:row(1).columns)
    assert.same({ aesthetic = 2.5 }, scored:row(5).columns)
    derive.run { output = dir .. "/more.mrx", from = { index, scored }, made = "merge",
      columns = { "flow" }, choose = function(row, from)
        return from == scored and { columns = { flow = -row.frames } } or row.frames == 7
      end }
    local more = data.open(dir .. "/more.mrx")
    assert.same({ "aesthetic", "flow" }, more.meta.columns)
    assert.same({ aesthetic = 2.5, flow = -5 }, more:row(5).columns)
    assert.same({ "two", "a pair" }, more:row(2).captions)
  end)

  it("writes nothing on an error: no rows, a duplicate, a bad caption, a failed choice",
    function()
    local function refused(given, pattern)
      given.output, given.made, given.from = dir .. "/no.mrx", "x", given.from or { index }
      local ok, problem = pcall(derive.run, given)
      assert.is_false(ok)
      assert.matches(pattern, tostring(problem))
      for _, name in ipairs(base.list_dir(dir)) do
        assert.is_nil(name:match("^no%.mrx"))
      end
    end
    refused({ choose = function() return false end }, "no row remains of 5")
    refused({ from = { index, index } }, "the same sample: %d%.mkv %(row %d%) and %d%.mkv %(row")
    refused({ choose = function() return { captions = { "\27[31m" } } end },
      "1%.mkv: a caption with the control character U%+001B")
    refused({ choose = function() return { captions = { 7 } } end }, "captions%[1%]: expected text")
    refused({ choose = function(row) return row.frames == 1
      or { columns = { flow = 1 } } end }, "column 'flow' after 1 rows; expected before the first")
    refused({ choose = function(row) return { columns = { [row.text] = 1 } } end },
      "'clip 1' cannot name a column")
    refused({ choose = function() error("stop") end }, "stop")
    refused({ chose = true }, "no option 'chose', did you mean 'choose'")
  end)

  it("compresses captions with the dictionary of its first index", function()
    local rows = {}
    for i = 1, 120 do
      rows[i] = ("n%d.mkv,\"%s\""):format(i, ("a red circle moving right, number %d, on a plain "
        .. "ground, seen from afar, slowly "):format(i):rep(40))
    end
    -- one clip under many names, so that there are enough captions for a dictionary
    os.execute(("cd '%s/clips' && for i in $(seq 120); do ln 1.mkv n$i.mkv; done"):format(dir))
    base.replace_file(dir .. "/clips/many.csv", "path,text\n" .. table.concat(rows, "\n") .. "\n")
    data.ingest(dir .. "/clips/many.csv", dir .. "/many.mrx")
    derive.run { output = dir .. "/few.mrx", from = { data.open(dir .. "/many.mrx") },
      made = "filter", choose = function(row) return row.id % 2 == 0 end }
    assert.matches("number 3, on a plain ground", data.open(dir .. "/few.mrx"):row(2).text)
    local many, few = #base.read_file(dir .. "/many.mrx/data.mdb"),
      #base.read_file(dir .. "/few.mrx/data.mdb")
    assert.is_true(few < 0.8 * many, ("%d and %d bytes"):format(few, many))
    assert.equal(60, #core.open(dir .. "/few.mrx"))
  end)

  it("exports parts of files as a list from which an ingest makes the same index", function()
    local cut = dir .. "/cut.mrx"
    derive.run { output = cut, from = { index }, made = "cut", choose = function(row)
      return row.frames > 3 and { parts = { { 0, 2 }, { 2, row.frames - 2 } } } or row.frames < 3
    end }
    local made = data.open(cut)
    assert.equal(6, #made)
    for _, name in ipairs { "csv", "jsonl" } do
      local list, again = dir .. "/clips/cut." .. name, dir .. "/again-" .. name .. ".mrx"
      export[name](made, list)
      data.ingest(list, again)
      local back = data.open(again)
      assert.equal(made.meta.fp_order, back.meta.fp_order)
      for _, field in ipairs { "key", "start", "start_us", "end_us", "frames", "keys" } do
        assert.equal(made:row(6)[field], back:row(6)[field])
      end
    end
    -- a list of whole files has no times
    export.csv(index, dir .. "/clips/whole.csv")
    assert.is_nil(base.read_file(dir .. "/clips/whole.csv"):find("start_s", 1, true))
  end)

  it("refuses times of a list that the file does not have, row by row", function()
    local fps = index:row(5).fps
    base.replace_file(dir .. "/clips/times.csv", ("path,text,start_s,end_s\n5.mkv,a,%.6f,%.6f\n"
      .. "5.mkv,b,soon,1\n5.mkv,c,0.2,0.1\n5.mkv,d,0,99\n5.mkv,e,,\n5.mkv,f,%.6f,%.6f\n"
      .. "5.mkv,g,-1,1\n"):format(1 / fps, 3 / fps, 1 / fps, 3 / fps))
    local report = data.ingest(dir .. "/clips/times.csv", dir .. "/times.mrx")
    assert.equal(2, report.written)
    assert.equal("a; e", texts(dir .. "/times.mrx"))
    local made = data.open(dir .. "/times.mrx")
    assert.same({ 1, 2, 0, 5 }, { made:row(1).start, made:row(1).frames, made:row(2).start,
      made:row(2).frames })
    local reasons = base.read_file(dir .. "/times.mrx/refused.jsonl")
    assert.matches("start_s is 'soon'; expected seconds from 0 on", reasons, 1, true)
    assert.matches("end_s is 0.100000; expected more than start_s, 0.200000", reasons, 1, true)
    assert.matches('"row":5,"path":"5.mkv","class":"range"', reasons, 1, true)
    assert.matches("frames from 0 on; it has 5", reasons, 1, true)
    assert.matches("the same sample as row 2 (5.mkv)", reasons, 1, true)
    assert.matches("start_s is '-1'", reasons, 1, true)
  end)
end)
