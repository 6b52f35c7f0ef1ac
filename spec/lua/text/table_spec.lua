--- One way to print tables.
local printed = require "spec.support.printed"
local printer = require "moonreel.text.table"

describe("table.text", function()
  it("aligns by characters, numbers to the right, without blanks at line ends", function()
    assert.equal("name    size\nä         10\nlonger     -\n",
      printer.text({ { key = "name" }, { key = "size", right = true } },
      { { name = "ä", size = 10 }, { name = "longer" } }))
  end)

  it("uses a column's own form and shows control characters as text", function()
    assert.equal("t\n0.50 s\nx\\x1b[2J\\x0a\n", printer.text({ { key = "t", format = function(v)
      return type(v) == "number" and ("%.2f s"):format(v) or v
    end } },
      { { t = 0.5 }, { t = "x\27[2J\n" } }))
  end)

  it("is plain when the output is no terminal", function()
    assert.is_false(printer.colours())
    assert.equal("x", printer.bold("x"))
  end)
end)

describe("table.print", function()
  it("writes JSON with the columns' keys, none as null", function()
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
