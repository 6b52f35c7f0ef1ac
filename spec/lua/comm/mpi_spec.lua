--- Ranks that mpirun starts run the same program and compute the same bits.
-- Covers: core/mpi/transport.c
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- specs may run as root and with more ranks than processors; Open MPI keeps memory until its
-- process ends
local SET = [[
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader
export ASAN_OPTIONS=detect_leaks=0:$ASAN_OPTIONS
]]

-- why MPI does not work here, or nil; an mpirun that prints warnings adds them to the output of
-- ranks
local missing
local function without_mpi()
  local plugin = process.program():gsub("[^/]*$", "libmoonreel_mpi.so")
  if not base.exists(plugin) then
    return plugin .. " is not here"
  end
  local tried = process.run({ "/bin/sh", "-c", SET .. "mpirun -n 2 --oversubscribe true 2>&1" }, "",
    { deadline_s = 600 })
  return (tried.exit ~= 0 or tried.output ~= "")
    and ("mpirun does not work here (exit code %d): %s"):format(tried.exit, tried.output)
end
setup(function() missing = without_mpi() end)

describe("ranks over MPI", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  local function run(launcher, code)
    local script = dir:write("ranks.lua", "local comm, T = require 'moonreel.comm', "
      .. "require 'moonreel.core.tensor'\n" .. code)
    local done = process.run({ "/bin/sh", "-c",
      SET .. "exec " .. launcher .. ' "$0" 2>&1', script }, "", { deadline_s = 600 })
    return done.output, done.exit
  end
  local mpirun = "mpirun -n 3 --oversubscribe " .. process.program()
  local own = process.program() .. " -n 3"

  it("compute the same bits as ranks of one host, for all sizes and dtypes", function()
    if missing then
      return pending(missing)
    end
    local code = [[
      local world = comm.world { check = true }
      local r, hash = world:rank(), require("moonreel.core.base").hash128
      -- with the head, in pieces with a tail, nothing
      for _, rows in ipairs { 3, 300000, 0 } do
        for _, dtype in ipairs { "f32", "bf16" } do
          local x = T.new("f32", { rows, 1 }):fill_normal(1, "rank " .. r):to(dtype)
          world:all_reduce(x)
          local own = world:reduce_scatter(x, { dtype = "f32" })
          local all = world:all_gather(own)
          if r == 0 then
            print(rows, dtype, hash(x:bytes()), hash(own:bytes()), hash(all:bytes()))
          end
        end
      end
      local half = world:split(r % 2)
      local ranks = half:all_gather(T.from({ 1 }, { r }, "i32"))
      if r == 0 then
        print(table.concat(ranks:totable(), " "), world:counts().all_reduce.bytes)
        world:send(ranks, 1)
      elseif r == 1 then
        world:receive(T.new("i32", { 2 }), 0)
      end
    ]]
    local want, exit = run(own, code)
    assert.equal(0, exit, want)
    local got, code_of_mpi = run(mpirun, code)
    assert.equal(0, code_of_mpi, got)
    assert.equal(want, got)
    assert.matches("\n0 2\t%d+\n$", got)
  end)

  it("report the rank that left before a call, and end", function()
    if missing then
      return pending(missing)
    end
    local output, exit = run(mpirun, [[
      local world = comm.world()
      if world:rank() == 1 then return end
      world:all_reduce(T.new("f32", { 4 }))
    ]])
    assert.not_equal(0, exit)
    assert.matches("all_reduce 0 %(4 f32%): rank 1 has left the world", output)
  end)

  it("are refused when MPI does not know them", function()
    if missing then
      return pending(missing)
    end
    local output, exit = run("env PMI_RANK=1 PMI_SIZE=3 " .. process.program(), "comm.world()")
    assert.equal(6, exit)
    assert.matches("the environment says rank 1 of 3, MPI says rank 0 of 1", output)
  end)
end)
