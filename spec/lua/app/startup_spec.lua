--- What the program loads when it starts, and what it answers without Lua.
local function output(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local text = pipe:read "a"
  local _, _, code = pipe:close()
  return text, code
end

local program = output("readlink /proc/$PPID/exe"):gsub("%s+$", "")

describe("the program", function()
  it("loads no FFmpeg library but libavutil at start", function()
    local libraries = output("ldd '" .. program .. "'")
    assert.matches("liblua", libraries)
    for _, name in ipairs { "libavcodec", "libavformat", "libswscale", "libavfilter",
        "libavdevice" } do
      assert.is_nil(libraries:find(name, 1, true), name .. " is loaded at start")
    end
  end)

  it("says its version", function()
    local text, code = output("'" .. program .. "' --version")
    assert.matches("^moonreel %d+%.%d+%.%d+\n$", text)
    assert.are.equal(0, code)
  end)

  it("runs code given with -e and passes failures on as exit codes", function()
    assert.are.equal("3\n", (output("'" .. program .. "' -e 'print(1 + 2)'")))
    local text, code = output("'" .. program
      .. [[' -e 'require("moonreel.core.base").raise("MR_E_DATA", "no clips")']])
    assert.matches("no clips", text)
    assert.are.equal(4, code)
  end)

  it("fails when what it printed could not be written", function()
    for _, words in ipairs { "--version", "-e 'print(1)'", "help" } do
      local text, code = output(("{ '%s' %s > /dev/full; }"):format(program, words))
      assert.are.equal("moonreel: what it printed could not be written; is there room for it?\n",
        text)
      assert.are.equal(8, code)
    end
    assert.are.equal(0, select(2, output(("{ '%s' -e 'print(1)' >&-; }"):format(program))))
    -- the same where files may not grow, instead of a signal
    local path = os.tmpname()
    finally(function() os.remove(path) end)
    local _, code = output(("{ ulimit -f 8; '%s' -e 'print((\"x\"):rep(1 << 20))' > %s; }"):format(
      program, path))
    assert.are.equal(8, code)
  end)
end)
