--- scripts/test on a small tree: what it counts, prints and stops.
-- Covers: spec/support/summary.lua
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

local CTEST = [[
#!/bin/sh
echo "1/2 Test  #1: core/base/a ......   Passed    9.50 sec"
echo "2/2 Test  #2: core/base/b ......$([ ${BAD:-0} -eq 0 ] && echo "   Passed" || echo "***Failed")    8.25 sec"
echo
echo "50% tests passed, ${BAD:-0} tests failed out of 2"
exit ${BAD:-0}
]]

-- a file with n specs, and a last one with other code
local function specs(n, code)
  return ([[
  describe("some", function()
    for i = 1, %d do
      it("pass", function() end)
    end
    it("end", function() %s end)
  end)
  ]]):format(n, code)
end

describe("scripts/test", function()
  local tree
  before_each(function()
    tree = folder.new()
    for _, path in ipairs { "scripts/test", "spec/support/busted.lua",
      "spec/support/summary.lua" } do
      tree:write(path, base.read_file(path))
    end
    tree:write("scripts/lint", "#!/bin/sh\n")
    tree:write("bin/ctest", CTEST)
    base.make_dir(tree.path .. "/build")
    os.execute(("cd '%s' && chmod +x scripts/* bin/ctest && ln -s '%s' build"):format(tree.path,
      process.program()))
  end)
  after_each(function() tree:remove() end)

  local function run(before)
    local done = process.run({ "/bin/sh", "-c",
      ("unset MOONREEL_SPEC_OWNER; cd '%s' && PATH=$PWD/bin:$PATH %s scripts/test build 2>&1")
        :format(tree.path, before or "") }, "", { deadline_s = 600 })
    return done.output, done.exit
  end

  it("counts specs that pass in C and Lua, on devices, and in lint", function()
    tree:write("spec/lua/a/x_spec.lua", specs(3, ""))
    tree:write("spec/lua/a/y_spec.lua", specs(2, "pending 'not here'"))
    tree:write("spec/lua/b/z_spec.lua", "-- MOONREEL_DEVICE names the device.\n" .. specs(1, ""))
    local output, code = run "CI=true"
    assert.equal(0, code, output)
    -- lint, two programs; 3 + 1, 2; 1 + 1 on each of two devices
    assert.matches("\n13 passed, 0 failed\n$", output)
    assert.matches("\n== spec/lua/b/z_spec.lua, shadow\n%+%+\n", output)
    assert.matches("the slowest specs, in seconds:\n9.50 core/base/a\n8.25 core/base/b\n%d",
      output)
    assert.is_false(base.exists(tree.path .. "/build/spec.work"))
  end)

  it("counts failures of each kind, and lists them last", function()
    tree:write("spec/lua/a/x_spec.lua", specs(3, "error 'no'"))
    tree:write("spec/lua/b/z_spec.lua", specs(1, "") .. "\nerror 'outside'")
    tree:write("spec/lua/c/y_spec.lua", specs(0, "os.exit(3)"))
    tree:write("scripts/lint", "#!/bin/sh\nexit 1\n")
    local output, code = run "BAD=1"
    assert.equal(1, code)
    local names = {}
    for name in output:gmatch "\nfailed: ([^\n]*)%f[\n]" do
      names[#names + 1] = name:gsub("%.lua:%d+", ".lua")
    end
    table.sort(names)
    assert.same({ "core/base/b", "scripts/lint", "spec/lua/a/x_spec.lua end",
      "spec/lua/b/z_spec.lua raised outside its specs", "spec/lua/c died with exit code 3" }, names)
    assert.matches("\n4 passed, 5 failed\n$", output)
  end)

  it("counts a folder that crashes as one failure, and specs that passed before", function()
    tree:write("spec/lua/a/x_spec.lua", specs(3, "os.exit(0, false)"))
    tree:write("spec/lua/b/y_spec.lua", specs(2, "os.execute('kill -9 $PPID')"))
    tree:write("spec/lua/c/z_spec.lua", specs(4, ""))
    local output, code = run()
    assert.equal(1, code)
    assert.matches("\n13 passed, 2 failed\n$", output)
    assert.matches("== spec/lua/a\n%+%+%+died with exit code 0\n", output)
    assert.matches("== spec/lua/b\n%+%+[^\n]*died with exit code 137\n", output)
  end)

  it("stops a folder in which no spec ends, and only that one", function()
    tree:write("spec/lua/a/x_spec.lua", specs(3, "require('moonreel.core.base').sleep(1000)"))
    -- slower as a whole than one spec may be
    tree:write("spec/lua/b/y_spec.lua", (specs(6, ""):gsub('"pass", function%(%)',
      '%0 require("moonreel.core.base").sleep(1.7)')))
    local output, code = run "SPEC_LIMIT=3"
    assert.equal(1, code)
    assert.matches("\n13 passed, 1 failed\n$", output)
    assert.matches("== spec/lua/a\n%+%+%+no spec has ended for 3 s\n[^=]*died with exit code 143\n",
      output)
    assert.is_nil(output:find("Terminated", 1, true))
  end)

  it("prints the output of each concurrent folder in one piece", function()
    for i = 1, 4 do
      tree:write(("spec/lua/f%d/x_spec.lua"):format(i), specs(0, ([[
        for line = 1, 40 do
          print("line %d")
          require("moonreel.core.base").sleep(0.005)
        end
      ]]):format(i)))
    end
    local output, code = run "SPEC_JOBS=4"
    assert.equal(0, code, output)
    for i = 1, 4 do
      assert.matches(("== spec/lua/f%d\n"):format(i) .. (("line %d\n"):format(i)):rep(40), output)
    end
  end)
end)
