--- moonreel data: subcommands that describe an index or write it in other forms.
-- Covers: lua/moonreel/cli/data/stats.lua lua/moonreel/cli/data/export.lua
-- Covers: lua/moonreel/data/statistics.lua lua/moonreel/data/export.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"

local dir, index
setup(function()
  dir = demo_data.scratch()
  base.make_dir(dir .. "/clips")
  local lines = { "path,text,text_2,flow" }
  for i = 1, 6 do
    data.encode(("%s/clips/%d.mkv"):format(dir, i), string.char(40 * i):rep(i * 3 * 32 * 16 * i),
      { frames = i, height = 32, width = 16 * i })
    lines[i + 1] = ('%d.mkv,"say ""%d"", then",%s,%s'):format(i, i, i == 4 and "more" or "",
      i < 4 and i / 3 or "")
  end
  base.replace_file(dir .. "/clips/list.csv", table.concat(lines, "\n") .. "\n")
  data.ingest(dir .. "/clips/list.csv", dir .. "/i.mrx")
  index = data.open(dir .. "/i.mrx")
end)
teardown(function() os.execute("rm -r '" .. dir .. "'") end)

local run = folder.data_command(function() return dir end)

describe("moonreel data stats", function()
  it("prints totals and the distributions of numbers", function()
    local out = run "stats @/i.mrx"
    assert.matches("i.mrx: 6 rows %(0 pictures%), 0.00 hours, [%d.]+ kB, 7 captions, 0 rows "
      .. "without\n  h264: 6 rows\n", out)
    assert.matches("\nnum_frames: 1 to 6, mean 3.5\n +1 +1 +16.7 %%  #######\n +above 1, to 6 +5 ",
      out)
    assert.matches("\nflow: 0.333333 to 1, mean 0.666667, 3 rows without\n", out)
  end)

  it("counts whole numbers of 64 bits", function()
    base.replace_file(dir .. "/clips/u.csv", ("path,text,uid\n1.mkv,a,%d\n2.mkv,b,%d\n"
      .. "3.mkv,c,5\n"):format(math.maxinteger, -math.maxinteger))
    run "ingest @/clips/u.csv -o @/u.mrx"
    local report = json.decode((run "stats @/u.mrx --field uid --json")).spreads[1]
    assert.same({ -math.maxinteger, math.maxinteger, 3 },
      { report.least, report.most, report.rows })
    assert.same({ 1, 1, 1 },
      { report.classes[1].rows, report.classes[2].rows, report.classes[3].rows })
  end)

  it("counts each row in one class, as JSON", function()
    local report = json.decode((run "stats @/i.mrx --json"))
    for _, s in ipairs(report.spreads) do
      local rows = 0
      for _, c in ipairs(s.classes) do
        rows = rows + c.rows
        assert.is_true(c.from <= c.to)
      end
      assert.equal(s.rows, rows, s.field)
      assert.equal(6, s.rows + s.missing)
    end
    assert.equal(0, report.images)
  end)

  it("prints a single field, and refuses unknown ones", function()
    assert.is_nil((run "stats @/i.mrx --field flow"):find("num_frames", 1, true))
    assert.is_nil((run "stats @/i.mrx --field flow --json"):find("num_frames", 1, true))
    local _, err = run("stats @/i.mrx --field flo", 2)
    assert.matches("no number 'flo', did you mean 'flow'", err)
  end)
end)

describe("moonreel data export", function()
  it("writes lists from which ingest makes the same index", function()
    for _, form in ipairs { "csv", "jsonl" } do
      local out = run(("export @/i.mrx %s -o @/clips/e.%s"):format(form, form))
      assert.matches("6 rows\n  paths are relative to .*/clips\n", out)
      run(("ingest @/clips/e.%s -o @/e.mrx"):format(form))
      local back = data.open(dir .. "/e.mrx")
      assert.equal(index.meta.fp_order, back.meta.fp_order)
      assert.same({ "flow" }, back.meta.columns)
      for i = 1, #index do
        assert.same(index:row(i).columns, back:row(i).columns)
        assert.same(index:row(i).captions, back:row(i).captions)
      end
    end
  end)

  it("writes the requested fields, and leaves no partial file", function()
    run "export @/i.mrx csv --fields path,codec,flow -o @/f.csv"
    assert.matches("^path,codec,flow\n1.mkv,h264,0.33333333333333\n",
      base.read_file(dir .. "/f.csv"))
    run("export @/i.mrx csv --fields path,sound -o @/g.csv", 2)
    run("export @/i.mrx xml -o @/g.xml", 2)
    run("export @/i.mrx csv -o @/none/g.csv", 8)
    for _, name in ipairs(base.list_dir(dir)) do
      assert.is_nil(name:match("^g%."))
    end
  end)

  it("copies clips into shards, whole, with their metadata", function()
    run "export @/i.mrx shards --shard-bytes 4000 -o @/shards"
    assert.is_true(#base.list_dir(dir .. "/shards") > 1)
    os.execute(("cd '%s/shards' && for t in *.tar; do tar xf $t || echo bad > bad; done")
      :format(dir))
    assert.is_false(base.exists(dir .. "/shards/bad"))
    for i = 1, #index do
      local row = index:row(i)
      assert.equal(base.read_file(row.file), base.read_file(dir .. "/shards/" .. row.key .. ".mkv"))
      local facts = json.decode(base.read_file(dir .. "/shards/" .. row.key .. ".json"))
      assert.equal(row.width, facts.width)
      assert.same(i == 4 and row.captions or row.text, facts.text)
    end
    run "ingest @/shards --root @/again -o @/again.mrx"
    local again <close> = data.open(dir .. "/again.mrx")
    assert.equal(index.meta.fp_order, again.meta.fp_order)
    os.rename(dir .. "/clips/5.mkv", dir .. "/clips/away.mkv")
    local _, err = run("export @/i.mrx shards -o @/more", 4)
    os.rename(dir .. "/clips/away.mkv", dir .. "/clips/5.mkv")
    assert.matches("5.mkv: cannot open: No such file", err)
    assert.is_false(base.exists(dir .. "/more"))
  end)
end)
