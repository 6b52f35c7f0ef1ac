--- The recorder of a host: a process that writes the state of GPUs and links into a run.
-- Covers: lua/moonreel/cluster/recorder.lua lua/moonreel/cli/recorder.lua
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local dir, scene
setup(function()
  dir = folder.new()
  scene = process.program():gsub("[^/]*$", "") .. "nvml_scene.so"
end)
teardown(function() dir:remove() end)

-- two readings; `code` runs between them
local function looks(words, between)
  local script = dir:write("looks.lua", [[
    local json, recorder = require "moonreel.core.json", require "moonreel.cluster.recorder"
    recorder.answer_s = 2
    local sys = arg[1]
    local function write(name, value) io.open(sys .. name, "w"):write(value, "\n"):close() end
    local one, kept = recorder.look {}
    ]] .. between .. [[
    print(json.encode { one, (recorder.look(kept)) })
  ]])
  for name, value in pairs { ["net/eth0/operstate"] = "up", ["net/eth0/statistics/rx_bytes"] = 1000,
      ["net/eth0/statistics/tx_bytes"] = 500, ["net/eth0/statistics/rx_errors"] = 7,
      ["infiniband/mlx5_0/ports/1/state"] = "4: ACTIVE",
      ["infiniband/mlx5_0/ports/1/counters/port_rcv_data"] = 256 } do
    dir:write("sys/class/" .. name, value .. "\n")
  end
  local done = process.run({ "/usr/bin/env", "MOONREEL_SYSFS=" .. dir.path .. "/sys",
    "MOONREEL_HOST=a/b", "MOONREEL_NVML=" .. scene, "NVML_SCENE=" .. words, process.program(),
    script, dir.path .. "/sys/class/" }, "", { deadline_s = 60 })
  assert.equal(0, done.exit, done.output)
  return table.unpack(json.decode(done.output))
end

describe("a host of a run", function()
  it("reports the rates of its GPUs and links, and their faults", function()
    local one, other = looks("gpus=2 lost=1 slow=4", [[
      write("net/eth0/statistics/rx_bytes", 5000)
      write("net/eth0/statistics/tx_bytes", 100)
      write("net/eth0/statistics/rx_errors", 9)
      write("infiniband/mlx5_0/ports/1/state", "1: DOWN")
    ]])
    assert.equal("a-b", one.host)
    assert.near(123.456, one.scalars["gpu0/power_w"], 1e-9)
    assert.equal(1755, one.scalars["gpu0/clock_mhz"])
    assert.equal(0, one.scalars["gpu0/memory_errors"])
    assert.is_nil(one.scalars["gpu1/power_w"])
    assert.is_true(one.scalars.load >= 0 and one.scalars.free_memory_bytes > 1 << 20)
    assert.matches("^GPU 0: slowed down: power\nGPU 1: .*lost", table.concat(one.faults, "\n"))
    -- rates and errors count from the first reading to the second; a counter that restarted has
    -- none
    assert.is_nil(one.scalars["eth0/received_bytes_s"])
    assert.is_true(other.scalars["eth0/received_bytes_s"] > 0)
    assert.is_nil(other.scalars["eth0/sent_bytes_s"])
    assert.equal(2, other.scalars["eth0/errors"])
    assert.matches("link eth0: 2 errors", table.concat(other.faults, "\n"))
    assert.matches("link mlx5_0/1 is down", table.concat(other.faults, "\n"))
  end)

  it("reports no faults when all is well", function()
    assert.is_nil(looks("gpus=1", "").faults)
  end)

  it("reports a driver that does not answer", function()
    local one = looks("stuck", "")
    assert.same({ "its GPUs and links did not answer within 2 s; the driver may hang" }, one.faults)
    assert.is_true(one.scalars.load >= 0)
  end)
end)

describe("the recorder process of a host", function()
  local path, file
  before_each(function()
    path = run.create(dir.path .. "/outputs", "x")
    file = ("%s/log/node-h.json"):format(path)
  end)

  -- starts a recorder for the process `pid`; the spec waits for the file that it writes
  local function start(fence, pid, began)
    return process.leave { "/usr/bin/env", "MOONREEL_HOST=h", process.program(), "recorder", path,
      tostring(fence), "0.05", tostring(pid), began }
  end

  local function start_of(pid)
    local rest, n = base.read_file(("/proc/%d/stat"):format(pid)):match ".*%) (.*)", 0
    for field in rest:gmatch "%S+" do
      n = n + 1
      if n == 20 then
        return field
      end
    end
  end

  local function wait_for(what)
    while not what() do
      base.sleep(0.02)
    end
  end

  local function gone(pid)
    local good, text = pcall(base.read_file, ("/proc/%d/stat"):format(pid))
    return not good or text:match ".*%) (%S)" == "Z"
  end

  it("writes its file repeatedly until the run is closed", function()
    local lock = run.lock(path)
    local pid = start(lock:fence(), base.pid(), start_of(base.pid()))
    wait_for(function()
      local good, line = pcall(function() return json.decode(base.read_file(file)) end)
      return good and line.number > 1 and line.fence == lock:fence() and line.host == "h"
    end)
    lock:close()
    wait_for(function() return gone(pid) end)
    assert.is_false(base.exists(file))
  end)

  it("ends when its rank ends or another launch begins", function()
    local lock <close> = run.lock(path)
    local other_rank = start(lock:fence(), base.pid(), "1")
    local other_launch = start(lock:fence() + 1, base.pid(), start_of(base.pid()))
    wait_for(function() return gone(other_rank) and gone(other_launch) end)
    assert.is_false(base.exists(file))
  end)

  it("exits with 2 when its arguments are wrong", function()
    local done = process.run({ process.program(), "recorder", path, "x" }, "", { quiet = true })
    assert.equal(2, done.exit)
  end)
end)
