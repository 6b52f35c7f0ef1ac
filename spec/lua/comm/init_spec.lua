--- Ranks of this host: the results of collectives, and how a launch ends. Each case is one launch.
-- Covers: core/bind/comm.c core/comm/launch.c lua/moonreel/cli/ranks.lua
local comm = require "moonreel.comm"
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local T = require "moonreel.core.tensor"

local dir = folder.new()
teardown(function() dir:remove() end)

-- run code with `n` ranks; returns their output and exit code
local function launch(ranks, code)
  dir:write("ranks.lua", "local comm, T = require 'moonreel.comm', require 'moonreel.core.tensor'\n"
    .. code)
  local done = process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program(), "-n",
    tostring(ranks), dir.path .. "/ranks.lua" }, "", { deadline_s = 600 })
  return done.output, done.exit
end

-- each rank prints one line, in the order of ranks
local SAY = [[
local function say(...)
  for r = 0, world:size() - 1 do
    if r == world:rank() then
      print(...)
      io.stdout:flush()
    end
    world:barrier()
  end
end
]]

describe("a world of one", function()
  local world = comm.world()

  it("exists without a launcher, once for a process", function()
    assert.equal(world, comm.world())
    assert.equal("rank 0 of 1", tostring(world))
  end)

  it("returns what it is given", function()
    local x = T.from({ 2, 2 }, { 1, 2, 3, 4 })
    assert.equal(x, world:all_reduce(x))
    assert.equal(x, world:broadcast(x))
    for _, y in ipairs { world:reduce_scatter(x), world:all_gather(x), world:all_to_all(x),
      world:torus(1):all_gather(x), world:torus(1):reduce_scatter(x) } do
      assert.same({ 2, 2 }, y.shape)
      assert.same({ 1, 2, 3, 4 }, y:totable())
    end
    assert.equal("bf16", world:reduce_scatter(x, { dtype = "bf16" }).dtype)
    assert.is_nil(world:split(nil))
    assert.equal(1, world:split(3, { key = 2, lane = 1 }):size())
    world:barrier()
    world:reset_counts()
    world:all_reduce(x, "max")
    assert.same({ all_reduce = { calls = 1, bytes = 0 } }, world:counts())
  end)

  it("accepts rows with no elements", function()
    local x = T.new("f32", { 4, 0 })
    for _, y in ipairs { world:reduce_scatter(x), world:all_gather(x), world:all_to_all(x) } do
      assert.same({ 4, 0 }, y.shape)
    end
    fails("MR_E_SHAPE", "rows says 3 rows, x has 4", world.reduce_scatter, world, x,
      { rows = { 3 } })
  end)

  it("refuses types without a sum, unknown ranks and wrong row counts", function()
    local x = T.new("f32", { 3, 2 })
    fails("MR_E_USAGE", "bool has no sum over ranks", world.all_reduce, world, T.new("bool", { 1 }))
    fails("MR_E_USAGE", "'mean': expected sum or max", world.all_reduce, world, x, "mean")
    fails("MR_E_SHAPE", "has gaps or another order of axes", world.all_reduce, world, x:transpose())
    fails("MR_E_SHAPE", "rows says 4 rows, x has 3", world.reduce_scatter, world, x,
      { rows = { 4 } })
    fails("MR_E_USAGE", "rows: expected a list of 1 numbers", world.all_gather, world, x,
      { rows = { 1, 2 } })
    fails("MR_E_USAGE", "rows%[1%] is %-1: expected a number of rows, 0 to ", world.all_gather,
      world, x, { rows = { -1 } })
    -- counted in elements, that is 2^64, which wraps to 0
    fails("MR_E_USAGE", "receives%[1%] is 1099511627776: expected a number of rows, 0 to 8388608",
      world.all_to_all, world, T.new("u8", { 0, 1 << 24 }), { receives = { 1 << 40 } })
    fails("MR_E_USAGE", "all_gather: out: expected a tensor, got number", world.all_gather, world,
      x, { out = 3 })
    fails("MR_E_USAGE", "barrier: deadline_s is %-1: expected seconds", world.barrier, world, -1)
    fails("MR_E_USAGE", "deadline_s is %-?nan: expected seconds",
      require("moonreel.core.comm").world, { deadline_s = 0 / 0 })
    fails("MR_E_USAGE", "comm.world: no option 'deadline', did you mean 'deadline_s'", comm.world,
      { deadline = 5 })
    fails("MR_E_USAGE", "did you mean 'sends'", world.all_to_all, world, x, { send = { 3 } })
    fails("MR_E_USAGE", "1 ranks, 2 per node: expected a divisor", world.torus, world, 2)
    fails("MR_E_USAGE", "send: rank 0 is this one", world.send, world, x, 0)
    assert.has_error(function() world:receive(x, 1) end)
    fails("MR_E_USAGE", "rank 2 of 2 ranks", require("moonreel.core.comm").world,
      { rank = 2, size = 2 })
    fails("MR_E_NODE", "descriptor 0 is not the shared memory of 2 ranks",
      require("moonreel.core.comm").world, { size = 2, segment = 0 })
  end)
end)

