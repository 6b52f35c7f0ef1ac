--- Ranks of several hosts are started through a remote shell, connect, and end together; an error
-- names the host that failed. All hosts of this spec are this computer.
-- Covers: core/bind/stream.c core/comm/launch.c lua/moonreel/cluster/node.lua
-- lua/moonreel/cluster/remote.lua lua/moonreel/cli/node.lua lua/moonreel/cluster/answers.lua
local base = require "moonreel.core.base"
local cluster = require "spec.support.cluster"
local fails = dofile "spec/support/fails.lua"
local frames = require "moonreel.cluster.frames"
local launch = require "moonreel.cluster.launch"
local process = require "moonreel.core.process"
local remote = require "moonreel.cluster.remote"

local dir
setup(function() dir = cluster.new("one slots=2\nchatty-two slots=2 addr=127.0.0.1\n") end)
teardown(function() dir:remove() end)

-- ranks reach the first host by address, because no host has its name
local function hosts(text) dir:write("hosts", text) end
local TWO = "one slots=2 addr=127.0.0.1\nchatty-two slots=2\n"

local MEET = [[
local world = require("moonreel.comm").world { deadline_s = 60 }
world:barrier()
]]

describe("ranks of several hosts", function()
  it("form one world that knows its hosts", function()
    hosts(TWO)
    local output, exit = cluster.run(dir, MEET .. [[
    local here = require("moonreel.comm.place").find()
    local x = require("moonreel.core.tensor").from({ 1 }, { world:rank() + 1 })
    print(("%d of %d on %s: %g, %d of %d"):format(world:rank(), world:size(),
      os.getenv "MOONREEL_HOST", world:all_reduce(x):item(), here.local_rank, here.local_size))
    ]])
    local lines = {}
    for line in output:gmatch("[^\n]+") do
      lines[#lines + 1] = line
    end
    table.sort(lines)
    assert.equal("0 of 4 on one: 10, 0 of 2\n1 of 4 on one: 10, 1 of 2\n"
      .. "2 of 4 on chatty-two: 10, 0 of 2\n3 of 4 on chatty-two: 10, 1 of 2",
      table.concat(lines, "\n"))
    assert.equal(0, exit)
  end)

  it("are as many as -n asks for or the slots allow", function()
    hosts("one slots=1 addr=::1\nb\nc max_slots=2")
    local output, exit = cluster.run(dir, "print(require('moonreel.comm').world():size())")
    assert.same({ "3\n3\n3\n", 0 }, { output, exit })
    output, exit = cluster.run(dir, "", "ranks = 3")
    assert.matches("host c: 3 ranks, max_slots=2 in the host file", output)
    assert.equal(2, exit)
  end)

  it("run a Lua file as well as a recipe", function()
    local script = dir:write("file.lua", [[
      local world = require("moonreel.comm").world()
      print(("%d of %d: %s"):format(world:rank(), world:size(), table.concat({ ... }, " ")))
    ]])
    local function run(words)
      local done = process.run({ "/bin/sh", "-c", ("MOONREEL_RSH=%s/rsh exec %s %s 2>&1"):format(
        dir.path, process.program(), words) }, "", { deadline_s = 600 })
      return done.output, done.exit
    end
    hosts(TWO)
    local file = "--hostfile " .. dir.path .. "/hosts "
    local output, exit = run(file .. "-n 1 " .. script .. " a -n")
    assert.equal(0, exit, output)
    assert.is_true(output == "0 of 2: a -n\n1 of 2: a -n\n"
      or output == "1 of 2: a -n\n0 of 2: a -n\n", output)
    output, exit = run(file .. "--exclude one --include one " .. script)
    assert.equal(2, exit)
    assert.matches("%-%-include and %-%-exclude: expected only one of the two", output)
    for words, part in pairs {
      [file] = "hosts: expected the command that each rank runs",
      ["--hostfile"] = "--hostfile: expected a value and the command that each rank runs",
      ["-n 2 --include one " .. script] = "--include and --exclude need --hostfile",
      ["-n 2 -n 2 " .. script] = "-n is given twice",
      [file .. "-n x " .. script] = "-n x: expected a whole number of ranks" } do
      output, exit = run(words)
      assert.equal(2, exit, words)
      assert.is_truthy(output:find(part, 1, true), output)
    end
  end)

  it("end together, and the last line names the rank that failed first", function()
    hosts(TWO)
    local output, exit = cluster.run(dir, MEET .. [[
    if world:rank() == 3 then
      require("moonreel.core.base").raise("MR_E_DATA", "no sample here")
    end
    world:barrier()
    ]])
    assert.equal(4, exit)
    assert.matches("moonreel: rank 3: [^\n]*: no sample here\n"
      .. "moonreel: host chatty%-two: rank 3 ended with exit code 4; all 4 ranks of 2 hosts have "
      .. "ended\n$", output)
  end)

  it("are not restarted when two of them cannot connect, and the error names both hosts", function()
    hosts(TWO)
    -- rank 3 cannot reach rank 1; rank 2 ends first, with the error that rank 0 sent it
    local output, exit = cluster.run(dir, [[
    local base, rank = require "moonreel.core.base", os.getenv "MOONREEL_RANK"
    local own = "rank 3 on two cannot reach rank 1 at 10.0.0.1 port 5: it is full; try: x"
    local first = arg[0]:match("^.*/") .. "first"
    if rank == "2" then
      base.replace_file(first, tostring(base.pid()))
      base.raise("MR_E_NODE", "rank 0 gave up: hello 0: rank 3 gave up: " .. own)
    elseif rank == "3" then
      while not base.exists(first) or base.exists("/proc/" .. base.read_file(first)) do
        base.sleep(0.01)
      end
      base.raise("MR_E_NODE", own)
    end
    ]] .. MEET, "restarts = 3, restart_pause = 0, again = function() return { '-e', '' } end")
    assert.equal(6, exit, output)
    assert.matches("\nmoonreel: host chatty%-two: the link from host chatty%-two to host one "
      .. "fails: rank 3 cannot reach rank 1 at 10%.0%.0%.1 port 5: it is full; all 4 ranks of 2 "
      .. "hosts have ended\n$", output)
    assert.is_nil(output:find("restart", 1, true), output)
  end)

  it("name the host from which most ranks receive nothing", function()
    hosts "one addr=127.0.0.1\ntwo\nthree\n"
    -- rank 1 receives nothing from the others; rank 2 is the first to end
    local output, exit = cluster.run(dir, MEET .. [[
    local base, rank = require "moonreel.core.base", world:rank()
    local first = arg[0]:match("^.*/") .. "gone"
    if rank == 2 then
      base.replace_file(first, tostring(base.pid()))
    else
      while not base.exists(first) or base.exists("/proc/" .. base.read_file(first)) do
        base.sleep(0.01)
      end
    end
    -- without a word to the others
    io.stderr:write(("moonreel: rank %d: all_gather 7 (3 f64): rank %d at 10.0.0.1 port 5 does not "
      .. "answer: Connection timed out; try: x\n"):format(rank, rank == 1 and 0 or 1))
    os.exit(6)
    ]])
    assert.equal(6, exit, output)
    -- whichever rank's error arrives first, it concerns the same host
    assert.matches("\nmoonreel: rank [02]: [^\n]*: rank 1 at 10%.0%.0%.1 port 5 does not answer: "
      .. "[^\n]*\nmoonreel: host two: the link from host %a+ to host two fails: rank [02] hears "
      .. "nothing of rank 1: Connection timed out; all 3 ranks of 3 hosts have ended\n$", output)
  end)

  it("end when one dies before they connect, and when one is killed", function()
    hosts(TWO)
    local output, exit = cluster.run(dir,
      "if os.getenv 'MOONREEL_RANK' == '1' then os.exit(9) end\n" .. MEET)
    assert.equal(9, exit)
    assert.matches("host one: rank 1 ended with exit code 9; all 4 ranks of 2 hosts", output)
    output, exit = cluster.run(dir, MEET
      .. "if world:rank() == 2 then io.popen('kill -9 $PPID'):close() end\nworld:barrier()")
    assert.equal(137, exit)
    assert.matches("host chatty%-two: rank 2 was ended by signal 9", output)
  end)

  it("end when the helper of their host is killed", function()
    hosts(TWO)
    -- the parent of a rank is the helper
    local output, exit = cluster.run(dir, MEET .. [[
    if world:rank() == 2 then
      io.popen("kill -9 $(ps -o ppid= -p $PPID)"):close()
    end
    world:barrier()
    world:barrier()
    ]])
    assert.equal(6, exit)
    assert.matches("host chatty%-two: is lost: its helper has ended, exit code 137; all 4", output)
  end)

  it("restart from the run's checkpoint after the loss of a rank or a host", function()
    hosts(TWO)
    local output, exit = cluster.run(dir, MEET .. [[
    local life = require "moonreel.core.life"
    local base = require "moonreel.core.base"
    life.publish(world:rank(), world:size())
    life.set_run("a run", "/nowhere/a-run", 1)
    local starts = arg[0]:match("^.*/") .. "starts"
    local n = #base.read_file(starts)
    life.step(7 + n)
    world:barrier()
    if world:rank() == 2 and n < 2 then
      io.open(starts, "a"):write "x":close()
      io.popen(n == 0 and "kill -9 $PPID" or "kill -9 $(ps -o ppid= -p $PPID)"):close()
    end
    world:barrier()
    world:barrier()
    ]], ([[restarts = 3, restart_pause = 0, again = function(run)
      io.stderr:write("again ", tostring(run), "\n")
      return { %q }
    end]]):format(dir:write("starts", "") and dir.path .. "/ranks.lua"))
    assert.equal(0, exit, output)
    assert.matches("again /nowhere/a%-run\nmoonreel: host chatty%-two: rank 2 was ended by signal "
      .. "9 [^\n]* at step 7; restart 1 of 3 in 0 s, from /nowhere/a%-run\n", output)
    assert.matches("host chatty%-two: is lost: [^\n]* at step 8; restart 2 of 3", output)
  end)

  it("are watched on their host, and a rank that hangs is named and ended", function()
    hosts(TWO)
    local output, exit = cluster.run(dir, MEET .. [[
    local life = require "moonreel.core.life"
    life.publish(world:rank(), world:size())
    life.step(1)
    life.phase "forward"
    world:barrier()
    if world:rank() == 3 then
      io.popen("kill -STOP $PPID"):close()
    end
    world:barrier()
    ]], "watch = { start = 60, load = 60, forward = 0.3, reduce = 60, optimizer = 60, "
      .. "snapshot = 60, persist = 60 }, patience = 1")
    assert.equal(6, exit, output)
    assert.matches("\nmoonreel: host chatty%-two: rank 3 is stopped in forward at step 1 [^\n]*; "
      .. "all 4 ranks of 2 hosts have ended\n$", output)
  end)

  it("end when the launcher is killed", function()
    hosts(TWO)
    local script = dir:write("wait.lua", MEET .. [[
    io.open(os.getenv "MOONREEL_HERE" .. "/met", "a"):write("met\n"):close()
    world:barrier()
    if world:rank() == 0 then
      -- the launcher is the parent of the helper
      io.popen("kill -9 $(ps -o ppid= -p $(ps -o ppid= -p $PPID))"):close()
    end
    for _ = 1, 6000 do
      world:barrier()
      require("moonreel.core.base").sleep(0.01)
    end
    ]])
    -- all ranks hold the pipe to this process open: it closes when the last one has ended
    local done = process.run({ "/bin/sh", "-c", 'exec "$@" 3>&1', "sh", "/usr/bin/env",
      "MOONREEL_RSH=" .. dir.path .. "/rsh", "MOONREEL_HERE="
      .. dir.path, process.program(), "-e", ("require('moonreel.cluster.launch').run({ %q }, "
      .. "{ hostfile = %q })"):format(script, dir.path .. "/hosts") }, "", { deadline_s = 600,
        quiet = true })
    assert.is_false(done.timed_out)
    assert.equal(9, done.signal)
    local met = require("moonreel.core.base").read_file(dir.path .. "/met")
    assert.equal(("met\n"):rep(4), met)
  end)

  it("are not started when a host cannot be reached", function()
    hosts("one addr=127.0.0.1\ndown-a\ndown-b")
    local output, exit = cluster.run(dir, "print 'started'")
    assert.equal(6, exit)
    assert.is_nil(output:find("started", 1, true))
    assert.matches("host down%-a: it cannot be reached, exit code 255: connect to host down%-a: No "
      .. "route to host\n  host down%-b: .-\n  2 of 3 hosts cannot run", output)
  end)

  it("are not started when a host has another build of the program", function()
    hosts("one addr=127.0.0.1\ntwo")
    local rsh = require("moonreel.core.base").read_file(dir.path .. "/rsh")
    -- changes the build id in the program, or the file when it has no build id
    local other, n = base.read_file(process.program())
      :gsub("(\4\0\0\0.\0\0\0\3\0\0\0GNU\0)....", "%1abcd")
    dir:write("other", n > 0 and other or other .. "x")
    os.execute("chmod +x '" .. dir.path .. "/other'")
    dir:write("rsh", (rsh:gsub('exec "%$@"', function(exec)
      return ("[ $host = two ] && exec %s/other node\n"):format(dir.path) .. exec
    end)))
    os.execute("chmod +x '" .. dir.path .. "/rsh'")
    local output, exit = cluster.run(dir, "")
    dir:write("rsh", rsh)
    os.execute("chmod +x '" .. dir.path .. "/rsh'")
    assert.equal(6, exit)
    assert.matches("host two: another build of moonreel %(.-, %x+%) than here %(%x+%)", output)
  end)

  it("end with an error when a helper sends a message that this build never sends", function()
    hosts("one")
    local rsh = require("moonreel.core.base").read_file(dir.path .. "/rsh")
    local function shell(text)
      dir:write("rsh", text)
      os.execute("chmod +x '" .. dir.path .. "/rsh'")
    end
    local hello = { kind = "hello", version = "0", program = process.build_id() }
    shell(("#!/bin/sh\ncat '%s/said'\ncat > /dev/null\n"):format(dir.path))
    local said_by = { { { kind = "hello" } }, { { kind = "hello", version = "0", program = {} } } }
    for _, bad in ipairs { { kind = "out" }, { kind = "err", text = { "a" } }, { kind = "gone" },
      { kind = "ended", text = "", exit = "-1" } } do
      said_by[#said_by + 1] = { hello, bad }
    end
    for _, said in ipairs(said_by) do
      local bytes, last = frames.GREETING, nil
      for _, message in ipairs(said) do
        bytes, last = bytes .. frames.encode(message), message.kind
      end
      dir:write("said", bytes)
      local output, exit = cluster.run(dir, "")
      assert.equal(6, exit, output)
      assert.matches(("host one: it sent the message '%s', which no helper of this "
        .. "build sends\n"):format(last),
        output)
    end
    shell(rsh)
  end)
end)

describe("the environment and the command line of a host", function()
  it("include only allowed variables, and no secrets", function()
    assert.same({ "LANG=C", "MOONREEL_DEVICE=cpu", "NCCL_DEBUG=INFO", "OMP_NUM_THREADS=2" },
      launch.variables("NCCL_DEBUG=INFO\0HOME=/root\0LANG=C\0WANDB_API_KEY=x\0OMP_NUM_THREADS=2\0"
        .. "MOONREEL_SECRET_TEXT=s\0MOONREEL_DEVICE=cpu\0MOONREEL_RSH=rsh\0PATH=/bin\0"))
  end)

  it("split a remote shell command into words without a shell", function()
    local login = remote.words { name = "a", user = "root" }
    assert.equal("root@a", login[#login - 2])
    local words = remote.words { name = "fe80::1", port = 2222 }
    if not os.getenv "MOONREEL_RSH" then
      assert.equal("ssh -o BatchMode=yes -o ConnectTimeout=5 -p 2222 -- fe80::1 "
        .. process.program() .. " node", table.concat(words, " "))
    end
    assert.equal("node", words[#words])
  end)
end)

describe("hosts that stop answering", function()
  -- a clock that advances by 0.1 s at each call
  local now_s, now, before = base.now_s, 0, os.getenv "MOONREEL_RSH"
  before_each(function()
    now = now_s()
    base.now_s = function()
      now = now + 0.1
      return now
    end
    process.set("MOONREEL_RSH", dir.path .. "/rsh")
  end)
  after_each(function()
    base.now_s = now_s
    process.set("MOONREEL_RSH", before or "")
  end)

  it("are given up after 15 s without an answer, all at the same time", function()
    local began = now
    local cluster_of <close> = remote.open { { name = "mute-1" }, { name = "mute-2" },
      { name = "mute-3" }, { name = "mute-4" } }
    for _, link in ipairs(cluster_of.links) do
      assert.equal("it did not answer within 15 s", link.gone)
    end
    assert.is_true(now - began > 15)
    assert.is_true(now - began < 15 + 4, ("%.1f s"):format(now - began))
  end)

  it("are lost 20 s after their last message", function()
    local cluster_of <close> = remote.open { { name = "one" } }
    local link, lost = cluster_of.links[1], nil
    assert.is_true(link.up, link.gone)
    for _ = 1, 1000 do
      for _, event in ipairs(cluster_of:turn(0)) do
        lost = lost or event
      end
      if lost then
        break
      end
    end
    assert.equal("gone", lost.kind)
    assert.matches("^no message from it for 20 s", link.gone)
    assert.is_true(now - link.heard > 20 and now - link.heard < 24)
  end)

  -- runs code with a low limit of open files that the program may raise
  local function with_few_files(code)
    return process.run({ "/bin/sh", "-c", 'ulimit -Sn 40 && ulimit -Hn 200 && exec "$@" 2>&1', "sh",
      process.program(), "-e", code }, "", { deadline_s = 600 })
  end

  it("are connected up to the limit of open files, and refused beyond it", function()
    assert.equal("all are called\n", with_few_files [[
      local base, remote = require "moonreel.core.base", require "moonreel.cluster.remote"
      local now, list = base.now_s(), {}
      base.now_s = function()
        now = now + 0.1
        return now
      end
      for i = 1, 20 do
        list[i] = { name = "mute-" .. i }
      end
      local cluster <close> = remote.open(list)
      for _, link in ipairs(cluster.links) do
        assert(link.gone == "it did not answer within 15 s", link.gone)
      end
      print "all are called"
    ]].output)
    local done = with_few_files [[
      local core, process = require "moonreel.core.launch", require "moonreel.core.process"
      core.allow_files(9, "three hosts")
      print(process.allowed().files)
      core.allow_files(136, "hosts that just fit")
      core.allow_files(137, "many hosts")
    ]]
    assert.equal(6, done.exit)
    assert.matches("^200\nmoonreel: [^\n]*many hosts need 201 open files, 200 are allowed; try: "
      .. "ulimit %-n 201\n", done.output)
  end)

  it("number at most 2048 in one launch", function()
    local list = {}
    for i = 1, 2049 do
      list[i] = { name = "n" .. i }
    end
    fails("MR_E_USAGE", "2049 hosts: expected at most 2048 at once", remote.open, list)
  end)
end)

describe("a host's helper", function()
  -- The launcher sends these orders and then nothing, but keeps the connection open. The helper's
  -- clock advances by one second at each call.
  local function fall_silent(orders)
    local bytes = {}
    for i, order in ipairs(orders) do
      bytes[i] = frames.encode(order)
    end
    return process.run({ "/bin/sh", "-c", [[
      rm -f "$0/launcher"
      mkfifo "$0/launcher" && exec 4<> "$0/launcher" && cat >&4 && exec "$@" <&4 2>&1 ]],
      dir.path, process.program(), "-e", [[
      local base = require "moonreel.core.base"
      local now = base.now_s()
      base.now_s = function()
        now = now + 1
        return now
      end
      os.exit(require("moonreel.cluster.node").run {})
    ]] }, table.concat(bytes), { deadline_s = 600 })
  end

  -- The output of a helper whose launcher falls silent. Until `pattern` it sends one heartbeat
  -- every two seconds. `code` is what its ranks run before they wait for each other.
  local function expect_end(code, pattern, least, most)
    local rank = dir:write("waits.lua", code .. [[
      local world = require("moonreel.comm").world()
      world:receive(require("moonreel.core.tensor").new("f32", { 1 }), 1 - world:rank())
    ]])
    local done = fall_silent { { kind = "start", words = { "moonreel", rank }, env = {}, dir = "/",
      secret = "s", first = 0, ranks = 2, world = 2, patience = 3 } }
    assert.equal(0, done.exit, done.output)
    local before = done.output:sub(1, done.output:find(pattern) or 0)
    local _, beats = before:gsub("beat", "")
    assert.is_true(beats >= least and beats <= most, beats .. done.output)
    return done.output
  end

  it("asks its ranks to end 30 s after the last message of the launcher", function()
    expect_end("", "rank %d was ended by signal 15", 13, 20)
  end)

  it("ends ranks that are still running 15 s later", function()
    local output = expect_end("require('moonreel.core.signal').catch()\n",
      "the launcher of host %S+ is lost\n", 20, 26)
    assert.matches("kind.-ended.-rank %d ended with exit code 6", output)
  end)
end)
