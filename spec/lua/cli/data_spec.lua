--- moonreel data ingest: results, exit codes, and no partial files.
-- Covers: core/index/list.c core/index/source.c core/index/table.c
-- Covers: lua/moonreel/cli/data.lua lua/moonreel/cli/data/ingest.lua
-- Covers: lua/moonreel/cli/data/verify.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local signalled = dofile "spec/support/signalled.lua"

local program = arg and arg[-1] or "build/cpu/moonreel"
local folder
setup(function()
  folder = os.tmpname()
  os.remove(folder)
  base.make_dir(folder .. "/set")
  base.make_dir(folder .. "/hollow")
  data.encode(folder .. "/set/a.mp4", string.char(90):rep(4 * 3 * 32 * 32),
    { frames = 4, height = 32, width = 32 })
  base.replace_file(folder .. "/set/b.mp4", "damaged")
  base.replace_file(folder .. "/list.csv", "file,text\na,b\n")
  base.replace_file(folder .. "/bad.csv", "path,text\nset/b.mp4,x\n")
end)
teardown(function() os.execute("rm -rf '" .. folder .. "'") end)

-- the signal comes when 100 files of an ingest are done
local AT_100 = [[
  local index = require "moonreel.core.index"
  local open = index.ingest
  function index.ingest(...)
    local ingest = open(...)
    local methods = getmetatable(ingest).__index
    local step = methods.step
    function methods.step(self)
      local p = step(self, 0)
      if p.done - p.resumed == 100 then send() end
      return p
    end
    return ingest
  end]]

local function run(args, variables)
  local pipe = io.popen(("%s %s data %s 2>&1; echo exit $?"):format(variables or "", program,
    args:gsub("@", folder)))
  local text = pipe:read("a")
  pipe:close()
  return tonumber(text:match("exit (%d+)%s*$")), text
end

describe("moonreel data verify", function()
  it("reads every block of an index", function()
    assert.equal(0, (run("ingest @/set -o @/v.mrx")))
    local code, text = run("verify @/v.mrx")
    assert.equal(0, code)
    assert.matches("v%.mrx: whole, 1 samples, fp_order %x+", text)
    code, text = run("verify @/v.mrx --json")
    assert.equal(0, code)
    assert.matches('"rows":1', text)
    -- damage that keeps the file time
    os.execute(("cd %s/v.mrx && touch -r data.mdb time && printf x | dd of=data.mdb bs=1 "
      .. "seek=20000 conv=notrunc 2>/dev/null && touch -r time data.mdb"):format(folder))
    code, text = run("verify @/v.mrx")
    assert.equal(4, code)
    assert.matches("data.mdb: damaged between bytes 0 and", text)
  end)
end)

