--- Commands that ask several hosts: each host has a line, a host that does not answer has its
-- reason, and the exit code reports it.
-- Covers: lua/moonreel/cluster/answers.lua lua/moonreel/cluster/clock.lua
-- lua/moonreel/cluster/preflight.lua lua/moonreel/cli/nodes.lua lua/moonreel/cli/clock.lua
-- lua/moonreel/cli/health.lua lua/moonreel/cluster/links.lua
local clock = require "moonreel.cluster.clock"
local cluster = require "spec.support.cluster"
local folder = require "spec.support.folder"
local frames = require "moonreel.cluster.frames"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local dir, scene
setup(function()
  dir = cluster.new("b\ndown-c\na\n")
  scene = process.program():gsub("[^/]*$", "") .. "nvml_scene.so"
end)
teardown(function() dir:remove() end)

local function ask(words, more)
  local out, err, code = folder.moonreel(words:gsub("@", dir.path),
    ("MOONREEL_RSH='%s/rsh' %s"):format(dir.path, more or ""))
  return out, code, err
end

describe("commands about hosts", function()
  it("print each host in the order of the file, and why a host is missing", function()
    for _, command in ipairs { "nodes", "clock", "health" } do
      local out, code = ask(command .. " --hostfile @/hosts")
      assert.equal(6, code, out)
      assert.matches("\nb .*\na .*\nhost down%-c: it cannot be reached, exit code 255: connect to "
        .. "host down%-c: No route to host\n$", out)
      out, code = ask(command .. " --json --hostfile @/hosts")
      local rows = json.decode(out)
      assert.equal(6, code)
      assert.same({ "b", "down-c", "a" }, { rows[1].host, rows[2].host, rows[3].host })
      assert.is_not_nil(rows[1].answer)
      assert.is_nil(rows[2].answer)
      assert.matches("No route to host", rows[2].reason)
      assert.equal(0, select(2, ask(command .. " --hostfile @/hosts --include a,b")))
      assert.equal(0, select(2, ask(command)))
    end
    local _, code, err = ask "nodes --include a"
    assert.equal(2, code)
    assert.matches("and %-%-exclude need %-%-hostfile", err)
  end)

  it("do not read the answers of another build", function()
    dir:write("said", frames.GREETING .. frames.encode { kind = "hello", version = "9",
      program = "abc" })
    dir:write("answer", frames.encode { kind = "answer", json = "[7]" })
    dir:write("other", (("#!/bin/sh\ncat '@/said'\nhead -c 4 > /dev/null\ncat '@/answer'\n"
      .. "cat > /dev/null\n"):gsub("@", dir.path)))
    os.execute("chmod +x '" .. dir.path .. "/other'")
    local out, _, code = folder.moonreel(("health --hostfile '%s' --include a"):format(
      dir.path .. "/hosts"), ("MOONREEL_RSH='%s/other'"):format(dir.path))
    assert.equal(6, code)
    assert.matches("^host a: another build of moonreel %(9, abc%) than here %(%x+%); try:", out)
  end)

  it("print GPUs with the processes that use them", function()
    local nvml = ("MOONREEL_NVML='%s' NVML_SCENE='ecc=3'"):format(scene)
    local out, code = ask("nodes", nvml)
    assert.equal(0, code)
    assert.matches("0 +NVIDIA H100.- 1.0 GiB of 80.0 GiB +123 W.- not ready: 3 uncorrected", out)
    local rows = json.decode((ask("nodes --json", nvml)))
    assert.equal(4242, rows[1].answer.gpus[1].processes[1].pid)
    assert.is_false(rows[1].answer.ready)
    assert.near(123.956, rows[1].answer.power.mean_w, 0.01)
    rows = json.decode((ask("nodes --json", ("MOONREEL_NVML='%s' NVML_SCENE='alone lost=1'")
      :format(scene))))
    assert.matches("GPU is lost", rows[1].answer.gpus[2].hindrance)
  end)

  it("print the network counters of each link", function()
    for name, value in pairs { ["net/eth0/operstate"] = "up", ["net/eth0/speed"] = "400",
      ["net/eth0/statistics/rx_bytes"] = "1024", ["net/eth0/statistics/rx_errors"] = "2",
      ["net/lo/operstate"] = "up", ["net/eth1/operstate"] = "down",
      ["infiniband/mlx5_0/ports/1/state"] = "4: ACTIVE",
      ["infiniband/mlx5_0/ports/1/counters/port_rcv_data"] = "256" } do
      dir:write("sys/class/" .. name, value .. "\n")
    end
    local out, code = ask("health --json", ("MOONREEL_SYSFS='%s/sys'"):format(dir.path))
    local found = json.decode(out)[1].answer
    assert.equal(0, code)
    assert.same({ name = "eth0", state = "up", speed_mbit = 400, received_bytes = 1024,
      receive_errors = 2, fault = "2 errors" }, found.links[1])
    assert.same({ "eth1", "down", 3 }, { found.links[2].name, found.links[2].state, #found.links })
    assert.same({ "mlx5_0/1", "active", 1024 }, { found.links[3].name, found.links[3].state,
      found.links[3].received_bytes })
    assert.equal(0.5, found.score)
  end)
end)

describe("clocks", function()
  local function judged(change, service)
    local list = {}
    for i = 1, 4 do
      list[i] = { sent_s = 100 + i, came_s = 100 + i + (i == 3 and 0.002 or 0.2), now_s = 7 + i,
        service = service }
      list[i].wall_s = (list[i].sent_s + list[i].came_s) / 2
      change(list[i], i)
    end
    return clock.judge(list)
  end

  it("are compared by the answer with the shortest round trip", function()
    local found = judged(function(one) one.wall_s = one.wall_s + 0.04 end, "chrony")
    assert.near(0.04, found.offset_s, 1e-9)
    assert.near(0.001, found.bound_s, 1e-9)
    assert.equal("ok", found.verdict)
    assert.equal("no service", judged(function() end).verdict)
    assert.equal("apart", judged(function(one) one.wall_s = one.wall_s - 0.06 end, "ntpd").verdict)
    -- an offset below the bound of its error proves nothing
    assert.equal("ok", judged(function(one)
      one.sent_s, one.came_s = one.sent_s - 1, one.came_s + 1
      one.wall_s = one.wall_s + 0.06
    end, "ntpd").verdict)
    local back = judged(function(one, i)
      one.wall_s = one.wall_s - (i == 4 and 0.03 or 0)
    end, "ntpd")
    assert.equal("steps", back.verdict)
    assert.near(-0.03, back.step_s, 1e-9)
  end)
end)

describe("a difference between clocks", function()
  it("is printed in the unit that people use at its size", function()
    local said = {}
    for i, s in ipairs { 0, -0.0004, 0.9994, 1, -119.94, 120, 7199.4, 7200, -90061, 172799.4,
      190000 } do
      said[i] = clock.text(s, true)
    end
    assert.same({ "+0.0 ms", "-0.4 ms", "+999.4 ms", "+1.0 s", "-119.9 s", "+2 min 00 s",
      "+119 min 59 s", "+2 h 00 min", "-25 h 01 min", "+47 h 59 min", "+2 days 4 h" }, said)
    assert.equal("3.0 s", clock.text(3))
  end)
end)

describe("moonreel doctor --hostfile", function()
  it("merges equal lines of several hosts into one", function()
    local doctor = require "moonreel.cli.doctor"
    local function row(host, text, state)
      return { host = host, what = "store", state = state or "ok", text = text }
    end
    local rows = doctor.folded { row("a", "x"), row("b", "y"), row("c", "x"), row("d", "x"),
      row("e", "x"), row("f", "x", "wrong"), row("g", "y") }
    local said = {}
    for i, one in ipairs(rows) do
      said[i] = ("%s %s %s"):format(one.host, one.state, one.text)
    end
    assert.same({ "a, c, d, ... (4 hosts) ok x", "b, g (2 hosts) ok y", "f wrong x" }, said)
    assert.equal("store", rows[1].what)
  end)

  local function rows_of(words, more)
    local out, code, err = ask(("doctor --json --outputs @/out %s"):format(words), more)
    local found = {}
    for _, row in ipairs(json.decode(out)) do
      found[row.host .. " " .. row.what] = row
    end
    return found, code, err
  end

  it("compares the hosts and reports each check by host", function()
    dir:write("both", "b addr=127.0.0.1\na\n")
    dir:write("recipe.lua", "return recipe.extend('tiny/demo') {}")
    local rows, code, err = rows_of("--hostfile @/both @/recipe.lua")
    assert.equal(0, code, err)
    for _, what in ipairs { "b recipe", "a recipe", "b store", "a store", "b checks",
      "all links" } do
      assert.equal("ok", rows[what] and rows[what].state, what)
    end
    assert.matches("[GM]B/s per host", rows["all links"].text)
    for _, host in ipairs { "a", "b" } do
      assert.matches("^sends %S+ [GM]B/s, receives %S+ [GM]B/s, %S+ ms there and back$",
        rows[host .. " links"].text)
    end
    assert.equal("note", rows["a clock"].state)
  end)

  it("reports a host with another recipe and a host that cannot be reached", function()
    if process.run({ "/bin/sh", "-c", "unshare -Urm true" }, "", { quiet = true }).exit ~= 0 then
      return pending "no namespaces here"
    end
    -- the remote shell of host a mounts another recipe in place of the first
    local rsh = require("moonreel.core.base").read_file(dir.path .. "/rsh")
    dir:write("other.lua", "return recipe.extend('tiny/demo') { lr = 1e-5 }")
    dir:write("rsh", (rsh:gsub('exec "%$@"', function(exec)
      return ("[ $host = a ] && exec unshare -Urm sh -c 'mount --bind %s/other.lua %s/recipe.lua "
        .. "&& exec \"$@\"' sh \"$@\"\n"):format(dir.path, dir.path) .. exec
    end)))
    os.execute("chmod +x '" .. dir.path .. "/rsh'")
    local rows, code = rows_of("--hostfile @/both @/recipe.lua")
    dir:write("rsh", rsh)
    os.execute("chmod +x '" .. dir.path .. "/rsh'")
    assert.equal(1, code)
    assert.equal("ok", rows["b recipe"].state)
    assert.matches("expected the same files", rows["a recipe"].text)
    rows, code = rows_of "--hostfile @/hosts"
    assert.equal(6, code)
    assert.matches("No route to host", rows["down-c host"].text)
    assert.is_nil(rows["down-c clock"])
  end)
end)
