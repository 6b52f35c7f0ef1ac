--- Messages between launcher and hosts hold any bytes and arrive in any pieces. Other bytes are
-- refused.
local base = require "moonreel.core.base"
local frames = require "moonreel.cluster.frames"

describe("frames", function()
  it("carry texts and lists of any bytes, split at any place", function()
    local messages = { { kind = "start", words = { "a b", "", "\0\n\255" }, env = {}, dir = "/" },
      { kind = "beat" }, { kind = "port", port = "77" } }
    local bytes = "login banner\n" .. frames.GREETING
    for _, message in ipairs(messages) do
      bytes = bytes .. frames.encode(message)
    end
    for _, piece in ipairs { 1, 2, 3, 7, 1000 } do
      local reader, got = frames.reader(), {}
      for at = 1, #bytes, piece do
        for _, message in ipairs(reader:feed(bytes:sub(at, at + piece - 1))) do
          got[#got + 1] = message
        end
      end
      assert.same(messages, got)
    end
  end)

  it("are refused when the bytes are no message", function()
    local function refused(pattern, bytes, greeted)
      local reader = frames.reader(greeted)
      local good, problem = pcall(reader.feed, reader, bytes)
      assert.is_false(good)
      assert.matches(pattern, problem)
    end
    refused("output does not come from moonreel's helper", ("motd\n"):rep(20000))
    refused("a message of 16777216 bytes; expected at most 1048576", string.pack("<I4", 1 << 24),
      true)
    refused("bytes that are not a message", string.pack("<s4", "garbage"), true)
    refused("bytes that are not a message", string.pack("<s4", ""), true)
    refused("bytes that are not a message",
      string.pack("<s4", string.pack("<s4BI4", "kind", 1, 1 << 31)), true)
  end)

  it("yield messages or an error for any bytes", function()
    local whole, n = frames.encode { kind = "start", words = { "a", "b" }, dir = "/tmp" }, 0
    local function draw(most)
      n = n + 1
      return math.floor(base.random_uniform(3, "frames", n, 0, 0) * most) + 1
    end
    for _ = 1, 2000 do
      local at = draw(#whole)
      local bytes = whole:sub(1, at - 1) .. string.char(draw(256) - 1)
        .. whole:sub(at + draw(3) - 1)
      local reader = frames.reader(true)
      local good, list = pcall(reader.feed, reader, bytes)
      assert.is_true(good and type(list) == "table" or type(list) == "string")
    end
  end)
end)
