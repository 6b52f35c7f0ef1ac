--- Records, blocks and messages of W&B logs.
-- Covers: lua/moonreel/trackers/wandblog.lua
local tracked = require "spec.support.tracked"
local wandblog = require "moonreel.trackers.wandblog"

describe("W&B logs", function()
  it("begin with the version that a W&B SDK reads", function()
    assert.equal(":W&B\xe1\xbe\0", wandblog.head(0))
    assert.equal(":W&B\xe1\xbe\1", wandblog.head(1))
  end)

  it("have the checksum of zlib over type and data", function()
    -- zlib.crc32(b"\x01123")
    assert.equal("\xb9\x02\xf1\xee\3\0\1" .. "123", wandblog.frame("123", 7))
  end)

  it("split records at blocks of 32 KiB", function()
    local function kinds(size, at)
      local text, list, place = wandblog.frame(("x"):rep(size), at), {}, at
      while place < at + #text do
        local left = 32768 - place % 32768
        if left < 7 then
          assert.equal(("\0"):rep(left), text:sub(place - at + 1, place - at + left))
          list[#list + 1], place = "0", place + left
        else
          local n, kind = string.unpack("<I2B", text, place - at + 5)
          assert.is_true(n + 7 <= left)
          list[#list + 1], place = ("%d:%d"):format(kind, n), place + 7 + n
        end
      end
      return table.concat(list, " ")
    end
    assert.equal("1:10", kinds(10, 7))
    assert.equal("1:32754", kinds(32754, 7))
    assert.equal("2:32754 4:1", kinds(32755, 7))
    assert.equal("2:32754 3:32761 4:5", kinds(32754 + 32761 + 5, 7))
    assert.equal("2:0 4:3", kinds(3, 32768 - 7))
    assert.equal("0 1:3", kinds(3, 32768 - 6))
    assert.equal("0 2:32761 4:1", kinds(32762, 32768 - 1))
    assert.equal("1:3", kinds(3, 2 * 32768))
    assert.equal("1:0", kinds(0, 32768 - 7))
  end)

  it("give the offset at which the last whole record ends", function()
    local text, ends = wandblog.head(0), { 7 }
    for i = 1, 5 do
      text = text .. wandblog.frame(("%d"):format(i):rep(15000), #text)
      ends[#ends + 1] = #text
    end
    for n = #text, 0, -997 do
      local want = 0
      for _, stop in ipairs(ends) do
        want = stop <= n and stop or want
      end
      assert.equal(want, wandblog.whole(text:sub(1, n)), n)
    end
    assert.equal(#text, wandblog.whole(text))
    assert.equal(#text, wandblog.whole(text .. ("\0"):rep(64)))
    local bad = text:sub(1, 20000) .. "z" .. text:sub(20002)
    assert.equal(ends[2], wandblog.whole(bad))
  end)

  it("write values as JSON, and as text the numbers that JSON lacks", function()
    assert.equal("NaN", wandblog.json(0 / 0))
    assert.equal("-Infinity", wandblog.json(-math.huge))
    assert.equal("Infinity", wandblog.json(math.huge))
    assert.equal("0.1", wandblog.json(0.1))
    assert.equal("7", wandblog.json(7))
    assert.equal('{"a":[1]}', wandblog.json { a = { 1 } })
  end)

  it("encode whether a run is new, resumes or rewinds", function()
    local get = tracked.get
    local function run(more)
      local r = { id = "i", project = "p", name = "n", wall = 2.5, tags = { "a", "b" },
        config = { lr = 0.5, model = { depth = 2 } } }
      for key, value in pairs(more) do
        r[key] = value
      end
      return wandblog.run(r)
    end
    local fresh = run {}
    assert.same({ "i", "p", "n", 2, 500000000 }, { get(fresh, 1), get(fresh, 3), get(fresh, 8),
      get(fresh, 17, 1), get(fresh, 17, 2) })
    assert.same({ lr = 0.5, model = { depth = 2 } }, tracked.items(get(fresh, 4), 1))
    assert.is_nil(get(fresh, 24))
    assert.is_nil(get(fresh, 23))
    assert.equal(1, get(run { resume = true }, 24))
    local back = run { rewind = 40 }
    assert.is_nil(get(back, 24))
    assert.same({ "i", 40.0, "_step" }, { get(back, 23, 1), string.unpack("<d", get(back, 23, 2)),
      get(back, 23, 3) })
  end)
end)
