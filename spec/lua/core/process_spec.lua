--- Children with a deadline, limits, paths.
-- Covers: core/bind/process.c
local process = require "moonreel.core.process"

describe("process.run", function()
  it("passes input and returns output and exit code", function()
    local done = process.run({ "/bin/sh", "-c", "cat; exit 3" }, ("x"):rep(300000))
    assert.equal(300000, #done.output)
    assert.equal(3, done.exit)
    assert.is_nil(done.signal)
    assert.equal("", process.run({ "/bin/true" }, ("y"):rep(1000000)).output)
  end)

  it("kills at the deadline, and when the child writes too much", function()
    local done = process.run({ "/bin/sleep", "100000" }, "", { deadline_s = 0.1 })
    assert.is_true(done.timed_out)
    assert.equal(9, done.signal)
    done = process.run({ "/bin/sh", "-c", "while :; do echo xxxxxxxxxxxxxxxx; done" },
      "", { output_bytes = 10000 })
    assert.is_true(done.too_long)
  end)

  it("starts programs that end by a broken pipe, as a shell does", function()
    local done = process.run({ "/bin/sh", "-c", "kill -PIPE $$; echo goes on" })
    assert.same({ "", 13 }, { done.output, done.signal })
  end)

  it("searches PATH for a name without a folder", function()
    assert.equal("here\n", process.run({ "echo", "here" }).output)
  end)

  it("passes input and output when standard streams are closed", function()
    local code = [[
      local done = require("moonreel.core.process").run({ "/bin/cat" }, "words")
      local path = os.tmpname()
      local file <close> = io.open(path, "w+")
      os.remove(path)
      io.stderr:write "to nobody"
      io.stdout:write(done.output, done.exit or done.signal, file:seek "end", "\n")]]
    for _, closed in ipairs { "<&-", "2>&-", "<&- 2>&-" } do
      local done = process.run({ "/bin/sh", "-c", 'exec "$0" "$@" ' .. closed, process.program(),
        "-e", code }, "", { quiet = true })
      assert.equal("words00\n", done.output, closed)
    end
  end)

  it("reports what it cannot start, and refuses arguments that are no strings", function()
    local ok, problem = pcall(process.run, { "/nowhere/program" })
    assert.is_false(ok)
    assert.matches("cannot start /nowhere/program", tostring(problem))
    ok, problem = pcall(process.run, { "/bin/true", {} })
    assert.is_false(ok)
    assert.matches("word 2 is not a string", tostring(problem))
    assert.is_false((pcall(process.run, {})))
  end)

  it("leaves no file open", function()
    local function count() return #require("moonreel.core.base").list_dir("/proc/self/fd") end
    process.run({ "/bin/true" })
    local before = count()
    for _ = 1, 20 do
      process.run({ "/bin/cat" }, "x")
    end
    pcall(process.run, { "/nowhere/program" })
    assert.is_true(count() <= before)
  end)
end)

describe("process.limit", function()
  local function limited(code, limits)
    return process.run({ process.program(), "-e",
      ('require("moonreel.core.process").limit(%s) %s'):format(limits, code) },
        "", { deadline_s = 600 })
  end

  it("ends a program that has used its processor time", function()
    local done = limited("while true do end", "{cpu_s = 0.2}")
    assert.equal(27, done.signal)
  end)

  it("makes allocations fail above its memory", function()
    local done = limited('print(pcall(string.rep, "x", 1800000000))', "{memory_bytes = 1 << 30}")
    -- a sanitizer ends the program instead
    assert.is_true(done.output:match("^false\tnot enough memory") ~= nil or done.exit ~= 0)
  end)
end)

describe("process.limit under lower limits", function()
  it("keeps them", function()
    for _, row in ipairs { { "ulimit -v 2000000", "{memory_bytes = 1 << 40}", "-v", "2000000" },
        { "ulimit -t 500", "{cpu_s = 1000}", "-t", "500" } } do
      local code = ('require("moonreel.core.process").limit(%s) os.execute("ulimit %s")'):format(
        row[2], row[3])
      local done = process.run({ "/bin/sh", "-c", row[1] .. ' && exec "$0" -e "$1" 2>&1',
        process.program(), code }, "", { deadline_s = 60 })
      assert.equal(row[4] .. "\n", done.output)
    end
  end)
end)

describe("process.real_path", function()
  it("resolves links and returns nil for a missing file", function()
    local dir = require("spec.support.folder").new()
    dir:write("a/b.txt", "x")
    os.execute(("ln -s '%s/a' '%s/c'"):format(dir.path, dir.path))
    assert.equal(process.real_path(dir.path .. "/a/b.txt"),
      process.real_path(dir.path .. "/c/../c/b.txt"))
    assert.is_nil(process.real_path(dir.path .. "/nothing"))
    dir:remove()
  end)
end)

describe("process.restart", function()
  local folder = require "spec.support.folder"
  local code = [[
    local p = require "moonreel.core.process"
    if p.variable "NCCL_DEBUG" then return print(arg[1], p.variable "NCCL_DEBUG", p.variable "GOMP_SPINCOUNT", os.getenv "GOMP_SPINCOUNT") end
    p.restart({ "moonreel", "-e", os.getenv "CODE", "word" }, { NCCL_DEBUG = "INFO", GOMP_SPINCOUNT = os.getenv "ROUNDS" })]]

  it("starts the program again with more variables, except those that it sets itself",
    function()
    local clean =
      ("unset GOMP_SPINCOUNT GLIBC_TUNABLES OMP_WAIT_POLICY MOONREEL_OWN; CODE='%s'; export CODE;")
        :format(code)
    local output, errors = folder.moonreel('-e "$CODE"', clean)
    assert.equal("word\tINFO\tnil\t2000\n", output, errors)
    output, errors = folder.moonreel('-e "$CODE"', clean .. " ROUNDS=77")
    assert.equal("word\tINFO\t77\t77\n", output, errors)
  end)

  it("sets variables that libraries read at their start, unless the user has set them", function()
    local both = [[-e 'local p = require "moonreel.core.process"
      for _, n in ipairs { "GOMP_SPINCOUNT", "GLIBC_TUNABLES" } do
        print(os.getenv(n), p.variable(n)) end']]
    local clean = "unset GOMP_SPINCOUNT GLIBC_TUNABLES OMP_WAIT_POLICY MOONREEL_OWN;"
    local threads, cache = "2000\tnil\n", "glibc.malloc.tcache_count=0\tnil\n"
    assert.equal(threads .. cache, (folder.moonreel(both, clean)))
    assert.equal("7\t7\n" .. cache, (folder.moonreel(both, clean .. " GOMP_SPINCOUNT=7")))
    local pad = "glibc.malloc.top_pad=0"
    assert.equal(("%s%s\t%s\n"):format(threads, pad, pad),
      (folder.moonreel(both, clean .. " GLIBC_TUNABLES=" .. pad)))
    assert.equal("nil\tnil\n" .. cache, (folder.moonreel(both, clean .. " OMP_WAIT_POLICY=passive")))
  end)

  it("refuses names that are no variables", function()
    for _, bad in ipairs { { ["A=B"] = "x" }, { [1] = "x" }, { A = {} } } do
      local ok, problem = pcall(process.restart, { "moonreel" }, bad)
      assert.is_false(ok)
      assert.matches("restart: cannot set a variable", tostring(problem))
    end
  end)
end)

describe("moonreel's process information", function()
  it("lists its plug-ins, or the folders that were searched", function()
    assert.matches("/libmoonreel_media%.so$", process.plugin("media"))
    local path, problem = process.plugin("odd")
    assert.is_nil(path)
    assert.matches("libmoonreel_odd%.so is not in ", problem)
  end)

  it("lists the limits of the system", function()
    local done = process.run({ "/bin/sh", "-c", "ulimit -n 77; '" .. process.program()
      .. [[' -e 'print(require("moonreel.core.process").allowed().files)']] }, "")
    assert.equal("77\n", done.output)
  end)
end)
