--- Character classes and lower case of Python, ends of texts, bytes that are no UTF-8.
-- Covers: lua/moonreel/caption/unicode_tables.lua
local unicode = require "moonreel.caption.unicode"

local function lower(text) return unicode.text(unicode.lower(unicode.codes(text))) end

describe("a character", function()
  it("has Python's character classes", function()
    for text, classes in pairs { a = "w", ["_"] = "w", ["7"] = "wd", [" "] = "s", ["\28"] = "s",
        ["-"] = "", ["é"] = "w", ["×"] = "", ["²"] = "w", ["あ"] = "w", ["\u{301}"] = "",
        ["٣"] = "wd", ["\u{a0}"] = "s", ["\u{3000}"] = "s", ["\u{200b}"] = "", ["😀"] = "",
        ["\u{aa}"] = "w", ["\u{a9}"] = "", ["\u{10ffff}"] = "", ["𝟘"] = "wd",
        ["\u{3134a}"] = "w", ["\u{3134b}"] = "" } do
      local c = utf8.codepoint(text)
      local got = (unicode.is_word(c) and "w" or "") .. (unicode.is_digit(c) and "d" or "")
        .. (unicode.is_space(c) and "s" or "")
      assert.equal(classes, got, text)
    end
  end)

  it("has Python's lower case", function()
    assert.equal("straße äöü кот ｘ ā", lower "STRAßE ÄÖÜ КОТ Ｘ Ā")
    assert.equal("i\u{307}", lower "İ")
    assert.equal("ὀδυσσεύς.", lower "ὈΔΥΣΣΕΎΣ.")
    assert.equal("σ", lower "Σ")
  end)

  it("is found by its name in HTML", function()
    assert.equal(233, unicode.named "eacute")
    assert.is_nil(unicode.named "nothing")
  end)
end)

describe("a text", function()
  it("is restored from its code points, with U+FFFD for invalid UTF-8", function()
    assert.equal("aé😀", unicode.text(unicode.codes "aé😀"))
    assert.equal("a\u{fffd}b\u{fffd}\u{fffd}", unicode.text(unicode.codes "a\xffb\xe2\x82"))
    local long = ("xé"):rep(5000)
    assert.is_true(unicode.text(unicode.codes(long)) == long)
    assert.equal("", unicode.text(unicode.codes ""))
  end)

  it("is stripped of white space at its ends", function()
    assert.equal("a b", unicode.text(unicode.strip(unicode.codes "\u{3000} a b\n")))
    assert.equal("", unicode.text(unicode.strip(unicode.codes " \t")))
  end)
end)
