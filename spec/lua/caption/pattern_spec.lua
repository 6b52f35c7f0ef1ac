--- Matches are those of Python's re; long repetitions are read once.
local pattern = require "moonreel.caption.pattern"
local unicode = require "moonreel.caption.unicode"

local function replace(source, text, with)
  local out, n = pattern.new(source):replace(unicode.codes(text), with or "-")
  return unicode.text(out), n
end

describe("a pattern", function()
  -- results of re.sub of Python 3.11
  it("matches what Python's re matches", function()
    for _, c in ipairs {
      { "b", "abcb", "a-c-" }, { "[a-c]+", "xabcdab", "x-d-" }, { "[^a-c]", "axb", "a-b" },
      { "[\\]x]", "a]x", "a--" }, { "[a\\-]", "a-b", "--b" }, { "a?b", "ab b aab", "- - a-" },
      { "\\d{1,3}x", "1234x", "1-" }, { "\\d{5,}", "1234 12345", "1234 -" },
      { "(?:ab|a)c", "abc ac bc", "- - bc" }, { "x(?!y)", "xy xz", "xy -z" },
      { "^a", "aa", "-a" }, { "a$", "aa", "a-" }, { "a$", "aa\n", "a-\n" },
      { "\\bcat\\b", "cat concat cats", "- concat cats" }, { "\\w+", "é_1 ⅷ-x", "- ---" },
      { "\\s+", "a \u{3000}\tb", "a-b" }, { "(\\D[,./])\\b", "a,b 1.5", "a, b 1.5", "\\1 " },
      { "(?:free\\s)?ship", "free ship ship", "- -" }, { "a*b", "aaab b", "- -" },
      { "a+a", "aaa", "-" }, { "[a-z]+\\d+[a-z]+\\d+", "a1b2 a1b", "- a1b" },
      { "^[\"']([\\w\\W]+)[\"']$", "'it''s'", "it''s", "\\1" },
      { "(?:a|ab)(?:c|bcd)", "abcd", "-" },
    } do
      assert.equal(c[3], (replace(c[1], c[2], c[4])), c[1] .. " on " .. c[2])
    end
  end)

  it("can be used for several texts", function()
    local p = pattern.new "\\d+x"
    assert.equal("11", unicode.text((p:replace(unicode.codes "11", "-"))))
    assert.equal("- 1", unicode.text((p:replace(unicode.codes "11x 1", "-"))))
    assert.equal("1-", unicode.text((p:replace(unicode.codes "1-", "-"))))
  end)

  it("counts its matches, of which none is empty", function()
    assert.equal(3, select(2, replace("[-_]", "a-b_c-d")))
    assert.equal("bab", (replace("x*", "bab")))
  end)

  it("reads a repetition once, whatever the number of places where it may begin", function()
    for _, source in ipairs { "\\S+\\.png", "\\b\\d+\\.?\\d*x", "[a1]+\\d+[a1]+x" } do
      local text, calls = ("1"):rep(4000), 0
      debug.sethook(function() calls = calls + 1 end, "", 1000)
      replace(source, text)
      debug.sethook()
      assert.is_true(calls < 2000, source .. ": " .. calls .. " thousand instructions")
    end
  end)

  it("that is invalid is refused with the position", function()
    local function fails(source) return (select(2, pcall(pattern.new, source))).message end
    assert.matches("pattern '%(a': no %) at 3", fails "(a")
    assert.matches("no %] at 3", fails "[a")
    assert.matches("there is a %) without a %( at 2", fails "a)")
    assert.matches("expected {m,n}", fails "a{x}")
    assert.matches("a group can only be followed by %?", fails "(?:ab)+")
  end)
end)
