--- The console of several ranks: all ranks run what rank 0 reads.
-- Covers: lua/moonreel/cli/repl.lua
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

describe("the console of several ranks", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  -- lines in a file, which all ranks inherit
  local function run(count, text, ...)
    local path = dir:write("lines.lua", text)
    return process.run({ "/bin/sh", "-c", 'lines=$1; shift; exec "$@" < "$lines" 2>&1', "sh", path,
      process.program(), "-n", tostring(count), "repl", ... }, "", { deadline_s = 600 })
  end

  it("runs each line on all ranks, and prints the result of the first", function()
    local done = run(3, [[
w = comm.world()
w
x = T.from({2}, {w:rank(), 10})
for _ = 1, 2 do
  w:all_reduce(x)
end
x
w:split(w:rank() // 2):size(), _.dtype
]])
    assert.equal(0, done.exit, done.output)
    assert.equal("rank 0 of 3\ntensor [2] f32 cpu\n  9  90\n2\t\"f32\"\n", done.output)
  end)

  it("reports the rank on which a line failed, and continues", function()
    local done = run(2, [[
w = comm.world()
if w:rank() == 1 then error("there") end
w:all_gather(T.from({1}, {w:rank()}))
]])
    assert.equal(0, done.exit)
    assert.equal("rank 1: prompt:1: there\ntensor [2] f32 cpu\n  0  1\n", done.output)
  end)

  it("continues on rank 0 when ranks have diverged", function()
    local done = run(2, [[
w = comm.world()
if w:rank() == 0 then w:barrier() end
1 + 1
2 + 2
]])
    assert.equal(0, done.exit)
    assert.matches("barrier %d+ of another group, this rank, [01], at barrier", done.output)
    assert.matches("the world of ranks has ended[^\n]*; from now on only rank 0 runs "
      .. "what is typed\n4\n$", done.output)
  end)

  it("opens the named thing on all ranks, and prints it once", function()
    local done = run(2, "comm.world():all_reduce(T.from({1}, {r.steps}, 'i64'))\n",
      "recipes/tiny/demo")
    assert.equal(0, done.exit)
    assert.matches("^r = settings of recipes/tiny/demo.lua, hash %x+\n"
      .. "tensor %[1%] i64 cpu\n  2028\n$", done.output)
  end)
end)
