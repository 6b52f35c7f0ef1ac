--- Long texts in the console are printed whole, are safe for the terminal, and stop on Ctrl-C.
-- Covers: lua/moonreel/repl/show.lua lua/moonreel/text/clean.lua
local base = require "moonreel.core.base"
local clean = require "moonreel.text.clean"
local printed = require "spec.support.printed"
local process = require "moonreel.core.process"
local show = require "moonreel.repl.show"

local function shown(value)
  return (printed(show.results, { n = 1, value }):gsub("\n", ""))
end

describe("a long text", function()
  it("is printed whole, whatever its pieces contain at their ends", function()
    for _, unit in ipairs { "ä", "漢", "😀", "a", "aä漢😀" } do
      for extra = 0, 4 do
        local text = ("x"):rep(extra) .. unit:rep(20000)
        -- printed() puts a line end between pieces
        assert.is_true(shown(text) == '"' .. text .. '"', unit .. extra)
      end
    end
  end)

  it("is escaped like a short one", function()
    local text = shown(('say "hi"\27[31m\n\\ \u{202e}'):rep(3000))
    assert.is_nil(text:find("[%z\1-\31\127]"))
    assert.is_nil(text:find("\u{202e}", 1, true))
    local want = [["say \"hi\"\x1b[31m\n\\ \xe2\x80\xaesay]]
    assert.equal(want, text:sub(1, #want))
  end)

  it("inside a table is shortened, and its length reported", function()
    local text = shown { ("x"):rep(1e6) }
    assert.is_true(#text < 5000)
    assert.matches("x\" ... 1000000 bytes", text)
  end)

  it("of print() is printed whole too", function()
    local text = printed(show.print, ("y"):rep(50000), 7)
    assert.equal(("y"):rep(50000) .. "7", (text:gsub("[\n\t]", "")))
    assert.equal("1\tx", printed(show.print, 1, "x"))
  end)

  it("stops on Ctrl-C, and the console continues", function()
    local input = os.tmpname()
    for _, code in ipairs { "x", "print(x)", "print(x, x)" } do
      base.replace_file(input, ("x = ('y'):rep(5e7)\n%s\n40 + 2\n"):format(code))
      local pipe = io.popen(("echo $$; exec '%s' repl < '%s'"):format(process.program(), input))
      local pid = pipe:read "l"
      -- it waits for us in the middle of its text
      assert.equal(100000, #pipe:read(100000))
      os.execute("kill -INT " .. pid)
      local rest = pipe:read "a"
      pipe:close()
      assert.is_true(#rest < 1e7, ("%s: %d bytes more"):format(code, #rest))
      assert.matches("stopped by Ctrl%-C\n42\n$", rest)
    end
    os.remove(input)
  end)
end)

describe("text.clean", function()
  it("prints characters that are unsafe for a terminal as \\xHH, and no others", function()
    assert.equal("größer 漢字 😀", clean "größer 漢字 😀")
    assert.equal("\\x00\\x1f\\x7f \\x0a", clean "\0\31\127 \n")
    assert.equal("\\xc2\\x80\\xc2\\x9f\u{a0}", clean "\u{80}\u{9f}\u{a0}")
    assert.equal("\\xe2\\x80\\x8e\u{200d}\u{2010}", clean "\u{200e}\u{200d}\u{2010}")
    assert.equal("\\xe2\\x80\\xae\u{202f}", clean "\u{202e}\u{202f}")
    assert.equal("\\xe2\\x81\\xa6\\xe2\\x81\\xa9\u{206a}", clean "\u{2066}\u{2069}\u{206a}")
    assert.equal("\\xef\\xbb\\xbf", clean "\u{feff}")
  end)

  it("prints invalid UTF-8 byte by byte", function()
    assert.equal("a\\xffb", clean "a\xffb")
    assert.equal("\\xc0\\x80", clean "\xc0\x80")
    assert.equal("\\xed\\xa0\\x80", clean "\xed\xa0\x80")
    assert.equal("\\xe6\\xbc", clean "\xe6\xbc")
    assert.equal("42", clean(42))
  end)
end)
