--- Launches are found by their pages in shared memory, and pages of lost launches are removed.
-- Covers: core/bind/life.c core/app/main.c
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local life = require "moonreel.life"
local process = require "moonreel.core.process"

local dir = folder.new()
teardown(function() dir:remove() end)

-- the output of a script that has a registry of its own
local function run(code, ranks)
  dir:write("say.lua", code)
  local registry = dir.path .. "/registry"
  local done = process.run({ "/bin/sh", "-c",
    ("MOONREEL_REGISTRY='%s' exec '%s' %s '%s/say.lua' 2>&1"):format(registry, process.program(),
      ranks and "-n " .. ranks or "", dir.path) }, "", { deadline_s = 600 })
  assert.equal(0, done.exit, done.output)
  return done.output, registry
end

describe("a page", function()
  it("shows the state of a process that publishes, until it ends", function()
    local output, registry = run [[
      local core, life = require "moonreel.core.life", require "moonreel.life"
      local json = require "moonreel.core.json"
      core.publish(3, 8)
      core.publish(4, 8)
      core.set_run("0123456789abcdef", "/", 5)
      local function inner() return core.phase "load", core.step(7), core.clip "clip 12" end
      local before = inner()
      assert(before == "start")
      require("moonreel.comm").world():barrier()
      local one = life.of_run("/tmp/..")[1]
      local rank = one.page:rank(3)
      assert(#one.page:ops(3) == rank.ops and #life.of_run "/tmp" == 0)
      assert(#life.launches() == 1)
      print(json.encode { about = one.about, rank = rank })
    ]]
    local report = json.decode(output)
    assert.same({ 1, 3, 8, "0123456789abcdef", "/", 5 }, { report.about.ranks, report.about.first,
      report.about.world, report.about.run, report.about.dir, report.about.fence })
    local rank = report.rank
    assert.same({ 3, 7, "load", "clip 12", "R" },
      { rank.rank, rank.step, rank.phase, rank.clip, rank.state })
    assert.matches("say%.lua:6 in inner\n[^\n]*say%.lua:7\n", rank.frames)
    assert.equal("barrier", rank.last.kind)
    assert.matches("say%.lua:9$", rank.last.where)
    assert.is_nil(rank.open)
    assert.same({}, base.list_dir(registry))
  end)

  it("is shared by the ranks of a launch, but not by their children", function()
    local output, registry = run([[
      local core, life = require "moonreel.core.life", require "moonreel.life"
      local process, world = require "moonreel.core.process", require("moonreel.comm").world()
      core.step(10 + world:rank())
      process.run { process.program(), "-e", "require('moonreel.core.life').step(99)" }
      world:barrier()
      local page = life.launches()[1].page
      if world:rank() == 0 then
        for rank = 0, 1 do
          local r = page:rank(rank)
          print(r.step, (r.open or r.last).kind)
        end
      end
      world:barrier()
    ]], 2)
    assert.equal("10\tbarrier\n11\tbarrier\n", output)
    assert.same({}, base.list_dir(registry))
  end)

  it("refuses unknown phases, ranks and files", function()
    fails("MR_E_USAGE", "phase: there is no phase 'nap'", core.phase, "nap")
    fails("MR_E_FORMAT", "is not the status page of a launch", core.open,
      dir:write("none", "nothing"))
    assert.is_nil(core.state(1, 1))
    assert.same({ false, "process 1 has ended, and another process has its number" },
      { core.signal(1, 1, 0, 0) })
  end)

  it("is removed when its launch was lost", function()
    local registry = dir.path .. "/registry"
    local output = run [[
      local core = require "moonreel.core.life"
      core.publish()
      local path = core.registry() .. "/" ..
        require("moonreel.core.base").list_dir(core.registry())[1]
      print((assert(os.rename(path, path .. "-kept"))))
    ]]
    assert.equal("true\n", output)
    assert.equal(1, #base.list_dir(registry))
    assert.equal("0\n", run "print(#require('moonreel.life').launches())")
    assert.same({}, base.list_dir(registry))
    assert.equal(0, #life.of_run(dir.path))
  end)

  it("has no name when the registry's disk is full", function()
    local script = dir:write("meet.lua", 'require("moonreel.comm").world():barrier() print "met"')
    local done = process.run { "/usr/bin/unshare", "-Urm", "/bin/sh", "-c", [[
      mkdir "$1" && mount -t tmpfs -o size=4k,mode=700 none "$1" || exit 77
      MOONREEL_REGISTRY="$1" exec "$2" -n 2 "$3" 2>&1]], "sh", dir.path .. "/full",
      process.program(), script }
    if done.exit == 77 or done.output == "" and done.exit == 1 then
      pending "no namespaces here"
      return
    end
    assert.same({ 0, "met\nmet\n" }, { done.exit, done.output })
  end)
end)
