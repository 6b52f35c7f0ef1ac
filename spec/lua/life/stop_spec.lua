--- A run is stopped as a whole, and no other process is: ranks that save, ignore signals or are
-- stopped; children that left them; launches without a launcher; processes that look the same.
-- Covers: lua/moonreel/cli/stop.lua lua/moonreel/cli/target.lua
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local life = require "moonreel.life"
local process = require "moonreel.core.process"

-- 1000 makes this spec longer
local DECOYS <const> = tonumber(os.getenv "MOONREEL_DECOYS" or 60)
local dir = folder.new()
teardown(function() dir:remove() end)

local RUN = [[
  local base, core = require "moonreel.core.base", require "moonreel.core.life"
  local place = require("moonreel.comm.place").find()
  if place.rank == 0 then core.set_run("0123456789abcdef", %q, 1) end
  local function shell(text)
    require("moonreel.core.process").run { "/bin/sh", "-c", text }
  end
  local signal = require "moonreel.core.signal"
  %s
  core.step(1)
  repeat base.sleep(0.01) until signal.pending() and not deaf
]]

-- starts ranks that run this code in the background; returns their launch once all have begun
local function start(ranks, code)
  local path = dir.path .. "/run"
  base.make_dir(path)
  base.replace_file(path .. "/lock", "")
  local file = dir:write("rank.lua", RUN:format(path, code))
  background.start(dir.path .. "/log", process.program(), "-n", tostring(ranks), file)
  return background.await("all ranks", dir.path .. "/log", function()
    for _, one in ipairs(life.of_run(path)) do
      local ready = 0
      for rank = 0, ranks - 1 do
        ready = ready + one.page:rank(rank).step
      end
      if ready == ranks then
        return one
      end
      one.page:close()
    end
  end)
end

local function stop(words)
  local out, err, code = folder.moonreel(("stop '%s/run' --json %s"):format(dir.path, words or ""))
  assert.equal(0, code, out .. err)
  return json.decode(out)[1]
end

local function gone(one)
  assert.equal(0, #core.processes(one.about.token, one.about.uid))
  assert.is_nil(core.state(one.about.pid, one.about.start))
  assert.is_false(base.exists(one.path))
  assert.equal(0, #life.of_run(dir.path .. "/run"))
end

describe("moonreel stop", function()
  after_each(background.stop)

  it("sends SIGTERM and waits for ranks that end by themselves", function()
    local one = start(2, "signal.catch()")
    local row = stop()
    assert.same({ 2, 0, 0, 0 }, { row.ranks, row.terminated, row.killed, row.left })
    assert.is_true(row.free_bytes > 0 and row.time_s >= 0)
    gone(one)
    row = stop()
    assert.same({ 0, 0 }, { row.ranks, row.left })
  end)

  it("kills ranks that ignore signals, are stopped or left their parents, and no others", function()
    -- as many processes with the same words on their command lines
    local decoys = folder.new()
    finally(function()
      os.execute(("kill -9 $(cat '%s/pids')"):format(decoys.path))
      decoys:remove()
    end)
    process.run { "/bin/bash", "-c", ([[
      for i in $(seq %d); do
        (exec -a 'moonreel -n 3 %s/rank.lua' sleep 1000 > /dev/null 2>&1) & echo $!
      done > '%s/pids']]):format(DECOYS, dir.path, decoys.path) }
    local one = start(3, [[
      if place.rank == 0 then
        shell "trap '' TERM; setsid sleep 1000 > /dev/null 2>&1 &"
      end
      signal.catch()
      deaf = place.rank == 1
      if place.rank == 2 then
        core.step(1)
        shell("kill -STOP " .. base.pid())
      end
    ]])
    local row = stop "--wait 1"
    assert.equal(3, row.ranks)
    assert.equal(0, row.left)
    assert.is_true(row.terminated + row.killed >= 1)
    gone(one)
    local alive = 0
    for pid in base.read_file(decoys.path .. "/pids"):gmatch "%d+" do
      local text = base.read_file("/proc/" .. pid .. "/stat")
      alive = alive + (text:match "%) [SR] " and 1 or 0)
    end
    assert.equal(DECOYS, alive)
  end)

  it("ends ranks whose launcher is lost, and the processes that they started", function()
    local one = start(2, [[
      if place.rank == 0 then
        shell "setsid sleep 1000 > /dev/null 2>&1 &"
      end
      signal.catch()
      deaf = place.rank == 1
    ]])
    core.signal(one.about.pid, one.about.start, one.about.uid, 9)
    local row = stop "--wait 0"
    assert.equal(0, row.left)
    gone(one)
  end)

  it("requires a run or a launch of this host", function()
    local _, err, code = folder.moonreel "stop a b"
    assert.equal(2, code)
    assert.matches("expected one run, got 2", err)
    for _, name in ipairs { "nowhere", "987654321" } do
      _, err, code = folder.moonreel("stop " .. name)
      assert.equal(2, code)
      assert.matches(name .. " is neither a run in outputs/ nor a launch of this host; .* which "
        .. "lists what runs here", err)
    end
  end)

  it("finds a launch without a run directory by its number", function()
    local file = dir:write("early.lua", [[
      local base, core = require "moonreel.core.base", require "moonreel.core.life"
      core.phase(os.getenv "MOONREEL_RANK" == "1" and "index" or "compile")
      core.step(0)
      while true do base.sleep(1) end
    ]])
    background.start(dir.path .. "/log", process.program(), "-n", "2", file)
    local row = background.await("a launch in phase index", dir.path .. "/log", function()
      local out, err, code = folder.moonreel "stop --json"
      assert.equal(0, code, err)
      for _, one in ipairs(json.decode(out)) do
        -- other launches may have ended meanwhile: their command is null
        local ours = type(one.command) == "string" and one.command:find(file, 1, true)
        if ours and one.phase == "index" then
          return one
        end
      end
    end)
    assert.same({ "2 of 2", 0 }, { row.ranks, row.step })
    assert.not_equal("string", type(row.run))
    assert.matches("launch +ranks +phase", (folder.moonreel "stacks"))
    local out = folder.moonreel("stacks " .. row.launch)
    assert.matches("rank 0: alive in compile at step 0", out)
    assert.matches("rank 1: alive in index at step 0", out)
    out = folder.moonreel "doctor --json"
    local found
    for _, one in ipairs(json.decode(out)) do
      found = one.what == "launch " .. row.launch and one or found
    end
    assert.equal("note", found.state)
    assert.matches("^runs here: ranks 2 of 2, index, step 0, .*early.lua$", found.text)
    out = json.decode((folder.moonreel(("stop %d --json"):format(row.launch))))[1]
    assert.same({ 2, 0 }, { out.ranks, out.left })
    assert.equal(0, #life.of_launch(row.launch))
  end)
end)
