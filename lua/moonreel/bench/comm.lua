--- Communication between ranks of this host, by size: over shared memory, over plain TCP, over TCP
-- authenticated as between hosts, over TCP also encrypted, over MPI, and by MPI's own calls. The
-- same ranks measure the last two alternately, and likewise the first four.
-- @module moonreel.bench.comm
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local paired = require "moonreel.bench.paired"
local process = require "moonreel.core.process"

local comm = {}

--- What is measured; a large message has `bytes` bytes.
---@return table[] rows  {op, bytes}
function comm.rows(large)
  local middle = math.min(1 << 20, large)
  return {
    {op = "barrier", bytes = 0}, {op = "send", bytes = 4}, {op = "send", bytes = middle},
    {op = "send", bytes = large}, {op = "broadcast", bytes = large}, {op = "all_reduce", bytes = 4},
    {op = "all_reduce", bytes = math.min(64 << 10, large)}, {op = "all_reduce", bytes = middle},
    {op = "all_reduce", bytes = large},
  }
end

local ROUNDS, MOST_CALLS, DEADLINE_S = 5, 200, 300

-- one call of moonreel
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

-- mean seconds of a call; all ranks make the same number of calls
local function seconds_of(world, calls, call)
  world:barrier()
  local from = base.now_s()
  for _ = 1, calls do
    call()
  end
  return (base.now_s() - from) / calls
end

-- connects the same ranks over TCP; authenticated if there is a secret
local function over_tcp(world, secret, encrypt)
  local T, here = require "moonreel.core.tensor", "127.0.0.1"
  local listener, port
  if world:rank() == 0 then
    listener, port = require("moonreel.core.launch").listen(here)
  end
  port = world:broadcast(T.from({1}, {port or 0}, "i32")):item()
  return require("moonreel.core.comm").world {rank = world:rank(), size = world:size(),
    host = here, port = port, listen = here, listener = listener, run = "bench comm",
    secret = secret, encrypt = encrypt, deadline_s = DEADLINE_S}
end

-- the ways to send a message, by name: functions of an operation and a tensor, in order of a round
local function ways_of(world, mpi)
  local function by(name, through)
    return {name = name, call = function(op, x) ours(through, op, x) end}
  end
  if mpi then
    return {by("mpi", world), {name = "raw", call = require("moonreel.core.comm").raw_mpi}}
  end
  return {by("shared", world), by("plain", over_tcp(world)), by("sealed", over_tcp(world, "bench")),
    by("hidden", over_tcp(world, "bench", true))}
end

--- The program of each rank; rank 0 prints the rows as JSON.
---@param large integer   bytes of a large message
---@param seconds number  time per row
---@param mpi boolean     measure MPI and MPI's own calls, else the ways that need no library
function comm.rank(large, seconds, mpi)
  local T = require "moonreel.core.tensor"
  local world, rows = require("moonreel.comm").world { deadline_s = DEADLINE_S }, {}
  local ways = ways_of(world, mpi)
  for i, row in ipairs(comm.rows(large)) do
    local x, took, once = T.new("f32", {row.bytes // 4}), {}, 0
    for _, way in ipairs(ways) do
      local function call() way.call(row.op, x) end
      call()
      -- number of calls per round, by the slowest rank and way
      local one = T.from({1}, {seconds_of(world, 1, call)}, "f64")
      once, took[way.name] = math.max(once, world:all_reduce(one, "max"):item()), {}
    end
    local calls = math.max(1, math.min(MOST_CALLS, seconds / ROUNDS / once // #ways))
    for round = 1, ROUNDS do
      for _, way in ipairs(ways) do
        took[way.name][round] = seconds_of(world, calls, function() way.call(row.op, x) end)
      end
    end
    rows[i] = {ratio = mpi and paired.ratio(took.mpi, took.raw) or nil,
      sealed_ratio = not mpi and paired.ratio(took.plain, took.sealed) or nil,
      hidden_ratio = not mpi and paired.ratio(took.plain, took.hidden) or nil}
    for name, list in pairs(took) do
      -- a send is measured as a round trip; half of it is one way
      rows[i][name] = paired.median(list) / (row.op == "send" and 2 or 1)
    end
  end
  if world:rank() == 0 then
    print(json.encode(json.array(rows)))
  end
end

-- measures with the ranks that `words` start; nil and the reason if this fails
local function measure(words, large, seconds, mpi)
  words[#words + 1] = "-e"
  words[#words + 1] = ("require('moonreel.bench.comm').rank(%d, %g, %s)"):format(large, seconds,
    mpi)
  local done = process.run(words, "", {deadline_s = DEADLINE_S, quiet = mpi})
  local rows = done.exit == 0 and done.output:match("%[.*%]")
  if not rows then
    return nil, ("%s ended with %s"):format(mpi and "mpirun" or "moonreel",
      done.timed_out and "its deadline" or done.exit or done.signal)
  end
  return json.decode(rows)
end

-- the command that starts MPI ranks, also as root, and more ranks than processors
local function mpirun(ranks)
  return {"/usr/bin/env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_mpi_yield_when_idle=1", "mpirun", "-n", ranks, "--oversubscribe", process.program()}
end

--- Measures.
---@param options table  seconds: per row; ranks (2); bytes: of a large message (16 MiB)
---@return table  ranks; rows {op, bytes, shared, plain, sealed, hidden, mpi, raw: seconds, as
---   medians over rounds; sealed_ratio: plain / sealed, hidden_ratio: plain / hidden, ratio: mpi /
---   raw}; mpi_missing: why MPI was not measured
function comm.measure(options)
  local ranks, large = tostring(options.ranks or 2), (options.bytes or 16 << 20) // 4 * 4
  local shared, problem = measure({process.program(), "-n", ranks}, large, options.seconds, false)
  if not shared then
    base.raise("MR_E_INTERNAL", "bench comm: " .. problem)
  end
  local mpi, missing = measure(mpirun(ranks), large, options.seconds, true)
  local rows = comm.rows(large)
  for i, row in ipairs(rows) do
    for _, found in ipairs {shared[i], mpi and mpi[i]} do
      for name, value in pairs(found) do
        row[name] = value
      end
    end
  end
  return {ranks = math.tointeger(tonumber(ranks)), rows = rows,
    mpi_missing = not mpi and missing .. "; is libopenmpi-dev installed?" or nil}
end

return comm
