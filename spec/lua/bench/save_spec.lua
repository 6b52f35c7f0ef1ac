local json = require "moonreel.core.json"
local run = require "spec.support.bench_run"

describe("bench save", function()
  it("reports the time that a save takes from training, with its limit", function()
    local text, exit = run("save", "--json", "--seconds=0.01")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(256 << 20, r.bytes)
    assert.is_true(r.stall_s > 0)
    assert.near(1.3 * r.copy_s + 0.005, r.limit_s, 1e-9)
    assert.same({"page cache", "disk"}, {r.readings[1].from, r.readings[2].from})
    for _, one in ipairs(r.readings) do
      assert.is_true(one.share > 0 and one.verify_rate > 0 and one.cpu_rate > 0)
    end
  end)

  it("creates a new folder for its checkpoint and refuses an existing one", function()
    local _, exit = run("save", "--seconds=0.01", "--dir=spec")
    assert.equal(2, exit)
    assert.is_true(require("moonreel.core.base").exists("spec/lua"))
  end)
end)
