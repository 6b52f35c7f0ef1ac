--- Published data sets: their tables, and the four commands of datasets/README.md.
-- Covers: datasets/builders/layouts.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local moonreel = folder.moonreel

local place
setup(function()
  place = folder.new()
  base.make_dir(place.path .. "/clips")
  for i = 1, 4 do
    local pixels = {}
    for n = 1, 4 * 3 * 32 * 32 do
      pixels[n] = string.char((n * n * 31 + n // 7 * i) % 251)
    end
    data.encode(("%s/clips/%d.mp4"):format(place.path, i), table.concat(pixels),
      { frames = 4, height = 32, width = 32 })
  end
end)
teardown(function() place:remove() end)

local function run(words, want)
  local out, err, code = moonreel((words:gsub("@", place.path)))
  assert.equal(want or 0, code, out .. err)
  return out, err
end

describe("datasets/builders", function()
  local tables = {
    ["openvid-1m"] = "video,caption,aesthetic score,motion score,temporal consistency score,"
      .. "camera motion,frame,fps,seconds\n1.mp4,a red ball,5.1,3,0.99,pan_left,4,24.0,0.17\n"
      .. "2.mp4,a blue ball,4.9,,0.98,Undetermined,4,24.0,0.17\nabsent.mp4,x,1,2,3,zoom,1,1,1\n",
    ["miradata-330k"] = "clip_id,source,video_url,width,height,fps,file_path,short_caption,"
      .. "dense_caption\n1.0,youtube,http://x,32,32,24,1.mp4,ball,a red ball\n"
      .. "2.0,youtube,http://x,32,32,24,2.mp4,,a blue ball\n",
    ["pexels-45k"] = "path,text,num_frames,height,width,aspect_ratio,fps,resolution\n"
      .. "1.mp4,a red ball,99,9,9,1.0,9,9\n2.mp4,a blue ball,99,9,9,1.0,9,9\n",
  }
  for name, text in pairs(tables) do
    it("reads the table of " .. name, function()
      place:write(name .. ".csv", text)
      local out = run(("datasets/builders/build.lua %s @/%s.csv @/clips @/%s.mrx"):format(name,
        name, name))
      assert.matches(("%s.mrx: 2 samples, "):format(name:gsub("%-", "%%-")), out)
      assert.equal(name == "openvid-1m" and "row 4 (absent.mp4): cannot open: No such file or "
        .. "directory" or nil, out:match(" 1 refused, .*; the first: ([^\n]+)"))
      local index = data.open(place.path .. "/" .. name .. ".mrx")
      assert.equal("a red ball", index:row(1).text)
      assert.equal(4, index:row(1).frames)
      assert.equal(name == "miradata-330k" and 2 or 1, #index:row(1).captions)
      if name == "openvid-1m" then
        assert.matches("column 'camera_motion' is left out: 3", out)
        assert.same({ "aesthetic_score", "motion_score", "temporal_consistency_score", "frame" },
          index.meta.columns)
        assert.is_nil(index:row(2).columns.motion_score)
      end
    end)
  end

  it("lists its layouts", function()
    local _, err = run("datasets/builders/build.lua openvid @/x.csv @/clips @/x.mrx", 2)
    assert.matches("no layout 'openvid'; layouts: miradata%-330k, openvid%-1m, pexels%-45k", err)
    _, err = run("datasets/builders/build.lua pexels-45k @/x.csv @/clips", 2)
    assert.matches("expected LAYOUT TABLE CLIPS NAME.mrx, got 3 words; layouts: ", err)
  end)
end)

describe("a data set in four commands", function()
  it("has captions, small files and only clips that can be decoded", function()
    os.execute(("cd '%s/clips' && head -c 2500 4.mp4 > 5.mp4 && mkdir -p more && "
      .. "head -c 60000000 /dev/zero > more/pad && cp 3.mp4 more/big.mp4 && "
      .. "cat more/pad >> more/big.mp4 && cp 2.mp4 more/good.mp4"):format(place.path))
    place:write("one.csv", "video,caption\n1.mp4,first\n2.mp4,\n3.mp4,third\nmore/big.mp4,big\n"
      .. "4.mp4,fourth\n")
    place:write("two.csv", "path,text\nmore/good.mp4,good\n")
    local readme = base.read_file("datasets/README.md")
    local ingest, filter, scan, merge = readme:match("\n    (moonreel data ingest [^\n]+).-"
      .. "\n    (moonreel data filter [^\n]+).-\n    (moonreel data scan [^\n]+).-"
      .. "\n    (moonreel data merge [^\n]+)")
    local function as_written(line, from, to)
      return (line:gsub("^moonreel ", ""):gsub(from, to):gsub("%f[%w]([%w]+%.mrx)", "@/%1"))
    end
    run(as_written(ingest, "OpenVid%-1M.csv %-%-root /data/openvid",
      "@/one.csv --root @/clips"))
    run("data ingest @/two.csv --root @/clips -o @/miradata.mrx")
    run(as_written(filter, "", ""))
    -- files that are damaged later cannot be decoded
    local file = io.open(place.path .. "/clips/4.mp4", "r+b")
    local middle = file:seek("end") // 2
    file:seek("set", middle)
    file:write(("\255"):rep(400))
    file:close()
    local out = run(as_written(scan, "", ""))
    assert.matches("openvid.mrx: 2 good, 1 bad", out)
    run(as_written(merge, "", ""))
    local both, texts = data.open(place.path .. "/both.mrx"), {}
    for i = 1, #both do
      texts[i] = both:row(i).text
    end
    assert.same({ "first", "third", "good" }, texts)
  end)
end)
