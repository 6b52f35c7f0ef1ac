--- Rules for captions one by one; spec/golden/text_rules.json has captions of the reference.
local clean = require "moonreel.caption.clean"

describe("a clean caption", function()
  for text, want in pairs {
    ["A+Cat%20%C3%84"] = "a cat ä", ["see https://a.com/b now"] = "see now",
    ["x.y.org/z? yes"] = "? yes", ["mail me@a.com x"] = "mail me x", ["a<i>b</i>c"] = "abc",
    ["漢字 kana か"] = "kana か", ["a—b‒c"] = "a-b-c", ["a «q» b"] = "a \"q\" b",
    ["at 1.2.3.4 now"] = "at now", ["time 10:30 "] = "time 10:30", ["#12 #1234 #12345"] = "1234",
    ["photo.jpeg x"] = "x", ["so...what"] = "so what", ["a-b_c-d"] = "a-b_c-d",
    ["a-b_c-d-e"] = "a b c d e", ["abc123 x"] = "x", ["12ab34 x"] = "x",
    ["free download free x"] = "x", ["click on this x"] = "x", ["png images x"] = "x",
    ["page 7 x"] = "x", ["a1b2c3 x"] = "x", ["4x4 and 2.5×3"] = "and", ["a , b"] = "a , b",
    ["word : x"] = "word: x", ["one,two"] = "one, two", ["'all of it'"] = "all of it",
    ["_x-"] = "x", [".hidden"] = "", ["3.5"] = "3.5",
  } do
    it(("of %q"):format(text), function() assert.equal(want, clean.caption(text)) end)
  end

  it("is the result of two passes", function()
    -- each pass removes one leading line
    assert.equal("x", clean.caption "__x")
    assert.equal("_x", clean.caption "___x")
  end)

  it("without the rules only has small letters and no space around it", function()
    assert.equal("a <b>é</b>  x", clean.plain " A <b>É</b>  x\n")
  end)
end)
