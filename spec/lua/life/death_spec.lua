--- All other ranks, on the same host and on others, notice the death of a rank at once, in any
-- phase: by the connection that it closes, not by its silence. MOONREEL_DEATHS=5 repeats all
-- phases five times and prints how long each took: at most a second.
-- Covers: core/comm/shared.c core/comm/tcp.c core/comm/launch.c
local base = require "moonreel.core.base"
local cluster = require "spec.support.cluster"
local process = require "moonreel.core.process"
local watch = require "moonreel.life.watch"

local ROUNDS = math.tointeger(os.getenv "MOONREEL_DEATHS")
local PHASES = ROUNDS and watch.phases or { "load", "forward", "persist" }
local RANKS <const>, DEAD <const> = 4, 2

-- Ranks go through all phases, some with calls, until one rank dies. Each other rank writes what it
-- noticed and when.
local CODE = [[
local base, life = require "moonreel.core.base", require "moonreel.core.life"
local T = require "moonreel.core.tensor"
local world = require("moonreel.comm").world { deadline_s = 60 }
local rank, folder, dies = world:rank(), %q, %q
local function write(name, text)
  local file <close> = io.open(folder .. "/" .. name, "w")
  file:write(text)
end
local calls = {
  forward = function() world:all_reduce(T.from({ 64 }, table.pack(("x"):rep(64):byte(1, 64)))) end,
  reduce = function() world:barrier() end,
  optimizer = function() world:all_gather(T.from({ 2 }, { rank, rank })) end,
}
local good, problem = pcall(function()
  for step = 1, 1000 do
    life.step(step)
    for _, phase in ipairs { %s } do
      life.phase(phase)
      if rank == %d and step == 3 and phase == dies then
        write("died", ("%%.9f"):format(base.now_s()))
        io.popen("kill -9 $PPID"):close()
      end
      (calls[phase] or function() base.sleep(0.001) end)()
    end
    world:barrier()
  end
end)
write("rank-" .. rank, ("%%.9f %%s"):format(base.now_s(), tostring(problem)))
os.exit(6, false)
]]

describe("the death of a rank", function()
  local dir
  setup(function() dir = cluster.new("one slots=2 addr=127.0.0.1\ntwo slots=2\n") end)
  teardown(function() dir:remove() end)

  local function code(phase)
    local names = {}
    for i, name in ipairs(watch.phases) do
      names[i] = ("%q"):format(name)
    end
    for _, name in ipairs { "died", "rank-0", "rank-1", "rank-2", "rank-3" } do
      os.remove(dir.path .. "/" .. name)
    end
    return CODE:format(dir.path, phase, table.concat(names, ", "), DEAD)
  end

  local launches = {
    ["on its host"] = function(phase)
      local script = dir:write("ranks.lua", code(phase))
      local done = process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", process.program(), "-n",
        tostring(RANKS), script }, "", { deadline_s = 600 })
      return done.output, done.exit
    end,
    ["on another host"] = function(phase) return cluster.run(dir, code(phase)) end,
  }

  for where, launch in pairs(launches) do
    it("is noticed by all others " .. where .. ", in each phase", function()
      local worst = 0
      for _ = 1, ROUNDS or 1 do
        for _, phase in ipairs(PHASES) do
          local output, exit = launch(phase)
          assert.equal(137, exit, output)
          local died = tonumber(base.read_file(dir.path .. "/died"))
          for rank = 0, RANKS - 1 do
            if rank ~= DEAD then
              local at, text = base.read_file(dir.path .. "/rank-" .. rank):match("^(%S+) (.*)$")
              -- sooner than the silence after which a host is lost, and than the deadline of the
              -- call
              assert.is_truthy(text:find("rank 2 was ended by signal 9", 1, true)
                or text:find("rank 2 at 127.0.0.1 has ended without a notice", 1, true)
                or text:find("rank 2 has left the world", 1, true)
                -- other ranks report it so, and their launcher may notice it sooner
                or text:find "rank [013] ended with exit code 6", text)
              worst = math.max(worst, tonumber(at) - died)
            end
          end
        end
      end
      if ROUNDS then
        print(("the death of a rank %s: known to all others after %.0f ms at most, %d deaths")
          :format(where, worst * 1000, ROUNDS * #PHASES))
        assert.is_true(worst <= 1, worst)
      end
    end)
  end
end)
