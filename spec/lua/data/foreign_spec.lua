--- Files of other programs are refused by name, with the commands that convert them.
-- Covers: lua/moonreel/data/foreign.lua core/index/parquet.c core/index/source.c
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

describe("ingest", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  local function refusal(input)
    local out = dir.path .. "/out.mrx"
    local good, problem = pcall(data.ingest, input, out)
    assert.is_false(good, input)
    assert.equal("MR_E_DATA", problem.code, tostring(problem))
    assert.is_false(base.exists(out))
    return tostring(problem)
  end

  it("refuses files of other programs by name, with commands to run", function()
    for name, want in pairs {
      ["00000.tar"] = { "a tar shard (WebDataset, ", "tar xf %s -C clips && moonreel data ingest" },
      ["a.tar.gz"] = { "a tar shard", "tar xzf %s -C clips" },
      ["a.zip"] = { "an archive", "unzip %s -d clips" },
      ["list.csv.gz"] = { "compressed", "gunzip -k %s" },
      ["list.jsonl.zst"] = { "compressed", "zstd -d %s" },
      ["data-00000-of-00001.arrow"] = { "an Arrow table", "from_file(\"%s\").to_csv" },
      ["a.lance"] = { "a Lance table", "lance.dataset(\"%s\")" },
      ["a.h5"] = { "data of another program", "write out the clips" },
      ["a.xlsx"] = { "a spreadsheet", "save it as CSV" } } do
      local path = dir:write(name, "x")
      local said = refusal(path)
      assert.is_truthy(said:find(path .. ": is " .. want[1], 1, true), said)
      assert.is_truthy(said:find("try: .*" .. want[2]:gsub("%%s", path):gsub("%p", "%%%0")), said)
    end
  end)

  it("refuses folders of other programs' files, but reads clips next to such files", function()
    for name, want in pairs { ["web/00000.tar"] = "is a folder of tar shards",
        ["hf/data-00000-of-00001.arrow"] = "is a dataset of Hugging Face",
        ["parts/a.parquet"] = "is a folder of Parquet files" } do
      local path = dir:write(name, "x"):match "^(.*)/"
      assert.is_truthy(refusal(path):find(path .. ": " .. want, 1, true), name)
    end
    dir:write("web/x.txt", "a caption")
    data.encode(dir.path .. "/web/x.mp4", ("\x60"):rep(3 * 32 * 32), { frames = 1, height = 32,
      width = 32 })
    assert.equal(1, data.ingest(dir.path .. "/web", dir.path .. "/web.mrx").written)
  end)

  it("refuses URLs, as its input and in a list, before it looks for files", function()
    for input, try in pairs { ["s3://bucket/clips"] = "aws s3 sync s3://bucket/clips clips",
        ["gs://b/c"] = "gsutil -m rsync -r gs://b/c clips",
        ["https://x.org/l.csv"] = "curl -LO https:",
        ["hf://datasets/a/b"] = "huggingface-cli download" } do
      local said = refusal(input)
      assert.is_truthy(said:find(input .. ": is an address", 1, true), said)
      assert.is_truthy(said:find(try, 1, true), said)
    end
    for _, address in ipairs { "s3://bucket/a.mp4", "https://x.org/a.mp4", "hf://d/a.mp4" } do
      local list = dir:write("list.csv", "path,text\n" .. address .. ",a cat\n")
      assert.is_truthy(refusal(list):find(("%s:2: '%s' is an address, and clips are read from "
        .. "files of this computer; try: fetch them first"):format(list, address), 1, true))
    end
    -- a name that only looks like a URL
    local odd = dir:write("odd.csv", "path,text\nodd name://x.mp4,a cat\n")
    assert.matches("cannot open", refusal(odd))
  end)

  it("refuses Parquet files that contain the clips", function()
    local made = process.run({ "python3", "-c", [[import sys
try: import pyarrow as pa, pyarrow.parquet as pq
except ImportError: sys.exit(1)
pq.write_table(pa.table({"mp4": pa.array([b"x"]), "text": ["a cat"]}), sys.argv[1] + "/a.parquet")
pq.write_table(pa.table({"image": pa.array([{"bytes": b"x", "path": "a"}]), "text": ["a cat"]}),
  sys.argv[1] + "/b.parquet")]], dir.path })
    if made.exit ~= 0 then
      return pending("python3 has no pyarrow")
    end
    for name, column in pairs { a = "mp4", b = "image" } do
      assert.is_truthy(refusal(dir.path .. "/" .. name .. ".parquet"):find("column " .. column
        .. " holds the bytes of clips", 1, true), name)
    end
  end)
end)
