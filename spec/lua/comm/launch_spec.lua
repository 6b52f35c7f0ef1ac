--- Launches are watched, ended and restarted; what their messages say.
-- Covers: lua/moonreel/life/report.lua core/bind/launch.c
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local launch = require "moonreel.comm.launch"
local watch = require "moonreel.life.watch"

local dir = folder.new()
teardown(function() dir:remove() end)

-- a script that counts its starts in `n`
local function script(code)
  return { dir:write("rank.lua", ([[
    local base, core = require "moonreel.core.base", require "moonreel.core.life"
    local world = require("moonreel.comm").world()
    local file, n = %q, 0
    local rank = world:rank()
    if base.exists(file) then n = tonumber(base.read_file(file)) end
    world:barrier()
    if rank == 0 then base.replace_file(file, tostring(n + 1)) end
    if rank == 0 then core.set_run("0123456789abcdef", %q, 1) end
    local function stop(number)
      require("moonreel.core.process").run { "/bin/sh", "-c", "kill -" .. number .. " $PPID" }
    end
  ]]):format(dir.path .. "/starts", dir.path) .. code) }
end

local function starts()
  local n = tonumber(base.read_file(dir.path .. "/starts"))
  os.remove(dir.path .. "/starts")
  return n
end

-- runs a launch; returns exit code, error text and messages
local function run(code, options)
  local said = {}
  options.restart_pause = 0
  options.say = function(line) said[#said + 1] = line end
  options.again = options.again or function() return script(code) end
  local exit, text = launch.run(script(code), 2, options)
  return exit, text, said
end

describe("a launch", function()
  it("restarts after the loss of a rank, from the run directory", function()
    local given = {}
    local code = "core.step(n + 1) if n < 2 and rank == 1 then stop 'KILL' end world:barrier()"
    local exit, text, said = run(code, { restarts = 2,
      again = function(path)
        given[#given + 1] = path
        return script(code)
      end })
    assert.same({ 0, nil }, { exit, text })
    assert.equal(3, starts())
    assert.same({ dir.path, dir.path }, given)
    assert.matches("^rank 1 was ended by signal 9 %(Killed%) at step 1; restart 1 of 2 in 0 s",
      said[1])
    assert.matches("at step 2; restart 2 of 2", said[2])
  end)

  it("proposes to leave out hosts that fail repeatedly, but never all hosts",
    function()
    -- failures of a launch of three hosts; `hosts` lists the host that fails in each start
    local function insist(hosts, restarts)
      local at, said = 0, {}
      launch.insist(function()
        at = at + 1
        return { exit = hosts[at] and 6 or 0, text = "lost", step = 3, dir = "run",
          host = hosts[at], hosts = 3 }
      end, {}, { restarts = restarts, restart_pause = 0, again = function() return {} end,
        say = function(line) said[#said + 1] = line end,
        without = function(names, run_dir)
          return table.concat(names, "+") .. " of " .. run_dir
        end })
      return said
    end
    local said = insist({ "b", "c", "b" }, 5)
    assert.same({ 4, "host b: 2 failures; try without: b of run" }, { #said, said[3] })
    said = insist({ "b", "c", "b", "c", "a" }, 4)
    assert.matches("\n  step 3: lost\n  host b: 2 failures, host c: 2 failures; try without: b%+c "
      .. "of run$", said[#said])
    -- a proposal never leaves out all hosts
    local all = table.concat(insist({ "a", "b", "c", "a", "b", "c" }, 6), "\n")
    assert.matches("try without: a%+b of run\n", all)
    assert.is_nil(all:find("a+b+c", 1, true))
  end)

  it("ends with a summary when restarts make no progress", function()
    local exit, text, said = run("core.step(7) if rank == 1 then stop 'KILL' end world:barrier()",
      { restarts = 2 })
    assert.equal(137, exit)
    assert.matches("^rank 1 was ended by signal 9", text)
    assert.equal(3, starts())
    assert.matches("^2 restarts without 200 new steps:\n  step 7: rank 1 .*\n  step 7: .*\n"
      .. "  step 7:", said[3])
  end)

  it("counts restarts from zero again after enough new steps", function()
    local exit = run("core.step(n * 10) if n < 4 and rank == 1 then stop 'KILL' end "
      .. "world:barrier()", { restarts = 1, restart_steps = 10 })
    assert.equal(0, exit)
    assert.equal(5, starts())
  end)

  it("is not restarted after a defect or a request to stop", function()
    assert.equal(1, (run("if rank == 1 then os.exit(1) end world:barrier()", { restarts = 3 })))
    assert.equal(1, starts())
    assert.equal(143, (run("if rank == 1 then stop 'TERM' end world:barrier()", { restarts = 3 })))
    assert.equal(1, starts())
  end)

  it("ends a rank that hangs and saves a report of all ranks", function()
    local floors = {}
    for _, phase in ipairs(watch.phases) do
      floors[phase] = 0.3
    end
    -- on a busy machine a rank may need more than 0.3 s to stop itself
    floors.snapshot, floors.persist = 3, 3
    local exit, text, said = run([[
      core.step(3)
      core.phase "load"
      if rank == 1 then core.phase "snapshot" stop 'STOP' end
      world:barrier()
    ]], { watch = floors, patience = 2 })
    assert.equal(6, exit)
    assert.matches("^rank 1 is stopped in snapshot at step 3 for [3-9]%.%d s$", text)
    starts()
    local path = said[1]:match "^rank 1 is stopped in snapshot.*; see (.*)$"
    assert.is_nil(path) -- there is no folder for logs
    base.make_dir(dir.path .. "/log")
    exit, text, said = run([[
      core.step(4)
      if rank == 0 then core.phase "persist" stop 'STOP' end
      world:barrier()
    ]], { watch = floors, patience = 1 })
    starts()
    assert.equal(6, exit)
    assert.matches("^rank 0 is stopped in persist", text)
    local kept = json.decode(base.read_file(said[1]:match "; see (.*)$"))
    assert.same({ "hang", 0, "persist" }, { kept.event.kind, kept.event.rank, kept.event.phase })
    assert.equal("T", kept.ranks[1].state)
    assert.equal("barrier", kept.ranks[2].open.kind)
    assert.equal("hello", kept.ranks[2].ops[1].kind)
    assert.equal(kept.ranks[1].pid, kept.ranks[1].threads[1].tid)
  end)

  it("reports a rank that is idle before its first step, but not one that computes", function()
    local floors = {}
    for _, phase in ipairs(watch.phases) do
      floors[phase] = 0.5
    end
    local exit, text = run([[
      core.phase "compile"
      if rank == 1 then base.sleep(1000) end
      while true do end
    ]], { watch = floors, patience = 2 })
    starts()
    assert.equal(6, exit)
    assert.matches("^rank 1 hangs in compile before its first step for %d+%.%d s", text)
  end)

  -- waits for a file that a rank writes; returns its text
  local function text_of(name)
    while not base.exists(dir.path .. "/" .. name) do
      base.sleep(0.01)
    end
    return base.read_file(dir.path .. "/" .. name)
  end

  -- starts ranks that catch the first SIGTERM and then run `code`
  local function begin(code, ranks, options)
    local words = { "moonreel", dir:write("begun.lua", ([[
      require("moonreel.core.signal").catch()
      local base, rank, dir = require "moonreel.core.base", os.getenv "MOONREEL_RANK", %q
    ]]):format(dir.path) .. code) }
    return require("moonreel.core.launch").start(words, ranks, options)
  end

  local function wait(running)
    for _ = 1, 400 do
      if running:look(50) == 0 then
        return running:ended()
      end
    end
  end

  it("is killed by the second signal", function()
    local running <close> = begin([[
      base.replace_file(dir .. "/ready", "x")
      base.sleep(1000)
    ]], 1)
    text_of "ready"
    running:signal(15)
    running:signal(15)
    assert.equal(137, wait(running).exit)
  end)

  it("kills a rank that outlives a failed one, and the children of ranks", function()
    local running <close> = begin([[
      if rank == "0" then
        os.execute("setsid sleep 1000 > /dev/null 2>&1 & echo $! > " .. dir .. "/started")
        base.rename(dir .. "/started", dir .. "/left")
        -- not $PPID: a shell whose rank is gone meanwhile is a child of this spec
        os.execute("kill -STOP " .. base.pid())
      end
      while not base.exists(dir .. "/left") do
        base.sleep(0.01)
      end
      os.exit(3)
    ]], 2, { grace_s = 0.05 })
    local left = text_of("left"):match "%d+"
    assert.equal(3, (wait(running) or {}).exit)
    running:close()
    assert.is_false(base.exists("/proc/" .. left))
  end)

  it("does not kill a rank that is saving when another rank fails", function()
    -- Rank 0 is in the phase `persist` until rank 1 is gone, then saves for longer than both
    -- signals take.
    local running <close> = begin([[
      if rank == "1" then
        base.replace_file(dir .. "/other", base.pid())
        while not base.exists(dir .. "/saves") do
          base.sleep(0.01)
        end
        os.exit(3, false)
      end
      while not base.exists(dir .. "/other") do
        base.sleep(0.01)
      end
      local other = base.read_file(dir .. "/other")
      local function save() require("moonreel.core.life").phase "persist" end
      save()
      base.replace_file(dir .. "/saves", "x")
      while base.exists("/proc/" .. other) do
        save()
        base.sleep(0.01)
      end
      save()
      base.sleep(1.5)
      base.replace_file(dir .. "/saved", "all")
    ]], 2, { grace_s = 0.4 })
    assert.equal(3, (wait(running) or {}).exit)
    assert.equal("all", base.read_file(dir.path .. "/saved"))
  end)

  it("restores the signal mask after overlapping launches", function()
    local function blocked() return base.read_file("/proc/self/status"):match "SigBlk:%s+(%x+)" end
    local start, before = require("moonreel.core.launch").start, blocked()
    local a = start({ "moonreel", "-e", "" }, 1)
    local b = start({ "moonreel", "-e", "" }, 1)
    assert.not_equal(before, blocked())
    a:close()
    b:close()
    assert.equal(before, blocked())
  end)

  it("names the rank that left a call out", function()
    local exit, text = run([[
      local T = require "moonreel.core.tensor"
      if rank == 1 then world:barrier() end
      world:all_reduce(T.new("f32", { 4 }))
    ]], {})
    starts()
    assert.equal(6, exit)
    assert.matches("exit code 6; rank %d makes [^,]*, where others make", text)
  end)

  it("adds nothing to an error that a rank reports itself, though others wait for it", function()
    local exit, text = run([[
      local team = require("moonreel.comm.team").new(world)
      local good, problem = pcall(team.try, team, function()
        if rank == 1 then base.raise("MR_E_NODE", "no such device") end
      end)
      os.exit(require("moonreel.cli.failure").report(problem))
    ]], {})
    assert.same({ 6, "rank 1 ended with exit code 6" }, { exit, text })
    starts()
  end)

  it("distinguishes a rank killed by a signal from one that exited when asked to", function()
    local exit, text = run("if rank == 1 then os.exit(143) end world:barrier()", {})
    assert.equal(143, exit)
    assert.matches("^rank 1 ended as signal 15 %(Terminated%) asked", text)
    exit, text = run("if rank == 1 then stop 'TERM' end world:barrier()", {})
    assert.equal(143, exit)
    assert.matches("^rank 1 was ended by signal 15", text)
  end)
end)
