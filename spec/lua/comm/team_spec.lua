--- Ranks that decide together: all of them get the same answer or the same failure.
-- Covers: lua/moonreel/cli/failure.lua
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local team = require "moonreel.comm.team"

local dir = folder.new()
teardown(function() dir:remove() end)

-- run code with `n` ranks; returns their output and exit code
local function launch(ranks, code)
  dir:write("team.lua", "local comm, base = require 'moonreel.comm', require 'moonreel.core.base'\n"
    .. "local t = require('moonreel.comm.team').new(comm.world { deadline_s = 60 })\n" .. code)
  local done = process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program(), "-n",
    tostring(ranks), dir.path .. "/team.lua" }, "", { deadline_s = 120 })
  return done.output, done.exit
end

describe("a team of one", function()
  local alone = team.new()

  it("asks no other rank", function()
    assert.same({ 0, 1, true }, { alone.rank, alone.size, alone.leads })
    assert.is_nil(team.new(require("moonreel.comm").world()).world)
    assert.same({ 2, 3 }, alone:sum { 2, 3 })
    assert.same({ { 2, 3 } }, alone:all { 2, 3 })
    assert.same({ "one" }, alone:texts "one")
    assert.same({ { 1, 2, 3, 4 } }, alone:lists({ 1, 2, 3, 4 }, { 2 }, 2))
    assert.equal(5, alone:try(function(x) return x + 1 end, 4))
    local made = { 1 }
    assert.equal(made, alone:first(function() return made end))
    assert.has_error(function() alone:try(error, "lost", 0) end, "lost")
    fails("MR_E_DATA", "all of them", alone.raise, alone, "MR_E_DATA", "all of them")
  end)
end)

describe("a team of ranks", function()
  it("gathers a different number of rows from each rank", function()
    local output, exit = launch(3, [[
      local own = {}
      for i = 1, 2 * t.rank do own[i] = 10 * t.rank + i end
      local lists = t:lists(own, { 0, 1, 2 }, 2)
      for r = 0, 2 do
        if r == t.rank then
          print(#lists[1], table.concat(lists[2], " "), table.concat(lists[3], " "))
          io.stdout:flush()
        end
        t:sum { 0 }
      end
    ]])
    assert.equal(0, exit, output)
    assert.equal(("0\t11.0 12.0\t21.0 22.0 23.0 24.0\n"):rep(3), output)
  end)

  it("sums numbers, gathers texts and broadcasts the result of rank 0", function()
    local output, exit = launch(3, [[
      local texts = t:texts(("r%d\0\n"):format(t.rank):rep(t.rank * 1000))
      local got = t:first(function()
        io.write "once\n"
        return { step = 7, name = "run" }
      end)
      local sum = t:sum { t.rank, 0.5 }
      for r = 0, 2 do
        if r == t.rank then
          print(#texts[1], #texts[2], texts[3]:sub(-4, -3), got.step, got.name, sum[1], sum[2],
            t:try(function() return "tried" end))
          io.stdout:flush()
        else
          t:try(function() end)
        end
      end
    ]])
    assert.equal(0, exit, output)
    local line = "0\t4000\tr2\t7\trun\t3.0\t1.5\ttried\n"
    assert.equal("once\n" .. line:rep(3), output)
  end)

  it("fails as a whole, and the first rank that failed reports the error", function()
    for _, case in ipairs {
      { "t:try(function() if t.rank > 0 then base.raise('MR_E_DATA', 'rank '..t.rank) end end)",
        "rank 1: [^\n]*: rank 1\n", "rank 1", 4 },
      { "t:first(function() base.raise('MR_E_CKPT', 'no disk') end)",
        "rank 0: [^\n]*: no disk\n", "rank 0", 8 },
      { "t:raise('MR_E_NONFINITE', 'nothing is finite')",
        "rank 0: [^\n]*nothing is finite\n", "rank 0", 7 },
      { "t:try(function() if t.rank == 2 then error 'defect' end end)", "rank 2: [^\n]*defect",
        "rank 2", 1 } } do
      local output, exit = launch(3, case[1])
      assert.equal(case[4], exit, output)
      local report, ends = output:match("^(moonreel: .*)moonreel: (.-); all 3 ranks have ended\n$")
      assert.matches("^moonreel: [^\n]*" .. case[2], report, output)
      assert.is_nil(report:find("\nmoonreel", 1, true), output)
      assert.equal(("%s ended with exit code %d"):format(case[3], case[4]), ends)
    end
  end)

  it("ends when a rank has another value than rank 0, and the error shows both", function()
    local output, exit = launch(3, [[
      t:same("x", error)
      t:try(function()
        t:same(t.rank < 2 and "x" or "y", function(theirs)
          base.raise("MR_E_RECIPE", "y, not " .. theirs)
        end)
      end)
      print "not here"
    ]])
    assert.equal(3, exit, output)
    assert.matches("^moonreel: rank 2: [^\n]*y, not x\n", output)
    assert.is_nil(output:find("not here", 1, true))
  end)

  it("detects hosts that have equal numbers of consecutive ranks", function()
    local output, exit = launch(4, [[
      local function even(sizes, places)
        return t:even { local_size = sizes[t.rank + 1], local_rank = places[t.rank + 1] }
      end
      local got = { even({ 2, 2, 2, 2 }, { 0, 1, 0, 1 }), even({ 4, 4, 4, 4 }, { 0, 1, 2, 3 }),
        -- another number on the last host, as torchrun gives each; by turns; unknown
        even({ 3, 3, 3, 1 }, { 0, 1, 2, 0 }) or 0, even({ 2, 2, 2, 2 }, { 0, 0, 1, 1 }) or 0,
        even({ 2, 2, 2 }, { 0, 1, 0, 1 }) or 0, even({ 2, 2, 1, 1 }, { 0, 1, 0, 0 }) or 0 }
      for r = 0, 3 do
        if r == t.rank then
          print(table.concat(got, " "))
          io.stdout:flush()
        end
        t:try(function() end)
      end
    ]])
    assert.equal(0, exit, output)
    assert.equal(("2 4 0 0 0 0\n"):rep(4), output)
  end)
end)
