--- Tables of text: quotes, ends of lines, and errors.
-- Covers: lua/moonreel/text/csv.lua
local csv = require "moonreel.text.csv"
local fails = require "spec.support.fails"

describe("a table of text", function()
  local function rows(text)
    local out = {}
    for i, row in ipairs((csv.rows(text, "t.csv"))) do
      out[i] = ("%d %s|%s"):format(row.line, row.text, row.neg)
    end
    return out
  end

  it("has a row for each record, with the names of the first", function()
    assert.same({ "2 a|b", "3 c|", "4 |d" }, rows "text,neg\na,b\nc,\n,d")
    assert.same({ "2 a|b" }, rows "\xEF\xBB\xBFtext,neg\r\na,b\r\n")
    assert.same({ "2 a|b", "4 c|d" }, rows "text,neg\na,b\n\nc,d\n\n")
    local _, columns = csv.rows("text,neg\n", "t.csv")
    assert.same({ text = true, neg = true }, columns)
    assert.same({}, rows "")
  end)

  it("keeps commas, quotes and ends of lines in quotes", function()
    assert.same({ '2 a, b|"c"', "3 d\ne|f", "5 |" }, rows
      'text,neg\n"a, b","""c"""\n"d\ne",f\n"",""\n')
  end)

  it("refuses rows of another length, and quotes that do not end, by line", function()
    fails("MR_E_DATA", "t.csv:3: the row has 3 fields; expected 2", rows,
      "text,neg\na,b\nraining, sea,c\n")
    fails("MR_E_DATA", "t.csv:2: a field begins with a quote and has no closing quote", rows,
      'text,neg\n"a,b\n')
  end)
end)
