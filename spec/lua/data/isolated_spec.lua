--- A decoder that crashes or never ends costs its samples, but not the run.
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local moonreel = folder.moonreel
local process = require "moonreel.core.process"

-- the address sanitizer must be the first library, but accepts being the second
local FAULTY = ("LD_PRELOAD=%sfaulty_decoder.so ASAN_OPTIONS=verify_asan_link_order=0 "
  .. "FAULTY_CODEC=vp8 FAULTY_WAY="):format(process.program():gsub("[^/]*$", ""))

local place
setup(function()
  place = folder.new()
  base.make_dir(place.path .. "/clips")
  for i = 1, 12 do
    local pixels = string.char(i * 15):rep(8 * 3 * 32 * 32)
    data.encode(("%s/clips/%02d.%s"):format(place.path, i, i % 6 == 0 and "webm" or "mp4"), pixels,
      { frames = 8, height = 32, width = 32, codec = i % 6 == 0 and "vp8" or nil })
    place:write(("clips/%02d.txt"):format(i), "clip " .. i)
  end
  data.ingest(place.path .. "/clips", place.path .. "/all.mrx")
end)
teardown(function() place:remove() end)

-- an epoch of single clips: weights, and classes in the quarantine file
local script = [[
local data = require "moonreel.data"
local index = data.open(%q)
local loader = data.loader { index = index, epochs = 1, threads = 3, quarantine = %q,
  resolutions = { tiny = { pixels = 1024, aspects = { ["1.00"] = { 32, 32 } } } },
  bucket_config = { tiny = { [8] = { 1.0, 2 } } } }
local good, seen = 0, 0
for batch in function() return loader:next() end do
  for i = 1, batch.n do
    good, seen = good + batch.weights[i], seen + 1
  end
  loader:release(batch)
end
print(("%%d of %%d"):format(good, seen))
]]

describe("a decoder that crashes", function()
  it("costs only its samples in an epoch", function()
    local events = place.path .. "/quarantine.jsonl"
    local file = place:write("epoch.lua", script:format(place.path .. "/all.mrx", events))
    local out, err, code = moonreel(file, FAULTY .. "crash")
    assert.equal(0, code, err)
    assert.equal("10 of 12\n", out)
    local text = base.read_file(events)
    assert.equal(4, select(2, text:gsub("the decoder crashed", "")))
    assert.equal(4, select(2, text:gsub('"class":"corrupt"', "")))
  end)

  it("costs only its files in an ingest, a scan and a cut", function()
    local out, err, code = moonreel(("data ingest %s/clips -o %s/some.mrx"):format(place.path,
      place.path), FAULTY .. "crash")
    assert.equal(0, code, err)
    assert.matches("10 samples, .*2 refused", out)
    for words, want in pairs { ["scan @/all.mrx"] = 1, ["scan @/all.mrx --decode"] = 1,
      ["cut @/all.mrx -o @/cut.mrx"] = 0 } do
      out, err, code = moonreel("data " .. words:gsub("@", place.path), FAULTY .. "exit")
      assert.equal(want, code, err)
      assert.matches(words:match("^scan") and "10 good, 2 bad\n  2 corrupt" or "10 of 12 rows.*"
        .. "2 rows: corrupt", out)
    end
  end)
end)
