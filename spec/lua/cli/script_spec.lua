--- `moonreel FILE.lua` and `moonreel -e CODE`, run as by a user.
-- Covers: core/app/main.c core/bind/bind.c core/bind/base.c lua/moonreel/cli/dispatch.lua
-- lua/moonreel/cli/script.lua lua/moonreel/cli/init.lua lua/moonreel/cli/failure.lua
local program = arg[-1] or "build/cpu/moonreel"

local function shell(command)
  local pipe = io.popen(command .. " 2>&1; echo \"[$?]\"")
  local text = pipe:read("a")
  pipe:close()
  local out, code = text:match("^(.*)%[(%d+)%]\n$")
  return out, tonumber(code)
end

describe("moonreel -e", function()
  it("prints the values of an expression", function()
    local out, code = shell(program .. " -e '1 + 1, \"x\"'")
    assert.equal("2\tx\n", out)
    assert.equal(0, code)
  end)

  it("runs statements with the whole runtime", function()
    local out = shell(program .. " -e 'local b = require \"moonreel.core.base\" "
      .. "print(type(b.pid()), ...)' one")
    assert.equal("number\tone\n", out)
  end)

  it("has the names of the console, as a script has", function()
    local out = shell(program .. " -e 'T.from({2}, {1, 2})'")
    assert.matches("^tensor %[2%] f32 cpu\n", out)
    out = shell(program .. [[ -e 'open("tiny/demo")']])
    assert.matches("^settings of recipes/tiny/demo.lua, hash %x+\n$", out)
    out = shell(program .. [[ -e 'trace, exit, nosuch, data == require "moonreel.data"']])
    assert.equal("nil\tnil\tnil\ttrue\n", out)
    -- a name that the program sets replaces ours
    assert.equal("3\n", (shell(program .. " -e 'T = 3 print(T)'")))
    local dir <close> = require("spec.support.folder").new()
    out = shell(program .. " " .. dir:write("a.lua", "print(ops.silu(T.from({1}, {0})):item())\n"
      .. "print(#arg, ...)\n") .. " x")
    assert.equal("0.0\n1\tx\n", out)
    -- the list of names is the same for both
    local page = shell(program .. " help names")
    assert.equal(page, (shell("echo help | " .. program .. " repl")))
    for _, row in ipairs(require("moonreel.repl.offered")) do
      assert.is_truthy(page:find("\n  " .. row[1] .. " ", 1, true), row[1])
      out = shell(("%s -e 'type(%s)'"):format(program, row[1]))
      assert.equal(row.typed and "nil\n" or row[3] and "table\n" or "function\n", out, row[1])
    end
  end)

  it("exits with 2 on a syntax error, 1 on an error, with its traceback", function()
    local out, code = shell(program .. " -e 'local = 3'")
    assert.equal(2, code)
    assert.matches("^moonreel: %-e:1: ", out)
    out, code = shell(program .. " -e 'error(\"boom\")'")
    assert.equal(1, code)
    assert.matches("boom\nstack traceback:", out)
    out, code = shell(program .. " -e")
    assert.equal(2, code)
    assert.matches("expected Lua code", out)
  end)

  it("prints the beginning and the end of a line of many bytes", function()
    local show = program .. [[ show tiny/demo "lr=$(printf 'ä%%.0s' $(seq %d))"]]
    local out, code = shell(show:format(900))
    assert.equal(2, code)
    assert.equal(2 * 900, select(2, out:gsub("ä", "")))
    out, code = shell(show:format(20000))
    assert.equal(2, code)
    assert.is_true(#out < 4200 and utf8.len(out) ~= nil)
    assert.is_true(out:find("moonreel: lr=ä", 1, true) == 1)
    assert.is_true(out:find("ä ... ä", 1, true) ~= nil)
    assert.is_true(out:find "ä' %(80%d%d%d bytes%)\n$" ~= nil)
  end)

  it("exits with the code of a named error", function()
    local out, code = shell(program .. " -e 'require(\"moonreel.core.base\").raise(\"MR_E_DATA\", "
      .. "\"no rows\")'")
    assert.equal(4, code)
    assert.equal("moonreel: no rows\n", (out:gsub("^moonreel: .*: no rows", "moonreel: no rows")))
  end)
end)

describe("require", function()
  it("prefers moonreel's own modules to files in the working directory", function()
    local dir = require("spec.support.folder").new()
    dir:write("moonreel/cli.lua", "error 'foreign'")
    dir:write("moonreel/settings/init.lua", "error 'foreign'")
    dir:write("mine.lua", "return 42")
    local out, code = shell(("cd %s && %s -e 'type(require(\"moonreel.settings\").bake), "
      .. "(require(\"mine\"))'"):format(dir.path,
      require("moonreel.core.process").program()))
    dir:remove()
    assert.equal("function\t42\n", out)
    assert.equal(0, code)
  end)
end)

describe("moonreel FILE.lua", function()
  local path = os.tmpname()
  local file = path .. ".lua"
  teardown(function()
    os.remove(path)
    os.remove(file)
  end)

  it("passes arguments to a script and returns its exit code", function()
    local f = assert(io.open(file, "w"))
    f:write("print(arg[0], #arg, arg[1], ...) return tonumber(arg[2])\n")
    f:close()
    local out, code = shell(program .. " " .. file .. " --a=b 7")
    assert.equal(file .. "\t2\t--a=b\t--a=b\t7\n", out)
    assert.equal(7, code)
  end)

  it("names the file that it cannot open", function()
    local out, code = shell(program .. " /nowhere/x.lua")
    assert.equal(2, code)
    assert.matches("/nowhere/x%.lua", out)
  end)
end)
