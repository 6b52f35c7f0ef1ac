--- Stacks of ranks, in Lua and C: of ranks that wait, that sleep in a system call and that are
-- stopped. Ranks with equal stacks are printed together.
-- Covers: core/life/threads.c core/stack/frames.c lua/moonreel/cli/stacks.lua
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local life = require "moonreel.life"
local process = require "moonreel.core.process"
local stacks = require "moonreel.life.stacks"

local WAIT_S <const> = 60
local dir = folder.new()
teardown(function() dir:remove() end)

-- four ranks: two wait for the others in a barrier, one opens a pipe without a writer, one sleeps
local RUN = [[
  local core, base = require "moonreel.core.life", require "moonreel.core.base"
  local world = require("moonreel.comm").world()
  local rank = world:rank()
  if rank == 0 then core.set_run("0123456789abcdef", %q, 1) end
  core.step(7)
  local function decode()
    core.clip "clip 12"
    core.phase "load"
    io.open(%q):close()
  end
  if rank == 2 then decode() end
  core.phase "reduce"
  if rank == 3 then
    base.sleep(1000)
  end
  world:barrier()
]]

local function start()
  local path = dir.path .. "/run"
  base.make_dir(path)
  base.replace_file(path .. "/lock", "")
  os.execute(("mkfifo '%s/fifo'"):format(dir.path))
  local file = dir:write("rank.lua", RUN:format(path, dir.path .. "/fifo"))
  background.start(dir.path .. "/log", process.program(), "-n", "4", file)
  -- is a rank in this phase, with its main thread in a system call?
  local function sleeps(one, rank, phase)
    local r = one.page:rank(rank)
    local main = r.phase == phase and core.threads(r.pid)[1]
    return main and main.state == "S"
  end
  return background.await("all ranks", dir.path .. "/log", function()
    for _, one in ipairs(life.of_run(path)) do
      local function at(rank) return one.page:rank(rank) end
      if at(3).state == "T" then
        return one
      end
      if at(0).open and at(1).open and sleeps(one, 2, "load") and sleeps(one, 3, "reduce") then
        core.signal(at(3).pid, at(3).start, one.about.uid, 19)
      end
      one.page:close()
    end
  end)
end

local has_plugin = process.plugin "stack" ~= nil

describe("moonreel stacks", function()
  local one
  setup(function() one = start() end)
  teardown(background.stop)

  it("prints equal ranks together, different ones first, with their Lua frames", function()
    local out, err, code = folder.moonreel(("stacks '%s/run'"):format(dir.path))
    assert.equal(0, code, err)
    assert.matches("^rank 2: alive in load at step 7, clip clip 12\n  last call hello 0", out)
    assert.matches("\n  lua     [^\n]*rank%.lua:8 in [^\n]*decode\n  lua     [^\n]*rank%.lua:11",
      out)
    assert.matches("\n\nrank 3: stopped in reduce at step 7\n", out)
    assert.matches("\n\nranks 0%-1: alive in reduce at step 7\n  waits in barrier 0 at "
      .. "[^\n]*rank%.lua:16\n", out)
  end)

  it("prints C frames, also of a stopped rank, which stays stopped", function()
    if not has_plugin then
      pending "the plug-in of libdw is not built"
      return
    end
    local out, err, code = folder.moonreel(("stacks '%s/run' --json"):format(dir.path))
    assert.equal(0, code, err)
    local list = json.decode(out)
    assert.same({ { 2 }, { 3 }, { 0, 1 } }, { list[1].ranks, list[2].ranks, list[3].ranks })
    local function frames(i) return table.concat(list[i].threads[1].frames, " ") end
    assert.matches("open.* lua_pcallk .*main", frames(1))
    assert.matches("sleep.* main", frames(2))
    assert.matches("comm_complete.*mr_comm_barrier.* main", frames(3))
    -- the rank wakes for a moment before it stops again
    local began = base.now_s()
    while one.page:rank(3).state ~= "T" do
      assert.is_true(base.now_s() < began + WAIT_S, one.page:rank(3).state)
      base.sleep(0.005)
    end
    assert.is_nil(list[1].problem)
  end)

  it("prints numbers of ranks as ranges", function()
    assert.equal("0-2, 5, 7-8", stacks.ranges { 0, 1, 2, 5, 7, 8 })
    assert.equal("", stacks.ranges {})
  end)
end)
