--- Tags and comments go, names become characters, what is cut or astray stays.
local html = require "moonreel.caption.html"

describe("text without HTML", function()
  for text, want in pairs {
    ["<b>bold</b> text"] = "bold text", ["a<br/>b"] = "ab", ["a < b > c"] = "a < b > c",
    ["<a href=\"x>y\">z</a>"] = "z", ["<a title='>' b=c>z"] = "z", ["x<!-- a > b -->y"] = "xy",
    ["<!doctype html>x"] = "x", ["<?php ?>x"] = "x", ["</3>x"] = "x", ["<3"] = "<3",
    ["a <b"] = "a <b", ["a <b c> d <e"] = "a  d <e", ["x <!-- y"] = "x <!-- y",
    ["&amp; &lt;b&gt; &eacute;."] = "& <b> é.", ["&amp"] = "&amp", ["a &amp b"] = "a & b",
    ["&nothing;x"] = "&nothingx", ["&#65;&#x42;&#67 "] = "ABC ", ["&#1114112;"] = "\u{fffd}",
    ["&#xd800;"] = "\u{fffd}", ["& &; &1"] = "& &; &1", [""] = "", ["<"] = "<", ["&"] = "&",
  } do
    it(("of %q"):format(text), function() assert.equal(want, html.text(text)) end)
  end
end)
