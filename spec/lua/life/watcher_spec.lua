--- Ranks that another launcher has started are watched by a process on their host, which the first
-- of them starts.
-- Covers: lua/moonreel/life/joined.lua lua/moonreel/cli/watcher.lua core/bind/process.c
-- lua/moonreel/comm/place.lua
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local place = require "moonreel.comm.place"
local process = require "moonreel.core.process"

local dir
setup(function()
  dir = folder.new()
  base.make_dir(dir.path .. "/log")
end)
teardown(function() dir:remove() end)

-- a job of this spec alone, because copies of it may run at the same time
local NUMBER = base.pid()

local RANK = [[
local base, life = require "moonreel.core.base", require "moonreel.core.life"
local place, folder = require "moonreel.comm.place", arg[0]:match "^(.*)/"
local limits = { patience = @, start = 60, open = 60, load = 60, forward = 0.3, reduce = 60,
  optimizer = 60, snapshot = 60, persist = 60 }
local here = place.find()
require("moonreel.life.watcher").begin(here, place.job(here),
  { plain = function() return limits end })
local world = require("moonreel.comm").world { deadline_s = 60 }
local rank = world:rank()
life.set_run("0123", folder, 1)
life.step(7)
world:barrier()
local function stop() os.execute("kill -STOP " .. base.pid()) end
]]

-- Runs code as ranks 0 to n - 1 with the environment `line`, in which @ is the rank. Returns their
-- lines and exit codes when all ranks and their watcher have ended.
local function start(n, line, patience, code)
  local script = dir:write("rank.lua", RANK:gsub("@", patience) .. code)
  local all = {}
  for rank = 0, n - 1 do
    all[#all + 1] = ("{ env MOONREEL_REGISTRY='%s/registry' %s '%s' '%s'; echo rank %d ends with "
      .. "$?; } &"):format(dir.path, line:gsub("@", rank), process.program(), script, rank)
  end
  return process.run({ "/bin/sh", "-c", "exec 2>&1\n" .. table.concat(all, "\n") .. "\nwait" }, "",
    { deadline_s = 300 }).output
end

local TORCHRUN = ("RANK=@ WORLD_SIZE=3 LOCAL_RANK=@ LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 "
  .. "TORCHELASTIC_RUN_ID=%d MASTER_PORT=%d"):format(NUMBER, 20000 + NUMBER % 12000)

describe("ranks of torchrun", function()
  it("are watched: one that hangs is named and ended", function()
    local said = start(3, TORCHRUN, 2, [[
    life.phase "forward"
    if rank == 1 then stop() end
    world:barrier()
    ]])
    local _, named = said:gsub("moonreel: host %S+: rank 1 is stopped in forward at step 7 for "
      .. "[%d.]+ s; see %S+/log/hang%-step%-7%-rank%-1.json\n", "")
    assert.equal(1, named, said)
    assert.matches("moonreel: host %S+: rank 1 is stopped in forward [^\n]*; moonreel ends it\n",
      said)
    assert.matches("rank 1 ends with 137", said)
    assert.matches("rank 0 ends with 6", said)
    assert.matches("rank 2 ends with 6", said)
    local kept = require("moonreel.core.json").decode(
      base.read_file(dir.path .. "/log/hang-step-7-rank-1.json"))
    assert.same({ 0, 1, 2 }, { kept.ranks[1].rank, kept.ranks[2].rank, kept.ranks[3].rank })
    assert.equal("barrier", kept.ranks[3].open.kind)
  end)

  it("are reported when they continue, and are not ended", function()
    local said = start(3, TORCHRUN, 300, [[
    life.phase "forward"
    if rank == 2 then
      os.execute("{ while [ ! -e " .. folder .. "/log/hang-step-7-rank-2.json ]; do sleep 0.02; "
        .. "done; kill -CONT " .. base.pid() .. "; } > /dev/null 2>&1 &")
      stop()
    end
    world:barrier()
    ]])
    assert.matches("rank 2 is stopped in forward", said)
    for rank = 0, 2 do
      assert.matches(("rank %d ends with 0"):format(rank), said)
    end
    assert.is_nil(said:find("moonreel ends it", 1, true))
  end)
end)

describe("the name of a job", function()
  local function job(variables)
    local function get(name) return variables[name] end
    return place.job(place.find(get), get)
  end

  it("is the same for all ranks of a launch, and differs between launches", function()
    local function torchrun(rank, restart)
      return job { RANK = rank, WORLD_SIZE = "4", MASTER_ADDR = "a", MASTER_PORT = "7",
        TORCHELASTIC_RUN_ID = "x", TORCHELASTIC_RESTART_COUNT = restart }
    end
    assert.equal("torchrun x a:7 0", torchrun("0", "0"))
    assert.equal("torchrun x a:7 0", torchrun("3", "0"))
    assert.equal("torchrun x a:7 1", torchrun("3", "1"))
    assert.equal("Open MPI 77", job { OMPI_COMM_WORLD_RANK = "1", OMPI_COMM_WORLD_SIZE = "2",
      OMPI_MCA_ess_base_jobid = "77" })
    assert.matches("^PMI %d+$", job { PMI_RANK = "1", PMI_SIZE = "2" })
  end)

  it("is not used by our own launcher or by a single rank", function()
    assert.is_nil(job {})
    assert.is_nil(job { RANK = "0", WORLD_SIZE = "1", MASTER_ADDR = "a" })
    assert.is_nil(job { MOONREEL_RANK = "0", MOONREEL_WORLD_SIZE = "2" })
  end)
end)
