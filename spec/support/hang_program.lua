--- The program of a rank of a watched launch: steps with all phases, and in some of them the hangs
-- of its cases. Arguments: a folder, the number of the launch.
local base = require "moonreel.core.base"
local comm = require "moonreel.comm"
local core = require "moonreel.core.life"
local life = require "moonreel.life"
local T = require "moonreel.core.tensor"

local STEPS_BETWEEN, SLOW_S = 22, 0.02
local folder, launch = arg[1], math.tointeger(tonumber(arg[2]))
local world = comm.world()
local rank = world:rank()
local cases = dofile "spec/support/hang_cases.lua"(launch, world:size())

-- the page of this launch, once rank 0 has published its run
if rank == 0 then
  base.make_dir(folder .. "/" .. launch)
  core.set_run("0123456789abcdef", folder .. "/" .. launch, 1)
end
world:barrier()
local page = life.of_run(folder .. "/" .. launch)[1]
local self, uid = page.page:rank(rank), page.about.uid

local inject = {}

function inject.stop()
  core.signal(self.pid, self.start, uid, 19)
end

function inject.sleep(case)
  core.clip "clip 12"
  while not base.exists(case.release) do
    base.sleep(0.005)
  end
  core.clip()
end

function inject.lock(case)
  io.open(case.release .. ".fifo"):close()
end

local step = 0

local function run_step(case)
  step = step + 1
  core.step(step)
  for _, phase in ipairs(require("moonreel.life.watch").phases) do
    core.phase(phase)
    local mine = case and case.phase == phase and case.rank == rank
    if mine and inject[case.kind] then
      inject[case.kind](case)
    end
    if phase == "forward" then
      base.sleep(mine and case.kind == "slow" and SLOW_S or 0.001)
    elseif phase == "reduce" and not (mine and case.kind == "skip") then
      world:all_reduce(T.new("f32", { 16 }))
    end
  end
end

-- was it reported? Rank 0 checks for all, which make as many steps
local function report(case)
  local seen = rank == 0 and base.exists(case.release) and 1 or 0
  return world:all_reduce(T.from({ 1 }, { seen })):item() > 0
end

local function run_case(i, case)
  case.release = ("%s/%d/%d"):format(folder, launch, i)
  for _ = 1, STEPS_BETWEEN do
    run_step()
  end
  repeat
    run_step(case)
  until case.kind ~= "slow" or report(case)
end

-- the last one ends the launch, on all ranks and without a message
for i, case in ipairs(cases) do
  if not pcall(run_case, i, case) then
    os.exit(6)
  end
end
os.exit(pcall(world.barrier, world) and 0 or 6)
