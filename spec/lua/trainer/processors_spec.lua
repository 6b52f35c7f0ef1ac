--- Processors as the kernel counts them.
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"
local processors = require "moonreel.trainer.processors"

describe("processors", function()
  it("are as many as getconf reports, and the load is a number", function()
    local said = process.run({ "/usr/bin/getconf", "_NPROCESSORS_ONLN" }, "").output
    assert.equal(tonumber(said), processors.count())
    assert.is_true(processors.wanted() >= 0)
    assert.is_true(math.abs(processors.wanted() - tonumber(base.read_file("/proc/loadavg")
      :match "^%S+")) < 1)
  end)
end)
