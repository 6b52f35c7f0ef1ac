--- A run on several hosts, each with a registry of its own: one of them finds all ranks and stops
-- the run.
-- Covers: lua/moonreel/cli/stop.lua lua/moonreel/cli/stacks.lua lua/moonreel/cli/target.lua
-- lua/moonreel/cluster/answers.lua
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local cluster = require "spec.support.cluster"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

-- ranks that wait up to two minutes for the request to end; those of the second host ignore it
local RANKS = [[
local world = require("moonreel.comm").world { deadline_s = 60 }
local core, signal = require "moonreel.core.life", require "moonreel.core.signal"
local base = require "moonreel.core.base"
signal.catch()
core.set_run("0123456789abcdef", %q, 1)
core.phase "forward"
core.step(1)
world:barrier()
io.open(%q, "a"):write("x"):close()
local waits = 12000
repeat
  base.sleep(0.01)
  waits = waits - 1
until signal.pending() and world:rank() < 2 or waits == 0
world:barrier()
]]

local dir
setup(function()
  dir = cluster.new("one slots=2 addr=127.0.0.1\ntwo slots=2\n")
  dir:write("three", "one\ntwo\ndown-c\n")
  local rsh = base.read_file(dir.path .. "/rsh")
  dir:write("rsh", (rsh:gsub('exec "%$@"', function(exec)
    return ("mkdir -m 700 -p '%s/reg-'$host\nMOONREEL_REGISTRY='%s/reg-'$host "):format(dir.path,
      dir.path) .. exec
  end)))
  os.execute("chmod +x '" .. dir.path .. "/rsh'")
  base.make_dir(dir.path .. "/run")
  dir:write("run/lock", "")
end)
teardown(function() dir:remove() end)

-- starts the ranks in the background; returns when all have connected
local function start()
  local met = dir:write("met", "")
  local script = dir:write("ranks.lua", RANKS:format(dir.path .. "/run", dir.path .. "/met"))
  local log = dir.path .. "/log"
  background.start(log, "/usr/bin/env", "MOONREEL_RSH=" .. dir.path .. "/rsh", process.program(),
    "-e", ("os.exit(require('moonreel.cluster.launch').run({ %q }, { hostfile = %q }), true)")
      :format(script, dir.path .. "/hosts"))
  background.await("all ranks have connected", log, function()
    return #base.read_file(met) == 4 or nil
  end)
end

local function ask(words)
  local out, err, code = folder.moonreel(("%s"):format(words:gsub("@", dir.path)),
    ("MOONREEL_RSH='%s/rsh'"):format(dir.path))
  return code, out .. err
end

describe("a run on several hosts", function()
  after_each(background.stop)

  it("reports the stacks of its ranks and is stopped on every host that answers", function()
    start()
    local code, report = ask "stacks @/run --hostfile @/hosts --json"
    assert.equal(0, code, report)
    local ranks = {}
    for _, group in ipairs(json.decode(report)) do
      assert.equal("forward", group.phase)
      table.move(group.ranks, 1, #group.ranks, #ranks + 1, ranks)
    end
    table.sort(ranks)
    assert.same({ 0, 1, 2, 3 }, ranks)
    code, report = ask "stacks @/run --hostfile @/three"
    assert.equal(6, code)
    assert.matches("\nhost down%-c: it cannot be reached, exit code 255: [^\n]*No route to host\n$",
      report)

    -- the registry of this host has no rank of the run
    code, report = ask "stop @/run"
    assert.equal(0, code, report)
    assert.matches("\n%S+ +0 +0 +0 +0 +0 ", report)
    code, report = ask "stop @/run --hostfile @/three --wait 1 --json"
    assert.equal(6, code, report)
    local rows = json.decode(report)
    assert.same({ "one", "two", "down-c" }, { rows[1].host, rows[2].host, rows[3].host })
    for i = 1, 2 do
      assert.same({ 2, 0 }, { rows[i].ranks, rows[i].left })
    end
    assert.is_true(rows[2].terminated + rows[2].killed >= 2)
    assert.matches("No route to host", rows[3].reason)
    code, report = ask "stop @/run --hostfile @/hosts"
    assert.equal(0, code, report)
    assert.matches("\none +0 .*\ntwo +0 ", report)
  end)
end)
