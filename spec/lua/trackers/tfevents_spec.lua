--- Records and messages of TensorBoard's event files.
-- Covers: lua/moonreel/trackers/tfevents.lua
local tfevents = require "moonreel.trackers.tfevents"
local tracked = require "spec.support.tracked"

local function hex(text)
  return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

describe("event files", function()
  it("frame records as TensorBoard does", function()
    local event = "\x09\x8b\x18\xa3\xcc\x4c\xc2\xda\x41\x1a\x0dbrain.Event:2"
      .. "\x52\x2e\x0a\x2ctensorboard.summary.writer.event_file_writer"
    -- the first record of a file that tensorboard 2.21.0 wrote
    assert.equal("4800000000000000" .. "fe92489d" .. hex(event) .. "0d9702dd",
      hex(tfevents.record(event)))
    assert.equal(event:sub(1, 24), tfevents.version(string.unpack("<d", event, 2)))
  end)

  it("give the offset at which the last whole record ends", function()
    local one = tfevents.record(tfevents.version(5))
    local two = one .. tfevents.record(tfevents.values(6, 7, tfevents.scalar("a", 1)))
    for n = 0, #two do
      assert.equal(n == #two and n or n >= #one and #one or 0, tfevents.whole(two:sub(1, n)))
    end
    for at = 1, #two do
      local bad = two:sub(1, at - 1) .. string.char(two:byte(at) ~ 64) .. two:sub(at + 1)
      assert.equal(at > #one and #one or 0, tfevents.whole(bad), "byte " .. at)
    end
    assert.equal(#one, tfevents.whole(one .. ("\0"):rep(64)))
  end)

  it("store numbers as float32, also inf and nan", function()
    local text = tfevents.record(tfevents.values(1.5, 1 << 40, tfevents.scalar("loss", 0.1)
      .. tfevents.scalar("nan", 0 / 0) .. tfevents.scalar("inf", -math.huge)))
    local one = tracked.events(text)[1]
    assert.equal(string.unpack("<f", string.pack("<f", 0.1)), one.values.loss)
    assert.not_equal(one.values.nan, one.values.nan)
    assert.equal(-math.huge, one.values.inf)
    assert.same({ 1.5, 1 << 40 }, { one.wall, one.step })
  end)

  it("encode texts, pictures and hyper-parameters", function()
    local get = tracked.get
    local function value(text) return get(text, 1) end
    local text = value(tfevents.text("recipe", "return {}"))
    assert.equal("recipe/text_summary", get(text, 1))
    assert.equal("text", get(text, 9, 1, 1))
    assert.equal("return {}", get(text, 8, 8))
    assert.same({ 7, 1 }, { get(text, 8, 1), get(text, 8, 2, 2, 1) })
    local image = value(tfevents.image("a", "GIF", 16, 24))
    assert.same({ 16, 24, "GIF" }, { get(image, 4, 1), get(image, 4, 2), get(image, 4, 4) })
    local list = tracked.fields(tfevents.hparams({ { "flag", true }, { "lr", 0.5 },
      { "name", "x" } }, { "loss" }))
    assert.equal("_hparams_/experiment", get(list[1][2], 1))
    assert.equal("hparams", get(list[1][2], 9, 1, 1))
    assert.equal("loss", get(list[1][2], 9, 1, 2, 2, 5, 1, 2))
    assert.equal(2, get(list[1][2], 9, 1, 2, 2, 4, 4)) -- the first hyper-parameter is a boolean
    assert.equal("_hparams_/session_start_info", get(list[2][2], 1))
    assert.equal(1, get(list[2][2], 9, 1, 2, 3, 1, 2, 4))
    local over = value(tfevents.hparams_end(false))
    assert.equal(2, get(over, 9, 1, 2, 4, 1))
  end)

  it("restart a curve after a given step", function()
    local one = tracked.events(tfevents.record(tfevents.start(2, 11)))[1]
    assert.same({ true, 11, 2 }, { one.start, one.step, one.wall })
  end)
end)
