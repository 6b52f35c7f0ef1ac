--- Encodes fields of protobuf messages.
-- Covers: lua/moonreel/trackers/proto.lua
local proto = require "moonreel.trackers.proto"

describe("protobuf", function()
  it("writes whole numbers in groups of seven bits, negative ones in ten bytes", function()
    -- the examples of the protobuf documentation, and the ends of the range
    assert.equal("\x96\x01", proto.varint(150))
    assert.equal("\0", proto.varint(0))
    assert.equal("\x7f", proto.varint(127))
    assert.equal("\x80\x01", proto.varint(128))
    assert.equal("\xfe" .. ("\xff"):rep(8) .. "\x01", proto.varint(-2))
    assert.equal(("\xff"):rep(8) .. "\x7f", proto.varint(math.maxinteger))
  end)

  it("writes number and type before each field", function()
    assert.equal("\x08\x96\x01", proto.integer(1, 150))
    assert.equal("\x12\x07testing", proto.bytes(2, "testing"))
    assert.equal("\x12\xac\x02", proto.head(2, 300))
    assert.equal("\x09\0\0\0\0\0\0\xf0\x3f", proto.double(1, 1))
    assert.equal("\x15\0\0\x80\x3f", proto.float(2, 1))
    assert.equal("\x82\x01\x01x", proto.bytes(16, "x"))
    assert.equal("\xc2\x0c\x00", proto.bytes(200, ""))
  end)
end)
