--- What the program loads when it starts, and what it does without Lua.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"

local function output(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local text = pipe:read "a"
  local _, _, code = pipe:close()
  return text, code
end

local program = output("readlink /proc/$PPID/exe"):gsub("%s+$", "")

describe("the program", function()
  it("loads no FFmpeg library except libavutil at start", function()
    local libraries = output("ldd '" .. program .. "'")
    assert.matches("liblua", libraries)
    for _, name in ipairs { "libavcodec", "libavformat", "libswscale", "libavfilter",
        "libavdevice" } do
      assert.is_nil(libraries:find(name, 1, true), name .. " is loaded at start")
    end
  end)

  it("prints its version", function()
    local text, code = output("'" .. program .. "' --version")
    local release, commit = text:match "^moonreel (%d+%.%d+%.%d+)(.*)\n$"
    local project = require("moonreel.core.base").read_file "CMakeLists.txt"
    assert.equal(project:match "project%(moonreel VERSION ([%d.]+)", release)
    -- a tree that is no checkout of its own has no commit
    local here = output "git describe --always --abbrev=8 --exclude='*' 2>/dev/null || true"
    if here ~= "" and commit ~= "" then
      assert.equal((" (%s)"):format(here:match "%x+"), (commit:gsub("%-dirty", "")))
    end
    assert.are.equal(0, code)
  end)

  it("runs code after -e and exits with the code of its error", function()
    assert.are.equal("3\n", (output("'" .. program .. "' -e 'print(1 + 2)'")))
    local text, code = output("'" .. program
      .. [[' -e 'require("moonreel.core.base").raise("MR_E_DATA", "no clips")']])
    assert.matches("no clips", text)
    assert.are.equal(4, code)
  end)

  it("reports lines of its modules, which it contains as bytecode", function()
    local line = 0
    for text in io.lines "lua/moonreel/nn/init.lua" do
      line = line + 1
      if text:find("function nn.merged", 1, true) then
        break
      end
    end
    local code = [[local i = debug.getinfo(require("moonreel.nn").merged, "S") ]]
      .. [[print(i.source, i.linedefined)]]
    assert.equal(("@moonreel/nn/init.lua\t%d\n"):format(line),
      (output(("env -u MOONREEL_LUA '%s' -e '%s'"):format(program, code))))
  end)

  it("does not build with a module that does not compile, and the build names the line", function()
    local dir <close> = folder.new()
    dir:write("lua/bad.lua", "local x = 1\nlocal y = = 2\n")
    local text, code = output(("'%s/CMakeFiles/embed' '%s' '%s/out.c' lua/bad.lua"):format(
      program:match "^(.*)/", dir.path, dir.path))
    assert.equal("embed: lua/bad.lua:2: unexpected symbol near '='\n", text)
    assert.equal(1, code)
  end)

  it("has its own name in ps, top and pgrep, and ranks have their number", function()
    local dir <close> = folder.new()
    local script = dir:write("name.lua", "io.write(io.open('/proc/self/comm'):read('l') .. '\\n')")
    assert.equal("moonreel\n", (output("'" .. program .. "' " .. script)))
    local text = output("'" .. program .. "' -n 2 " .. script)
    assert.is_truthy(text:find("moonreel-r0\n", 1, true), text)
    assert.is_truthy(text:find("moonreel-r1\n", 1, true), text)
  end)

  it("gets the exit codes of its children even when its parent ignores SIGCHLD", function()
    local code = [[local run = require("moonreel.core.process").run ]]
      .. [[print(run({ "/bin/sh", "-c", "exit 7" }, "").exit)]]
    assert.equal("7\n", (output(("env --ignore-signal=CHLD '%s' -e '%s'"):format(program, code))))
  end)

  it("maps letters to the same capitals in each locale", function()
    local dir = folder.new()
    -- the sources of a Turkish locale may not be installed
    output(("localedef -i tr_TR -f UTF-8 '%s/tr_TR.UTF-8'"):format(dir.path))
    local there = base.exists(dir.path .. "/tr_TR.UTF-8/LC_CTYPE")
    local code = [[print(("TITLE \195\135"):lower(), ("title"):upper(), ("i"):find "%a")]]
    local said = {}
    for i, locale in ipairs { "tr_TR.UTF-8", "C", "C.UTF-8", "none.UTF-8" } do
      said[i] = output(("LOCPATH='%s' LC_ALL=%s '%s' -e '%s'"):format(dir.path, locale, program,
        code))
    end
    dir:remove()
    if not there then
      return pending("no sources of locales")
    end
    for _, one in ipairs(said) do
      assert.equal("title \195\135\tTITLE\t1\t1\n", one)
    end
  end)

  it("fails when its output could not be written", function()
    for _, words in ipairs { "--version", "-e 'print(1)'", "help" } do
      local text, code = output(("{ '%s' %s > /dev/full; }"):format(program, words))
      assert.are.equal("moonreel: cannot write standard output; "
        .. "try: check that the disk is not full\n",
        text)
      assert.are.equal(8, code)
    end
    assert.are.equal(0, select(2, output(("{ '%s' -e 'print(1)' >&-; }"):format(program))))
    -- the same when a limit forbids larger files and SIGXFSZ is ignored
    local path = os.tmpname()
    finally(function() os.remove(path) end)
    local _, code = output(("{ ulimit -f 8; '%s' -e 'print((\"x\"):rep(1 << 20))' > %s; }"):format(
      program, path))
    assert.are.equal(8, code)
  end)
end)
