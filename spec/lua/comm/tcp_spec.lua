--- Ranks that connect where variables of torchrun and Slurm say.
-- Covers: core/bind/comm.c core/bind/world.c lua/moonreel/comm/place.lua
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

local dir = folder.new()
teardown(function() dir:remove() end)

-- Each spec has a run name and a port of its own, because copies of it may run at the same time. A
-- rank that finds another run at the port tries the next one.
local NUMBER = require("moonreel.core.base").pid()
local TORCHRUN = ("TORCHELASTIC_RUN_ID=%d MASTER_PORT=%d"):format(NUMBER, 20000 + NUMBER % 12000)

local SUM = [[
local world = require("moonreel.comm").world()
local x = require("moonreel.core.tensor").from({ 2 }, { world:rank() + 1, 0.5 })
print(("rank %d of %d: %s"):format(world:rank(), world:size(),
  table.concat(world:all_reduce(x):totable(), " ")))
]]

-- Starts ranks 0 to n - 1 with the environment `line`, in which @ is the rank. Returns their
-- output, sorted, and exit codes.
local function start(n, line, code)
  local script, all = dir:write("rank.lua", code), {}
  for rank = 0, n - 1 do
    all[#all + 1] = ("{ env %s '%s' '%s' 2>&1; echo rank %d ends with $?; } &"):format(
      line:gsub("@", rank), process.program(), script, rank)
  end
  local done = process.run({ "/bin/sh", "-c", table.concat(all, "\n") .. "\nwait" }, "",
    { deadline_s = 600 })
  local lines = {}
  for one in done.output:gmatch("[^\n]+") do
    lines[#lines + 1] = one
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

local function all_there(n)
  local lines = {}
  for rank = 0, n - 1 do
    lines[#lines + 1] = "rank " .. rank .. " ends with 0"
    lines[#lines + 1] = ("rank %d of %d: %.1f %.1f"):format(rank, n, n * (n + 1) / 2, n / 2)
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

describe("ranks that share no memory", function()
  it("connect at torchrun's address, with one secret given as text and by descriptor", function()
    assert.equal(all_there(3), start(3, "RANK=@ WORLD_SIZE=3 LOCAL_RANK=@ LOCAL_WORLD_SIZE=3 "
      .. "MASTER_ADDR=127.0.0.1 TORCHELASTIC_USE_AGENT_STORE=True MOONREEL_SECRET_TEXT=s "
      .. TORCHRUN, [[
      local core, launch = require "moonreel.core.comm", require "moonreel.core.launch"
      local world = core.world
      rawset(core, "world", function(o)
        if o.rank > 0 then
          o.secret, o.secret_fd = nil, launch.hide(o.secret)
        end
        return world(o)
      end)
      ]] .. SUM))
  end)

  it("do not connect when their secrets differ", function()
    local said = start(2, "RANK=@ WORLD_SIZE=2 LOCAL_RANK=@ LOCAL_WORLD_SIZE=2 "
      .. "MASTER_ADDR=127.0.0.1 TORCHELASTIC_USE_AGENT_STORE=True MOONREEL_SECRET_TEXT=s "
      .. TORCHRUN, [[
      local core = require "moonreel.core.comm"
      local world = core.world
      rawset(core, "world", function(o)
        o.secret, o.deadline_s = o.rank > 0 and "another" or o.secret, 2
        return world(o)
      end)
      ]] .. SUM)
    assert.matches("rank 0: .* rank 1 of 2 has not connected in 2 s; a connection from "
      .. "127%.0%.0%.1 was rejected: it has another secret; try: ", said)
    assert.matches("rank 0 ends with 6\nrank 1 ends with 6$", said)
  end)

  it("connect on the first host of Slurm's list", function()
    assert.equal(all_there(2), start(2, "SLURM_PROCID=@ SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=@ "
      .. "SLURM_JOB_ID=" .. NUMBER .. " SLURM_JOB_NODELIST=127.0.0.1 SLURM_TASKS_PER_NODE=2", SUM))
  end)

  it("end together when one is killed", function()
    local said = start(3, "RANK=@ WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 " .. TORCHRUN,
      [[
      local world = require("moonreel.comm").world()
      world:barrier()
      if world:rank() == 1 then
        io.popen("kill -9 $PPID"):close()
      end
      world:barrier()
      world:barrier()
      ]])
    assert.matches("rank 1 ends with 137", said)
    assert.matches("rank 0: .*rank [12]", said)
    assert.matches("rank 0 ends with 6.*rank 2 ends with 6", said)
  end)
end)
