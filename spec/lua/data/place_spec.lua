--- States of several sources, separate and joined. Their use by a run: spec/lua/trainer.
-- Covers: lua/moonreel/data/place.lua
local place = require "moonreel.data.place"

describe("data.place", function()
  it("splits a state into those of its sources and joins them again", function()
    local text = "moonreel blend 1\nsamples 3\nshare a 1 -2\nshare b 2 2\nsource a\n"
      .. "moonreel order 1\nrows 3\nsource b\nmoonreel order 1\nrows 4\n"
    local parts, head = place.split(text)
    assert.same({ a = "moonreel order 1\nrows 3\n", b = "moonreel order 1\nrows 4\n" }, parts)
    assert.equal(text, place.join(parts, head))
    parts, head = place.split("moonreel order 1\nrows 3\n")
    assert.same({ [""] = "moonreel order 1\nrows 3\n" }, parts)
    assert.equal("moonreel order 1\nrows 3\n", place.join(parts, head))
  end)
end)
