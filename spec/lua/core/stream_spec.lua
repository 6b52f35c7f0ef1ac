--- Child processes: only a child of this process is waited for, and killed.
-- Covers: core/bind/stream.c
local base = require "moonreel.core.base"
local fails = require "spec.support.fails"
local process = require "moonreel.core.process"
local stream = require "moonreel.core.stream"

describe("stream.reap", function()
  it("gives the exit code of a child once", function()
    local child = stream.spawn { "/bin/sh", "-c", "exit 7" }
    local code
    while not code do
      stream.wait({ child.output }, 10)
      code = stream.reap(child.pid)
    end
    assert.equal(7, code)
    fails("MR_E_USAGE", "reap: process %d+ is no child of this one", stream.reap, child.pid)
    child = stream.spawn { "/bin/sleep", "600" }
    assert.is_nil(stream.reap(child.pid))
    assert.equal(128 + 9, stream.reap(child.pid, true))
  end)

  it("kills no other process", function()
    -- the sleeping process is a child of a shell, not of this process
    local child = stream.spawn { "/bin/sh", "-c", "sleep 600 & echo $!; read line; kill $!" }
    local text = ""
    repeat
      stream.wait({ child.output }, 100)
      text = text .. child.output:read()
    until text:find "\n"
    local pid = math.tointeger(tonumber(text))
    fails("MR_E_USAGE", "is no child of this one", stream.reap, pid, true)
    assert.equal(0, process.run({ "/bin/sh", "-c", "kill -0 " .. pid }, "").exit)
    child.input:write "\n"
    child.input:close()
    stream.reap(child.pid, true)
    for _, other in ipairs { 1, base.pid() } do
      fails("MR_E_USAGE", "is no child of this one", stream.reap, other)
    end
    for _, other in ipairs { 0, -1, (1 << 32) + 1 } do
      assert.has_error(function() stream.reap(other) end)
    end
  end)
end)
