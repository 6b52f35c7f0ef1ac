--- data.shards: an index that was exported as shards is read back unchanged; damage is reported.
-- Covers: lua/moonreel/data/shards.lua lua/moonreel/data/tar.lua lua/moonreel/data/whole.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local export = require "moonreel.data.export"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local shards = require "moonreel.data.shards"
local tar = require "moonreel.data.tar"

local place, index
setup(function()
  place = folder.new()
  base.make_dir(place.path .. "/clips/below")
  local lines = { "path,text,text_2,flow,start_s,end_s" }
  for i = 1, 5 do
    local name = (i == 2 and "below/" or "") .. i .. (i % 2 == 0 and ".webm" or ".mkv")
    data.encode(place.path .. "/clips/" .. name, string.char(40 * i):rep(24 * 3 * 32 * 32),
      { frames = 24, height = 32, width = 32, gop = 6 })
    lines[#lines + 1] = ('%s,"say ""%d"", then",%s,%s,,'):format(name, i, i == 4 and "more" or "",
      i < 4 and i / 3 or "")
  end
  -- two parts of one file
  lines[#lines + 1] = "1.mkv,begin,,7,0,0.5"
  lines[#lines + 1] = "1.mkv,end,,8,0.5,1"
  place:write("clips/list.csv", table.concat(lines, "\n") .. "\n")
  data.ingest(place.path .. "/clips/list.csv", place.path .. "/i.mrx", { source = "here" })
  index = data.open(place.path .. "/i.mrx")
end)
teardown(function()
  index:close()
  place:remove()
end)

-- reads shards into a new folder; returns the result and its path
local n = 0
local function written()
  n = n + 1
  local path = ("%s/s%d"):format(place.path, n)
  assert.is_true(export.shards(index, path, { shard_bytes = 4000 }) > 2)
  return path
end
local function read(path, options)
  local out, given = path .. ".mrx", { root = path .. ".clips" }
  for key, value in pairs(options or {}) do
    given[key] = value
  end
  return data.ingest(path, out, given), out
end

describe("shards", function()
  it("leave no files when their writing ends early", function()
    local path = place.path .. "/early"
    local function stops(at)
      return { shard_bytes = 4000, tick = function(i) assert(i < at, "stopped") end }
    end
    for at = 1, 7 do
      assert.has_error(function() export.shards(index, path, stops(at)) end)
      assert.is_false(base.exists(path), "row " .. at)
    end
    -- a folder that existed before stays, with its files
    local note = place:write("early/note", "mine")
    assert.has_error(function() export.shards(index, path, stops(6)) end)
    assert.same({ "note" }, base.list_dir(path))
    os.remove(note)
  end)

  it("are not written to a folder that has other shards", function()
    local from = written()
    local before = base.list_dir(from)
    fails("MR_E_USAGE", from .. ": already has shards; try: another folder", export.shards,
      index, from, { shard_bytes = 1e9 })
    assert.same(before, base.list_dir(from))
  end)

  it("are read back as the same index: keys, captions, ranges, columns", function()
    local from = written()
    local result, out = read(from)
    assert.same({ 7, 0 }, { result.written, result.refused })
    local back <close> = data.open(out)
    assert.equal(index.meta.fp_order, back.meta.fp_order)
    assert.same(index.meta.columns, back.meta.columns)
    for i = 1, #index do
      local was, is = index:row(i), back:row(i)
      assert.equal(base.read_file(was.file), base.read_file(is.file))
      for _, name in ipairs { "id", "file", "root" } do
        was[name], is[name] = nil, nil
      end
      was.mtime_ns, is.mtime_ns = nil, nil
      assert.same(was, is)
    end
    -- a second reading over these files writes equal ones
    assert.equal(7, read(from).written)
  end)

  it("are closed when they have the requested size", function()
    -- of each shard the bytes of its samples, each with a clip and its metadata
    local function sizes_of(most)
      local path, all = place.path .. "/sized", {}
      local count = export.shards(index, path, { shard_bytes = most })
      for i = 1, count do
        local name, samples, last = ("%s/%06d.tar"):format(path, i - 1), {}, 0
        local file <close> = assert(io.open(name, "rb"))
        for member, bytes, at in tar.members(file, name) do
          if member:find "%.json$" then
            local ends = at + (bytes + 511) // 512 * 512
            samples[#samples + 1], last = ends - last, ends
          end
        end
        assert.equal(last + #tar.close, file:seek "end")
        all[i] = samples
      end
      base.remove_dir(path)
      return all
    end
    local whole = sizes_of(1e9)
    assert.same({ 1, 7 }, { #whole, #whole[1] })
    local first = whole[1][1] + whole[1][2]
    for _, most in ipairs { 1, whole[1][1], first - 1, first, first + 1 } do
      local want, held = { {} }, 0
      for _, bytes in ipairs(whole[1]) do
        if held >= most then
          want[#want + 1], held = {}, 0
        end
        held = held + bytes
        table.insert(want[#want], bytes)
      end
      assert.same(want, sizes_of(most))
    end
  end)

  it("need a folder for their clips, and keep other files there", function()
    local from = written()
    fails("MR_E_USAGE", "s%d: has shards, .* try: %-%-root DIR", data.ingest, from,
      from .. ".mrx")
    base.make_dir(from .. ".clips/below")
    place:write(from:match "[^/]+$" .. ".clips/below/2.webm", "mine")
    fails("MR_E_DATA", "00%d.tar: byte %d+: .*/below/2.webm exists and differs", read,
      from)
    assert.equal("mine", base.read_file(from .. ".clips/below/2.webm"))
    assert.is_false(base.exists(from .. ".mrx"))
  end)

  it("are reported with the place of the damage when damaged or missing", function()
    local function damaged(change, expected)
      local from = written()
      change(from)
      fails("MR_E_DATA", expected .. ".*try: ", read, from)
      assert.is_false(base.exists(from .. ".mrx"))
      for _, name in ipairs(base.list_dir(from .. ".clips")) do
        assert.is_nil(name:find("tmp", 1, true))
      end
      base.remove_dir(from)
    end
    local function poke(file, at, bytes)
      return function(from)
        local f <close> = assert(io.open(from .. "/" .. file, "r+b"))
        f:seek("set", at)
        f:write(bytes)
      end
    end
    damaged(poke("000001.tar", 700, "\xa5\x5a\xff"),
      "000001.tar: byte 512: damaged: %x+%.%w+ differs from the exported clip")
    damaged(poke("000001.tar", 3, "zz"), "000001.tar: damaged at byte 0: the checksum of a "
      .. "header is")
    damaged(poke("000002.tar", 124, "12345678901\0"), "000002.tar: damaged at byte 0: the checksum")
    damaged(function(from) os.execute(("truncate -s 1500 '%s/000000.tar'"):format(from)) end,
      "000000.tar: damaged at byte 512: %x+%.%w+ has %d+ bytes, but the file ends after 988")
    damaged(function(from) os.execute(("truncate -s -1024 '%s/000000.tar'"):format(from)) end,
      "000000.tar: damaged at byte %d+: the file ends there; expected another member")
    damaged(function(from) os.remove(from .. "/000001.tar") end,
      "000001.tar is missing: the next one is 000002.tar")
    damaged(function(from)
      local names = base.list_dir(from)
      table.sort(names)
      os.remove(from .. "/" .. names[#names])
    end, "the shards hold %d of 7 samples; is the last of them missing")
  end)

  it("write nothing outside the folder", function()
    for _, path in ipairs { "../out.mkv", "a/../../out.mkv", "a/./b.mkv", "a\nb", "" } do
      local from = place.path .. "/hostile"
      base.make_dir(from)
      local facts = ('{"path":%s,"rows":1}'):format(require("moonreel.core.json").encode(path))
      base.replace_file(from .. "/000000.tar", tar.header("k.mkv", 3) .. "abc" .. tar.padding(3)
        .. tar.header("k.json", #facts) .. facts .. tar.padding(#facts) .. tar.close)
      fails("MR_E_DATA", "000000.tar: byte 1536: ", shards.unpack, from, from .. ".clips")
      base.remove_dir(from)
    end
    assert.is_false(base.exists(place.path .. "/out.mkv"))
  end)
end)
