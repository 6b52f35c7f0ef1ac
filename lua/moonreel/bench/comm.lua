--- What ranks of this host tell each other, by size: over memory that they share, over MPI, and by
-- MPI's own calls. Times of the last two are taken in turn by the same ranks.
-- @module moonreel.bench.comm
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local paired = require "moonreel.bench.paired"
local process = require "moonreel.core.process"

local comm = {}

--- What is measured, with a large message of so many bytes.
---@return table[] rows  {op, bytes}
function comm.rows(large)
  return {
    {op = "barrier", bytes = 0}, {op = "send", bytes = 4}, {op = "send", bytes = large},
    {op = "broadcast", bytes = large}, {op = "all_reduce", bytes = 4},
    {op = "all_reduce", bytes = math.min(64 << 10, large)}, {op = "all_reduce", bytes = large},
  }
end

local ROUNDS, MOST_CALLS, DEADLINE_S = 5, 200, 300

-- one call of ours
local function ours(world, op, x)
  if op == "barrier" then
    world:barrier()
  elseif op ~= "send" then
    world[op](world, x)
  elseif world:rank() == 0 then
    world:send(x, 1)
    world:receive(x, 1)
  elseif world:rank() == 1 then
    world:receive(x, 0)
    world:send(x, 0)
  end
end

-- seconds of one of so many calls, of which all ranks make the same number
local function seconds_of(world, calls, call)
  world:barrier()
  local from = base.now_s()
  for _ = 1, calls do
    call()
  end
  return (base.now_s() - from) / calls
end

--- What each rank of a measurement runs; rank 0 prints the rows as JSON.
---@param large integer   bytes of a large message
---@param seconds number  to spend per row
---@param raw boolean     MPI's own calls in turn with ours
function comm.rank(large, seconds, raw)
  local core, T = require "moonreel.core.comm", require "moonreel.core.tensor"
  local world, rows = require("moonreel.comm").world { deadline_s = DEADLINE_S }, {}
  for i, row in ipairs(comm.rows(large)) do
    local x = T.new("f32", {row.bytes // 4})
    local function own() ours(world, row.op, x) end
    own()
    -- how many fit into a round, by the slowest rank
    local once = world:all_reduce(T.from({1}, {seconds_of(world, 1, own)}, "f64"), "max"):item()
    local calls = math.max(1, math.min(MOST_CALLS, seconds / ROUNDS / once // 2))
    local mine, theirs = {}, {}
    for round = 1, ROUNDS do
      mine[round] = seconds_of(world, calls, own)
      theirs[round] = raw and seconds_of(world, calls, function() core.raw_mpi(row.op, x) end)
    end
    -- of a message there and back, one way
    local ways = row.op == "send" and 2 or 1
    rows[i] = {seconds = paired.median(mine) / ways,
      raw = raw and paired.median(theirs) / ways, ratio = raw and paired.ratio(mine, theirs)}
  end
  if world:rank() == 0 then
    print(json.encode(json.array(rows)))
  end
end

-- rows of the ranks that `words` start; nil and why not
local function measure(words, large, seconds, raw)
  words[#words + 1] = "-e"
  words[#words + 1] = ("require('moonreel.bench.comm').rank(%d, %g, %s)"):format(large, seconds,
    raw)
  local done = process.run(words, "", {deadline_s = DEADLINE_S, quiet = raw})
  local rows = done.exit == 0 and done.output:match("%[.*%]")
  if not rows then
    return nil, ("%s ended with %s"):format(raw and "mpirun" or "moonreel",
      done.timed_out and "its deadline" or done.exit or done.signal)
  end
  return json.decode(rows)
end

-- what starts ranks of MPI, as root as well, more than there are processors
local function mpirun(ranks)
  return {"/usr/bin/env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_mpi_yield_when_idle=1", "mpirun", "-n", ranks, "--oversubscribe", process.program()}
end

--- Measure.
---@param options table  seconds: to spend per row; ranks (2); bytes: of a large message (16 MiB)
---@return table  ranks; rows {op, bytes, shared, mpi, raw: seconds; ratio: median of mpi / raw over
---   rounds}; mpi_missing: why there is nothing of MPI
function comm.measure(options)
  local ranks, large = tostring(options.ranks or 2), (options.bytes or 16 << 20) // 4 * 4
  local shared, problem = measure({process.program(), "-n", ranks}, large, options.seconds, false)
  if not shared then
    base.raise("MR_E_INTERNAL", "bench comm: " .. problem)
  end
  local mpi, missing = measure(mpirun(ranks), large, options.seconds, true)
  local rows = {}
  for i, row in ipairs(comm.rows(large)) do
    rows[i] = {op = row.op, bytes = row.bytes, shared = shared[i].seconds}
    if mpi then
      rows[i].mpi, rows[i].raw, rows[i].ratio = mpi[i].seconds, mpi[i].raw, mpi[i].ratio
    end
  end
  return {ranks = math.tointeger(tonumber(ranks)), rows = rows,
    mpi_missing = not mpi and missing .. "; is libopenmpi-dev installed?" or nil}
end

return comm