describe("moonreel data ingest", function()
  it("writes an index and reports what was refused", function()
    local code, text = run("ingest @/set -o @/i.mrx")
    assert.equal(0, code)
    assert.matches("1 samples, fp_order %x+", text)
    assert.matches("1 refused, with reasons in [^ ]+; the first: row %d+ %(", text)
    code, text = run("ingest @/set -o @/j.mrx --json")
    assert.equal(0, code)
    assert.matches('"refused":1', text)
  end)

  it("names ignored files, and rows that are refused before any scan", function()
    base.make_dir(folder .. "/odd")
    base.replace_file(folder .. "/odd/sound.flac", "")
    os.execute(("ln %s/set/a.mp4 %s/odd/a.mp4; ln -s .. %s/odd/up"):format(folder, folder, folder))
    base.replace_file(folder .. "/odd/list.csv",
      "path,text\na.mp4,one\n./a.mp4,two\na.mp4,th\27ree\n")
    local code, text = run("ingest @/odd/list.csv -o @/odd/l.mrx")
    assert.equal(0, code)
    assert.matches("1 samples, fp_order.*\n  2 refused", text)
    local refused = base.read_file(folder .. "/odd/l.mrx/refused.jsonl")
    assert.matches('"class":"duplicate"', refused)
    assert.matches('"class":"caption"', refused)
    code, text = run("ingest @/odd -o @/odd/o.mrx")
    assert.equal(0, code)
    assert.matches("ignored: 1 .flac, the first: sound.flac", text)
    assert.matches("ignored: %d link to a folder read already", text)
    code, text = run("ingest @/odd -o @/odd/o.mrx --json")
    assert.equal(0, code)
    assert.matches('"notes":%[".*ignored: 1 .flac', text)
  end)

  it("exits with 4 and a reason when there is nothing to train on", function()
    for args, pattern in pairs {
      ["ingest @/hollow -o @/x.mrx"] = "no samples in it",
      ["ingest @/list.csv -o @/x.mrx"] = "no column 'path'; columns found: file, text",
      ["ingest @/bad.csv -o @/x.mrx"] = "none of 1 rows can be read",
      ["ingest @/absent -o @/x.mrx"] = "No such file.*; expected a folder, .csv, .tsv,",
    } do
      local code, text = run(args)
      assert.equal(4, code)
      assert.matches(pattern, text)
    end
    for _, name in ipairs(base.list_dir(folder)) do
      assert.is_nil(name:match("^x%.mrx"))
    end
  end)

  local function list(name, text)
    base.replace_file(folder .. "/" .. name, text)
  end

  it("keeps numbers as in the list: compared, written and joined values are equal", function()
    list("t.csv", "path,text,aes,uid\nset/a.mp4,a,5.1,16777217\n")
    assert.equal(0, (run("ingest @/t.csv -o @/t.mrx")))
    for text, rows in pairs { ["aes >= 5.1"] = 1, ["aes == 5.1 and uid == 16777217"] = 1,
      ["uid == 16777216"] = 0, ["aes < 5.1"] = 0 } do
      local code, out = run(("filter @/t.mrx '%s' -o @/f.mrx"):format(text))
      assert.equal(rows == 1 and 0 or 4, code, out)
    end
    assert.equal(0, (run("export @/t.mrx csv --fields path,aes,uid -o @/e.csv")))
    assert.equal("path,aes,uid\na.mp4,5.1,16777217\n", (base.read_file(folder .. "/e.csv"):gsub(
      "set/", "")))
    assert.equal(0, (run("export @/t.mrx jsonl --fields aes,uid -o @/e.jsonl")))
    assert.equal('{"aes":5.1,"uid":16777217}\n', base.read_file(folder .. "/e.jsonl"))
    local code, out = run("export @/t.mrx csv -o -")
    assert.equal(2, code)
    assert.matches("not to standard output; try: %-o LIST && cat LIST", out)
    assert.matches("aes: 5.1 to 5.1, mean 5.1\n", select(2, run("stats @/t.mrx --field aes")))
    assert.matches("\nuid: 16777217 to 16777217", (select(2, run("stats @/t.mrx --field uid"))))
  end)

  it("counts whole numbers that a column with fractions rounds", function()
    list("r.csv", "path,text,v\nset/a.mp4,a,9007199254740993\nset/none.mp4,b,0.5\n")
    local noted = "column 'v' stores reals, which round 1 of its integers, the first: "
      .. "'9007199254740993' in row 2"
    for _, words in ipairs { "ingest @/r.csv -o @/r.mrx", "join @/t.mrx @/r.csv -o @/r.mrx",
      "append @/t.mrx @/r.csv --source more -o @/r.mrx" } do
      local code, out = run(words)
      assert.equal(0, code, out)
      assert.matches(noted, out, 1, true)
      local index <close> = data.open(folder .. "/r.mrx")
      assert.equal(2.0 ^ 53, index:row(#index).columns.v)
      assert.equal("float", math.type(index:row(#index).columns.v))
    end
  end)

  it("refuses a cell that is no number before it scans, and proposes what to do", function()
    list("m.csv", 'path,text,views\nset/a.mp4,a,5\nset/none.mp4,b,"1,234.5"\n')
    local code, out = run("ingest @/m.csv -o @/m.mrx")
    assert.equal(4, code)
    assert.matches("m%.csv:3: column 'views' has '1,234%.5', which is not a number; 1 of its cells "
      .. "are not numbers, 1 are; .*try: %-%-columns %-=views to leave it out", out)
    assert.is_false(base.exists(folder .. "/m.mrx"))
    code, out = run("ingest @/m.csv -o @/m.mrx --columns -=views")
    assert.equal(0, code, out)
    assert.same({}, data.open(folder .. "/m.mrx").meta.columns)
    list("m.csv", "path,text,views\nset/a.mp4,a,5\nset/none.mp4,b,N/A\n")
    code, out = run("ingest @/m.csv -o @/m.mrx")
    assert.equal(0, code, out)
    assert.same({ "views" }, data.open(folder .. "/m.mrx").meta.columns)
  end)

  it("makes a sample of each range that a row lists, with its own caption", function()
    list("p.jsonl", '{"path":"set/a.mp4","timestamp":[["0:00:00.000","0:00:00.042"],["0:00:00.083"'
      .. ',"0:00:00.167"]],"text":["a man","a dog"],"score":[0.4,0.5],"tags":["x","y"]}\n'
      .. '{"path":"set/a.mp4","timestamp":[[0,1],[1,2]],"text":["a man"]}\n')
    local code, out = run("ingest @/p.jsonl -o @/p.mrx")
    assert.equal(0, code, out)
    assert.matches("1 refused.*row 2 %(set/a%.mp4%): text has 1 items, timestamp has 2", out)
    assert.matches("column 'tags' ignores 1 lists or objects", out)
    local index <close> = data.open(folder .. "/p.mrx")
    assert.equal(2, #index)
    local first = index:row(1)
    assert.same({ 0, 1, "a man", 0.4 }, { first.start, first.frames, first.text,
      first.columns.score })
    local second = index:row(2)
    assert.same({ 2, 2, "a dog", 0.5 }, { second.start, second.frames, second.text,
      second.columns.score })
    code, out = run("ingest @/set --captions @/p.jsonl -o @/q.mrx")
    assert.equal(4, code)
    assert.matches("p%.jsonl:1: its caption is of a part of the clip; expected captions of whole "
      .. "clips; try: data ingest", out)
  end)

  it("reads a backslash as an escape on request, and refuses it otherwise", function()
    list("q.csv", 'path,text\nset/a.mp4,"a \\"red\\" ball"\n')
    local code, out = run("ingest @/q.csv -o @/q.mrx")
    assert.equal(4, code)
    assert.matches("q%.csv:2: 'r' after the closing quote of a field; .*try: %-%-escape '\\'", out)
    assert.equal(0, (run("ingest @/q.csv -o @/q.mrx --escape '\\'")))
    assert.equal('a "red" ball', data.open(folder .. "/q.mrx"):row(1).text)
    code, out = run("ingest @/set -o @/q.mrx --escape '\\'")
    assert.equal(2, code)
    assert.matches("set: is a folder, which has no columns; .*try: %-%-captions FILE", out)
    code, out = run("ingest @/p.jsonl -o @/q.mrx --escape '\\'")
    assert.equal(2, code)
    assert.matches("p%.jsonl: escape: '\\' applies only to CSV and TSV", out)
  end)

  it("names the output that cannot be written", function()
    local code, text = run("ingest @/set -o /proc/nope.mrx")
    assert.equal(8, code, text)
    assert.matches("moonreel: /proc/nope%.mrx: cannot create: %u[%w ]+\n", text)
  end)

  it("keeps finished files when a signal stops it, and prints how to continue", function()
    base.make_dir(folder .. "/it's many")
    for i = 1, 400 do
      os.execute(("ln %s/set/%s.mp4 \"%s/it's many/%03d.mp4\""):format(folder,
        i % 8 == 0 and "b" or "a", folder, i))
    end
    local input = folder .. "/it's many"
    local code, text = run([[ingest "@/it's many" -o @/all.mrx --json]])
    assert.equal(0, code)
    local whole = text:match('"fp_order":"(%x+)"')
    for signal, exit in pairs { HUP = 129, INT = 130, TERM = 143 } do
      local done = signalled(signal, AT_100, { "data", "ingest", input, "-o", folder .. "/s.mrx",
        "--threads", "1" })
      assert.equal(exit, done.exit, done.output)
      local kept, command = done.output:match("stopped by a signal; (%d+) of 400 files are done "
        .. "and kept; to continue: moonreel (.-)\n")
      assert.equal("100", kept)
      assert.equal("data ingest --continue '" .. folder .. "/it'\\''s many' -o " .. folder
        .. "/s.mrx --threads 1", command)
      code, text = run(command:gsub("^data ", "") .. " --json")
      assert.equal(0, code)
      assert.matches("continues after 100 of 400 files", text)
      assert.equal(whole, text:match('"fp_order":"(%x+)"'))
      assert.equal(base.read_file(folder .. "/all.mrx/refused.jsonl"),
        base.read_file(folder .. "/s.mrx/refused.jsonl"))
      os.execute(("rm -r %s/s.mrx"):format(folder))
      for _, name in ipairs(base.list_dir(folder)) do
        assert.is_nil(name:match("^s%.mrx"))
      end
    end
  end)

  it("keeps committed files when the disk is full, and prints how to continue", function()
    local lines = { "path,text" }
    for i = 1, 30 do
      os.execute(("ln %s/set/a.mp4 %s/set/a%d.mp4"):format(folder, folder, i))
      lines[#lines + 1] = ("set/a%d.mp4,%d"):format(i, i)
    end
    list("d.csv", table.concat(lines, "\n") .. "\n")
    local code, out = run("ingest @/d.csv -o @/d.mrx --commit 8",
      ("LD_PRELOAD=%s ASAN_OPTIONS=verify_asan_link_order=0 FAULTY_PATH=info.txt FAULTY_FULL=1")
      :format(program:gsub("[^/]*$", "faulty_disk.so")))
    assert.equal(8, code, out)
    assert.matches("No space left on device; 30 of 30 files are done and kept; to continue: "
      .. "moonreel data ingest %-%-continue ", out)
    code, out = run("ingest @/d.csv -o @/d.mrx --continue --commit 8")
    assert.equal(0, code, out)
    assert.matches("continues after 30 of 30 files", out)
    assert.equal(30, #data.open(folder .. "/d.mrx"))
  end)

  it("leaves no files when a signal stops it before the first clip is done", function()
    base.make_dir(folder .. "/none")
    for i = 1, 120 do
      os.execute(("ln %s/set/b.mp4 %s/none/%03d.mp4"):format(folder, folder, i))
    end
    local done = signalled("INT", AT_100, { "data", "ingest", folder .. "/none", "-o",
      folder .. "/n.mrx", "--threads", "1" })
    assert.equal(130, done.exit, done.output)
    assert.matches("stopped by a signal; nothing was written", done.output)
    for _, name in ipairs(base.list_dir(folder)) do
      assert.is_nil(name:match("^n%.mrx"))
    end
  end)

  it("continues after SIGKILL with --continue, and after another signal",
    function()
    base.make_dir(folder .. "/more")
    for i = 1, 400 do
      os.execute(("ln %s/set/%s.mp4 %s/more/%03d.mp4"):format(folder, i % 8 == 0 and "b" or "a",
        folder, i))
    end
    local code, text = run("ingest @/more -o @/whole.mrx --json")
    assert.equal(0, code)
    local whole = text:match('"fp_order":"(%x+)"')
    local function interrupted(signal)
      return signalled(signal, AT_100, { "data", "ingest",
        folder .. "/more", "-o", folder .. "/c.mrx", "--threads", "1", "--continue",
        "--commit", "5" })
    end
    assert.equal(9, interrupted("KILL").signal)
    local stopped = interrupted("TERM")
    assert.equal(143, stopped.exit, stopped.output)
    assert.matches("continues after %d+ of 400 files", stopped.output)
    assert.matches("%d+ of 400 files are done and kept; to continue: moonreel data ingest "
      .. "%-%-continue ", stopped.output)
    code, text = run("ingest @/more -o @/c.mrx --continue --json")
    assert.equal(0, code)
    assert.matches("continues after %d+ of 400 files", text)
    assert.equal(whole, text:match('"fp_order":"(%x+)"'))
    assert.equal(base.read_file(folder .. "/whole.mrx/refused.jsonl"),
      base.read_file(folder .. "/c.mrx/refused.jsonl"))
    for _, name in ipairs(base.list_dir(folder)) do
      assert.is_nil(name:match("^c%.mrx%."))
    end
  end)

  it("exits with 2 on wrong usage", function()
    for _, args in ipairs { "", "dance", "ingest", "ingest a b -o c", "ingest @/set", "verify" } do
      local code, text = run(args)
      assert.equal(2, code)
      assert.matches("usage: moonreel data", text)
    end
    for args, problem in pairs { ["ingest @/set -o"] = "%-o: expected NAME%.mrx, got nothing",
      ["ingest @/set -o x --threads none"] = "%-%-threads: expected a whole number of at least 1, "
        .. "got 'none'",
      ["ingest @/set -o x --commit 0"] = "%-%-commit: expected a whole number of at least 1, got "
        .. "'0'",
      ["ingest @/set --wrong"] = "%-%-wrong: no such option" } do
      local code, text = run(args)
      assert.equal(2, code)
      assert.matches("data ingest: " .. problem, text)
    end
  end)
end)