describe("ranks of this host", function()
  it("reduce, scatter, gather, exchange, send and receive", function()
    local output, exit = launch(3, "local world = comm.world { check = true }\n" .. SAY .. [[
      local r = world:rank()
      local function list(x) return table.concat(x:totable(), " ") end
      local x = T.from({ 3, 1 }, { r, 10 * r, 100 }, "i32")
      say(list(world:all_reduce(x:clone())), list(world:all_reduce(x:clone(), "max")))
      say(list(world:reduce_scatter(x)), list(world:reduce_scatter(x, { rows = { 0, 2, 1 } })))
      say(list(world:all_gather(x:slice(0, 0, r):clone(), { rows = { 0, 1, 2 } })))
      local sends = { { 1, 1, 1 }, { 3, 0, 0 }, { 0, 1, 2 } }
      local receives = { { 1, 3, 0 }, { 1, 0, 1 }, { 1, 0, 2 } }
      say(list(world:all_to_all(x, { sends = sends[r + 1], receives = receives[r + 1] })))
      say(list(world:broadcast(x, 2)))
      local part = world:split(r % 2, { key = -r })
      say(part:rank(), part:size(), part:world_rank(0), list(world:torus(3):reduce_scatter(x)))
      if r == 0 then world:send(x, 1) elseif r == 1 then world:receive(x, 0) end
    ]])
    assert.equal(0, exit, output)
    assert.equal(table.concat({
      "3 30 300\t2 20 100", "3 30 300\t2 20 100", "3 30 300\t2 20 100",
      "3\t", "30\t3 30", "300\t300",
      "1 2 20", "1 2 20", "1 2 20",
      "0 1 10 100", "0 2", "100 20 100",
      "2 20 100", "2 20 100", "2 20 100",
      "1\t2\t2\t6", "0\t1\t1\t60", "0\t2\t2\t300", "" }, "\n"), output)
  end)

  it("end with the exit code of the first rank that fails, which the error names", function()
    local output, exit = launch(3, [[
      local world = comm.world()
      if world:rank() == 1 then error "lost" end
      world:barrier()
    ]])
    assert.equal(1, exit)
    assert.matches("moonreel: rank 1: [^\n]*:3: lost", output)
    assert.matches("rank 2: [^\n]*barrier 0: rank 1 ", output)
    assert.matches("\nmoonreel: rank 1 ended with exit code 1; all 3 ranks have ended\n$", output)
  end)

  it("end with the code of the cause, even when another rank ended earlier by it", function()
    local output, exit = launch(2, [[
      local signal = require "moonreel.core.signal"
      signal.catch()
      local world = comm.world()
      world:barrier()
      -- the code of those who end because another does
      if world:rank() == 1 then os.exit(6, false) end
      while not signal.pending() do os.execute "sleep 0.01" end
      os.exit(9, false)
    ]])
    assert.equal(9, exit, output)
    assert.matches("moonreel: rank 0 ended with exit code 9; all 2 ranks have ended\n$", output)
  end)

  it("end when one dies before it connects, and when one is killed", function()
    local output, exit = launch(2, [[
      if os.getenv "MOONREEL_RANK" == "0" then os.exit(9, false) end
      comm.world()
    ]])
    assert.equal(9, exit)
    assert.matches("rank 1: [^\n]*hello 0: rank 0 ", output)
    output, exit = launch(2, [[
      local world = comm.world()
      if world:rank() == 1 then
        local pid = io.open("/proc/self/stat"):read("n")
        require("moonreel.core.process").run({ "/bin/kill", "-9", ("%d"):format(pid) })
      end
      world:all_reduce(T.new("f32", { 4 }))
    ]])
    assert.equal(137, exit)
    assert.matches("all_reduce 0 %(4 f32%): rank 1 was ended by signal 9", output)
  end)

  it("name the rank that left a call out", function()
    local output, exit = launch(3, [[
      local world = comm.world { check = true }
      if world:rank() ~= 2 then world:barrier() end
      world:all_reduce(T.new("f32", { 4 }))
    ]])
    assert.equal(6, exit)
    assert.matches("rank 2 makes the call all_reduce 0 %(4 f32%), while rank 0 and most others "
      .. "make barrier 0", output)
  end)

  it("must number a whole number within the limits", function()
    for _, text in ipairs { "0", "-1", "1e0", "0x1", "1.0", " 1", "two", "", "99999999999999999999",
      "5000" } do
      local output, exit = launch(text, "")
      assert.equal(2, exit, text)
      assert.matches(text == "5000" and "5000 ranks" or "^moonreel: %-n " .. text:gsub("%p", "%%%0")
        .. ": expected a whole number of ranks", output)
    end
  end)

  it("cannot start ranks themselves", function()
    local output, exit = launch(2, [[
      local done = require("moonreel.core.process").run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh",
        require("moonreel.core.process").program(), "-n", "2", "-e", "print 'started'" }, "")
      if os.getenv "MOONREEL_RANK" == "1" then
        print(done.exit, done.output)
      end
    ]])
    assert.equal(0, exit)
    assert.equal("2\tmoonreel: rank 1: -n 2: this process is already rank 1 of 2, started by "
      .. "moonreel -n; try: leave out -n, or start all ranks with -n alone\n\n", output)
  end)
end)
