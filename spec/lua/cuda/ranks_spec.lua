--- Ops between ranks on emulated GPUs, each rank a process: the same bits, calls and bytes as on
-- CPUs, and the errors when a rank is lost or the library between GPUs fails.
-- Covers: cuda/comm/ranks.c cuda/comm/transport_emu.cpp cuda/kernels/over_ranks.cu
-- Covers: cuda/kernels/exchange.cu core/comm/carried.c cuda/rt/device.c
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- builds with sanitizers have no emulated GPU
local built = base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so")))
local describe_built = built and describe or pending

-- Every op in groups of 2, 3 and 4 ranks, on the CPU and on a GPU: three runs of one program; the
-- GPU captures the second.
local ROWS = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local ops = require "moonreel.core.op"
local world = require("moonreel.comm").world { deadline_s = 100 }
local cpu, gpu = E.device("cpu", 1), E.device("cudaemu", 1)

local function share(n, ranks, at) return n // ranks + (at < n % ranks and 1 or 0) end

-- name, op, attributes, shape of this rank's x, dtype
local function cases(group)
  local size, at = group:size(), group:rank()
  local number, list = group:op_group(), {}
  local function case(name, row, given, dtype, ...)
    given.group = number
    list[#list + 1] = { name = name, row = ops[row], given = given, dtype = dtype, shape = { ... } }
  end
  case("several pieces", "reduce_scatter", {}, "f32", size * 101)
  case("a piece", "reduce_scatter", {}, "f32", size * 12)
  case("all", "all_gather", {}, "f32", size * 5)
  case("all, bf16", "all_gather", {}, "bf16", size * 3)
  case("each", "gather", { ranks = size, at = at }, "bf16", 7)
  case("sum", "total", {}, "f64", 5)
  for _, axes in ipairs { { 0, 1 }, { 1, 0 }, { 2, 1 } } do
    local shape = { 5, 7, 9 }
    local given = { ranks = size, at = at, split = axes[1], join = axes[2],
      length = shape[axes[2] + 1] }
    shape[axes[2] + 1] = share(given.length, size, at)
    case("to all " .. axes[1] .. axes[2], "all_to_all", given, axes[1] == 2 and "bf16" or "f32",
      table.unpack(shape))
  end
  for axis = 0, 1 do
    -- the last of four ranks has no share
    local shape = { 3, 3, 5 }
    shape[axis + 1] = share(3, size, at)
    case("shares " .. axis, "gather_shares", { ranks = size, at = at, axis = axis, length = 3 },
      "f32", table.unpack(shape))
  end
  for _, hops in ipairs { 1, -1, 2, size } do
    case("by " .. hops, "shift", { axis = 1, hops = hops,
      length = share(5, size, (at - hops) % size) }, "f32", 3, share(5, size, at))
  end
  return list
end

local function x_of(case, seed)
  local t = T.new("f32", case.shape):fill_normal(seed, case.name)
  return case.dtype == "f32" and t or t:to(case.dtype)
end

-- bits of the last of three runs, and the counts of all
local function run(device, case, rank)
  local g <close> = G.graph()
  local x = g:input("x", case.dtype, case.shape)
  local y = g:queue(rank % 2 == 0 and "comm_intra" or "comm_inter", function()
    return (case.row(x, case.given))
  end)
  g:output("y", y)
  g:finish()
  local exec <close> = E.new(device)
  local program <close> = exec:compile(g)
  local bits
  world:reset_counts()
  for i = 1, 3 do
    program:set("x", x_of(case, 10 * rank + i))
    program:run()
    bits = table.concat(program:get "y":to("f64"):totable(), " ")
  end
  local counted = {}
  for op, n in pairs(world:counts()) do
    -- a broadcast starts a communicator
    counted[#counted + 1] = op ~= "broadcast" and ("%s %d %d"):format(op, n.calls, n.bytes) or nil
  end
  table.sort(counted)
  return bits, table.concat(counted, ", ")
end

for size = 2, world:size() do
  local group <close> = world:split(world:rank() < size and 0 or nil)
  for _, case in ipairs(group and cases(group) or {}) do
    local want, counted = run(cpu, case, group:rank())
    local got, counted_there = run(gpu, case, group:rank())
    local name = ("%d ranks, %s, %s:"):format(size, case.name, group:rank())
    print(name, want == got and "bits" or want .. " became " .. got,
      counted == counted_there and counted ~= "" and "counts" or counted .. " became "
      .. counted_there)
    io.stdout:flush()
  end
  world:barrier()
end
gpu:close()
]]

-- The last rank fails in the requested way, or the GPUs do.
local LOST = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local ops = require "moonreel.core.op"
local world = require("moonreel.comm").world { deadline_s = 100 }
local g = G.graph()
local x = g:input("x", "f32", { 12 })
g:output("y", (ops.all_gather(x, { group = world:op_group() })))
g:finish()
local program = E.new(E.device("cudaemu", 1)):compile(g)
program:set("x", T.new("f32", { 12 }):fill_normal(1, "x"))
for step = 1, 3 do
  if step == 2 and world:rank() == world:size() - 1 and arg[1] == "dies" then
    os.execute("kill -9 " .. io.open("/proc/self/stat"):read("n") .. "; sleep 9")
  end
  program:run()
  program:get "y"
end
]]

describe_built("ranks on emulated GPUs", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  -- running all ops takes time; a rank that is not notified would wait for ever
  local function ranks(n, script, wrong, ...)
    return process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', "/usr/bin/env",
      "MOONREEL_CUDAEMU=" .. (wrong or ""), process.program(),
      "-n", tostring(n), dir:write("ranks.lua", script), ... }, "",
      { deadline_s = script == ROWS and 600 or 60 })
  end

  for _, gpu in ipairs { "seed=0", "seed=1,eager", "seed=2" } do
    it("compute the CPU's bits, and count the same: " .. gpu, function()
      local done = ranks(4, ROWS, gpu)
      assert.equal(0, done.exit, done.output)
      local n = 0
      for line in done.output:gmatch "[^\n]+" do
        assert.matches("\tbits\tcounts$", line)
        n = n + 1
      end
      assert.equal((2 + 3 + 4) * 15, n)
    end)
  end

  it("are notified of a rank that dies while they wait for it", function()
    local done = ranks(3, LOST, "", "dies")
    assert.is_false(done.timed_out, done.output)
    assert.matches("rank 2 was ended by signal 9", done.output)
    assert.matches("rank 0: [^\n]*rank 2 was ended by signal 9", done.output)
    assert.matches("rank 1: [^\n]*rank 2 was ended by signal 9", done.output)
  end)

  it("are notified of a rank whose communicator fails", function()
    local done = ranks(3, LOST, "transport=1")
    assert.equal(6, done.exit, done.output)
    assert.matches("rank 2: [^\n]*emulated GPUs: rank 2, with rank 0: unhandled system error",
      done.output)
    assert.matches("rank 0: [^\n]*rank 2 gave up: emulated GPUs", done.output)
  end)

  it("need a library that is new enough", function()
    for wrong, words in pairs { none = "no library carries bytes", old = "is too old" } do
      local done = ranks(2, LOST, "transport=" .. wrong)
      assert.not_equal(0, done.exit)
      assert.matches("all_gather[^\n]*: [^\n]*" .. words, done.output)
    end
  end)
end)
