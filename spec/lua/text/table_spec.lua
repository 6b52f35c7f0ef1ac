--- One function prints all tables.
local printed = require "spec.support.printed"
local printer = require "moonreel.text.table"

describe("table.text", function()
  it("aligns by characters, numbers to the right, without spaces at line ends", function()
    assert.equal("name    size\nä         10\nlonger     -\n",
      printer.text({ { key = "name" }, { key = "size", right = true } },
      { { name = "ä", size = 10 }, { name = "longer" } }))
  end)

  it("uses a column's own form and prints control characters as text", function()
    assert.equal("t\n0.50 s\nx\\x1b[2J\\x0a\n", printer.text({ { key = "t", format = function(v)
      return type(v) == "number" and ("%.2f s"):format(v) or v
    end } },
      { { t = 0.5 }, { t = "x\27[2J\n" } }))
  end)

  it("is plain when the output is no terminal", function()
    assert.is_false(printer.colours())
    assert.equal("x", printer.bold("x"))
  end)

  it("is bold in a terminal, unless NO_COLOR is set or the terminal is dumb", function()
    local base = require "moonreel.core.base"
    local is_terminal, getenv = base.is_terminal, os.getenv
    -- the text in a terminal with these variables
    local function bold(variables)
      base.is_terminal = function(fd) return fd == 1 end
      os.getenv = function(name) return variables[name] end -- luacheck: ignore 122
      local ok, text = pcall(printer.bold, "x")
      base.is_terminal, os.getenv = is_terminal, getenv -- luacheck: ignore 122
      return ok and text
    end
    assert.equal("\27[1mx\27[0m", bold { TERM = "xterm" })
    assert.equal("\27[1mx\27[0m", bold { NO_COLOR = "" })
    assert.equal("x", bold { NO_COLOR = "1" })
    assert.equal("x", bold { TERM = "dumb" })
  end)
end)

describe("table.print", function()
  it("writes JSON with the columns' keys, and none as null", function()
    local folder = require "spec.support.folder"
    local out = folder.moonreel(
      [[-e 'require("moonreel.text.table").print({{key="a"},{key="b"}}, {{a=1,b="x",c=9},{a=0/0}}, {json=true})']])
    assert.equal('[\n  {\n    "a": 1,\n    "b": "x"\n  },\n  {\n    "a": null,\n    "b": null\n  '
      .. '}\n]\n', out)
    -- other options change nothing
    assert.equal("a\nxx\n", printed(printer.print, { { key = "a" } }, { { a = "xx" } }, {}))
    assert.equal("[]\n",
      (
      folder.moonreel([[-e 'require("moonreel.text.table").print({{key="a"}}, {}, {json=true})']])))
  end)
end)
