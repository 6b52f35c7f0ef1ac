--- moonreel.data: encode, scan, decode, ingest, open.
-- Covers: core/bind/index.c core/bind/media.c lua/moonreel/data/init.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local fails = require "spec.support.fails"

-- a new folder that is removed afterwards
local folder
setup(function()
  folder = os.tmpname()
  os.remove(folder)
  base.make_dir(folder)
end)
teardown(function() os.execute("rm -rf '" .. folder .. "'") end)

-- n frames [3][h][w], each of one colour: red in frame 0, darker in later ones
local function colour_frames(n, h, w)
  local planes = {}
  for i = 0, n - 1 do
    planes[#planes + 1] = string.char(250 - 20 * i):rep(h * w) .. string.char(10):rep(2 * h * w)
  end
  return table.concat(planes)
end

describe("data.encode and data.decode", function()
  for _, name in ipairs { "clip.mp4", "clip.webm", "clip.mkv" } do
    it("preserve frames through " .. name, function()
      local path = folder .. "/" .. name
      data.encode(path, colour_frames(6, 32, 48), { frames = 6, height = 32, width = 48, fps = 12 })
      local facts = data.scan(path)
      assert.equal(6, facts.frames)
      assert.equal(12.0, facts.fps)
      assert.equal(48, facts.width)
      local pixels, same = data.decode(path,
        { frames = 2, start = 1, interval = 3, height = 16, width = 24 })
      assert.equal(facts.frames, same.frames)
      assert.equal(2 * 3 * 16 * 24, #pixels)
      assert.is_true(math.abs(pixels:byte(1) - 230) < 8)                    -- frame 1
      assert.is_true(math.abs(pixels:byte(3 * 16 * 24 + 1) - 170) < 8)      -- frame 4
    end)
  end

  it("write equal files for equal frames", function()
    local a, b = folder .. "/a.mp4", folder .. "/b.mp4"
    for _, path in ipairs { a, b } do
      data.encode(path, colour_frames(5, 32, 32), { frames = 5, height = 32, width = 32 })
    end
    assert.equal(base.hash128(base.read_file(a)), base.hash128(base.read_file(b)))
  end)

  it("preserve a picture exactly", function()
    local bytes = {}
    for i = 1, 3 * 9 * 11 do
      bytes[i] = string.char(i * 37 % 256)
    end
    local picture = table.concat(bytes)
    data.png(folder .. "/p.png", picture, { height = 9, width = 11 })
    assert.equal(picture, (data.decode(folder .. "/p.png")))
    assert.is_true(data.scan(folder .. "/p.png").image)
  end)

  it("report what is wrong", function()
    local px = colour_frames(2, 8, 8)
    fails("MR_E_SHAPE", "pixels have 384 bytes, expected 576", data.encode, folder .. "/x.mp4",
      px, { frames = 3, height = 8, width = 8 })
    fails("MR_E_UNSUPPORTED", "no container for '%.xyz'", data.encode, folder .. "/x.xyz",
      px, { frames = 2, height = 8, width = 8 })
    fails("MR_E_UNSUPPORTED", "no encoder 'nothing'", data.encode, folder .. "/x.mp4",
      px, { frames = 2, height = 8, width = 8, codec = "nothing" })
    fails("MR_E_USAGE", "no option 'colour'", data.encode, folder .. "/x.mp4",
      px, { frames = 2, height = 8, width = 8, options = "colour=1" })
    fails("MR_E_USAGE", "height is missing", data.encode, folder .. "/x.mp4", px,
      { frames = 2, width = 8 })
    fails("MR_E_IO", "cannot create", data.encode, folder .. "/none/x.mp4",
      px, { frames = 2, height = 8, width = 8 })
    fails("MR_E_IO", "No such file", data.decode, folder .. "/none.mp4")
    base.replace_file(folder .. "/text.mp4", "no clip")
    for _, read in ipairs { data.scan, data.decode } do
      fails("MR_E_DECODE", "text%.mp4: .*; try: if ffplay plays it, encode it again", read,
        folder .. "/text.mp4")
    end
    fails("MR_E_RANGE", "frame 9 was requested, the file has 5", data.decode,
      folder .. "/a.mp4", { frames = 1, start = 9 })
    fails("MR_E_USAGE", "filter", data.decode, folder .. "/a.mp4", { filter = "magic" })
    assert.is_false(base.exists(folder .. "/x.mp4"))
  end)
end)

describe("data.encoder", function()
  it("writes frame by frame, and leaves no file when it is closed early", function()
    local path = folder .. "/long.mp4"
    do
      local encoder <close> = data.encoder(path, { height = 32, width = 32 })
      encoder:frame(colour_frames(1, 32, 32))
    end
    assert.is_false(base.exists(path))
    local encoder <close> = data.encoder(path, { height = 32, width = 32, fps = 29.97 })
    for _ = 1, 3 do
      encoder:frame(colour_frames(1, 32, 32))
    end
    encoder:finish()
    local facts = data.scan(path)
    assert.equal(3, facts.frames)
    assert.equal(30000, facts.rate_num)
    for _, name in ipairs(base.list_dir(folder)) do
      assert.is_nil(name:match("tmp%-%d"))
    end
  end)
end)

describe("data.ingest and data.open", function()
  it("make an index of a folder with captions next to the clips", function()
    local set = folder .. "/set"
    base.make_dir(set .. "/deep")
    for i, name in ipairs { "one", "deep/two", "three" } do
      data.encode(set .. "/" .. name .. ".mp4", colour_frames(i + 3, 32, 32),
        { frames = i + 3, height = 32, width = 32 })
    end
    base.replace_file(set .. "/one.txt", "a red square\n")
    base.replace_file(set .. "/deep/two.json", '{"caption": "two of them"}')
    base.replace_file(set .. "/broken.mp4", "no clip")
    data.png(set .. "/spoiled.png", string.char(9):rep(3 * 64), { height = 8, width = 8 })
    base.replace_file(set .. "/spoiled.json", '{"text": ')
    local seen = 0
    local result = data.ingest(set, folder .. "/set.mrx", nil, function(p) seen = p.done end)
    assert.equal(5, seen)
    assert.equal(3, result.written)
    assert.equal(2, result.refused)
    assert.equal(1, result.without_caption)
    local index <close> = data.open(folder .. "/set.mrx", { verify = true })
    assert.equal(3, #index)
    assert.equal("deep/two.mp4", index:row(1).path)
    assert.equal("two of them", index:row(1).text)
    assert.equal("a red square", index:row(2).text)
    assert.equal(4, index:row(2).frames)
    assert.equal("", index:row(3).text)
    assert.equal(32, #index.meta.fp_order)
    local refused = base.read_file(folder .. "/set.mrx/refused.jsonl")
    assert.matches("broken.mp4", refused)
    assert.matches("spoiled.json:1: not JSON", refused)
    fails("MR_E_RANGE", "row 3 of an index of 3", index.row, index, 4)
  end)

  it("report the same reasons in every run", function()
    local cut = folder .. "/cut"
    base.make_dir(cut)
    data.encode(cut .. "/good.mp4", colour_frames(4, 32, 32),
      { frames = 4, height = 32, width = 32 })
    for _, name in ipairs { "a", "b", "c" } do
      base.replace_file(cut .. "/" .. name .. ".mp4",
        base.read_file(cut .. "/good.mp4"):sub(1, 700))
    end
    local seen
    for i = 1, 3 do
      data.ingest(cut, folder .. "/cut.mrx", { threads = i })
      local reasons = base.read_file(folder .. "/cut.mrx/refused.jsonl")
      assert.matches("%[mov,[%w,]+%] moov atom not found", reasons)
      seen = seen or reasons
      assert.equal(seen, reasons)
    end
  end)

  it("make an index that can be moved with its folder", function()
    os.execute(("mkdir -p %s/moved && cp -r %s/set %s/set.mrx %s/moved"):format(folder,
      folder, folder, folder))
    local index <close> = data.open(folder .. "/moved/set.mrx")
    assert.equal(folder .. "/moved/set/one.mp4", index:row(2).file)
  end)

  it("read the captions of a folder from a list", function()
    base.replace_file(folder .. "/captions.csv", "path,text\none.mp4,from the list\n")
    data.ingest(folder .. "/set", folder .. "/listed.mrx", { captions = folder .. "/captions.csv" })
    local index <close> = data.open(folder .. "/listed.mrx")
    assert.equal("from the list", index:row(2).text)
    assert.equal("", index:row(1).text)
  end)

  it("refuse files that are no index", function()
    fails("MR_E_DATA", "no such index", data.open, folder .. "/absent.mrx")
    fails("MR_E_DATA", "made by 'moonreel data ingest'", data.open, folder .. "/set")
  end)
end)
