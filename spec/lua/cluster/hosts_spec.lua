--- Two hosts with two ranks each, as network namespaces, form one world. A link that goes down or a
-- route that drops all packets ends the run, and the error names the host. A slow link changes no
-- result.
-- Covers: core/comm/tcp.c lua/moonreel/cluster/launch.lua
local namespaces = require "spec.support.namespaces"
local process = require "moonreel.core.process"

local dir
setup(function() dir = namespaces.folder() end)
teardown(function() dir:remove() end)

-- Runs code on hosts a and b, after the shell commands `before`. Returns output and exit code, or
-- nil where the system allows no namespaces. `list` is another host file, `more` are options of the
-- launcher.
local function run(code, before, list, more)
  local script = dir:write("ranks.lua", [[
    local world = require("moonreel.comm").world { deadline_s = 30, lost_after_s = 1 }
    world:barrier()
  ]] .. code)
  local file = list and dir:write("list", list) or dir.path .. "/hosts"
  local done, why = namespaces.run({ "/bin/sh", "-c", (before or ":") .. ' && exec "$@"', "sh",
    process.program(), "-e", ([[
    os.exit((require("moonreel.cluster.launch").run({ %q }, { hostfile = %q, %s })))
    ]]):format(script, file, more or "") }, dir.path .. "/rsh")
  if not done then
    return pending(why)
  end
  return done.output, done.exit
end

describe("hosts that are namespaces", function()
  it("form one world", function()
    local output, exit = run [[
    local x = require("moonreel.core.tensor").from({ 1 }, { world:rank() + 1 })
    world:all_reduce(x)
    print(("rank %d on %s: %g"):format(world:rank(),
      io.open("/proc/sys/kernel/hostname"):read(), x:item()))
    ]]
    if not output then
      return
    end
    assert.equal(0, exit, output)
    for rank = 0, 3 do
      assert.matches(("rank %d on %s: 10\n"):format(rank, rank < 2 and "a" or "b"), output)
    end
  end)

  it("end when the link goes down", function()
    local output, exit = run [[
    if world:rank() == 0 then
      os.execute "ip link set va down"
    end
    world:barrier()
    world:barrier()
    ]]
    if not output then
      return
    end
    assert.equal(6, exit, output)
    assert.matches("rank %d at 10%.77%.0%.%d[^\n]* does not answer: ", output)
    assert.matches("\nmoonreel: host [ab]: the link from host [ab] to host [ab] fails: rank %d "
      .. "hears nothing of rank %d: [%a ]+; all 4 ranks of 2 hosts",
      output)
  end)

  it("end when a route drops all packets", function()
    local output, exit = run [[
    if world:rank() == 2 then
      os.execute "ip route add blackhole 10.77.0.1/32"
    end
    world:barrier()
    world:barrier()
    ]]
    if not output then
      return
    end
    assert.equal(6, exit, output)
    assert.matches("rank %d at 10%.77%.0%.%d", output)
  end)

  -- the launch ends at once, although restarts are allowed
  local RESTARTS = "restarts = 2, restart_pause = 0, again = function() return {'-e', ''} end"
  local function expect_link(output, exit, text)
    if output then
      assert.equal(6, exit, output)
      assert.matches("\nmoonreel: host b: the link from host b to host a fails: rank [23] cannot "
        .. "reach rank 0 at " .. text .. "; all 4 ranks of 2 hosts have ended\n$", output)
      assert.is_nil(output:find("restart", 1, true), output)
    end
  end

  it("name both ends of a link that drops the first packets of ranks", function()
    local output, exit = run("", "ip -n a route add blackhole 10.77.0.2/32", nil, RESTARTS)
    expect_link(output, exit, "10%.77%.0%.1 port %d+ in 1%d[%d.]* s: Connection timed out")
  end)

  -- what a command of two words prints for the hosts of a list, after `before`
  local function ask(words, list, before)
    local done, why = namespaces.run({ "/bin/sh", "-c", (before or ":") .. ' && exec "$@"', "sh",
      process.program(), words, "--json", "--hostfile", dir:write("list", list) },
      dir.path .. "/rsh")
    if not done then
      return pending(why)
    end
    return require("moonreel.core.json").decode(done.output:match "^.-(%[.*)$"), done.exit
  end

  local function row_of(rows, host, what)
    for _, row in ipairs(rows) do
      if row.host == host and row.what == what then
        return row
      end
    end
    return {}
  end

  it("make the doctor report a host that cannot resolve the first host's name", function()
    local rows, exit = ask("doctor", "a\nb\n")
    if rows then
      assert.equal(1, exit)
      assert.matches("^host b: the link from host b to host a fails: rank 1 cannot reach rank 0 at "
        .. "a port %d+ in 1%d[%d.]* s: [%a ]+; all 2 ranks", row_of(rows, "all", "links").text)
    end
  end)

  local SLOW = "ip netns exec a tc qdisc add dev va root tbf rate 20mbit burst 64kb latency 50ms"

  it("make the doctor report the slow link", function()
    local rows, exit = ask("doctor", "a addr=10.77.0.1\nb addr=10.77.0.2\n", SLOW)
    if rows then
      assert.equal(1, exit)
      assert.matches("^the slowest link between hosts, from a to b, carries [23]%.%d* MB/s; ",
        row_of(rows, "all", "slow link").text)
    end
  end)

  it("score lower when a link is slow", function()
    local rows, exit = ask("health", "a addr=10.77.0.1\nb addr=10.77.0.2\n", SLOW)
    if rows then
      assert.equal(0, exit)
      local between = rows[1].answer.between
      assert.matches("^the slowest link between hosts, from a to b, carries", between.fault)
      assert.is_true(between.sends < 4e6 and between.receives > 4e7)
      assert.is_true(rows[1].answer.score < 1)
    end
  end)

  it("compute the same numbers over a slow link", function()
    local output, exit = run [[
    if world:rank() == 0 then
      os.execute "tc qdisc add dev va root tbf rate 40mbit burst 64kb latency 50ms"
    end
    world:barrier()
    local T = require "moonreel.core.tensor"
    local list = {}
    for i = 1, 1 << 16 do
      list[i] = world:rank() + 0.5
    end
    local x = T.from({ #list }, list)
    world:all_reduce(x)
    print(("rank %d: %g %g"):format(world:rank(), x:totable()[1], x:totable()[1 << 16]))
    ]]
    if not output then
      return
    end
    assert.equal(0, exit, output)
    for rank = 0, 3 do
      assert.matches(("rank %d: 8 8\n"):format(rank), output)
    end
  end)
end)
