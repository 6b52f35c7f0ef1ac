--- Tags and comments are removed, entities become characters, and incomplete or stray ones are
-- kept.
local html = require "moonreel.caption.html"

describe("text without HTML", function()
  for text, want in pairs {
    ["<b>bold</b> text"] = "bold text", ["a<br/>b"] = "ab", ["a < b > c"] = "a < b > c",
    ["<a href=\"x>y\">z</a>"] = "z", ["<a title='>' b=c>z"] = "z", ["x<!-- a > b -->y"] = "xy",
    ["<!doctype html>x"] = "x", ["<?php ?>x"] = "x", ["</3>x"] = "x", ["<3"] = "<3",
    ["a <b"] = "a <b", ["a <b c> d <e"] = "a  d <e", ["x <!-- y"] = "x <!-- y",
    ["&amp; &lt;b&gt; &eacute;."] = "& <b> é.", ["&amp"] = "&amp", ["a &amp b"] = "a & b",
    ["&nothing;x"] = "&nothingx", ["&#65;&#x42;&#67 "] = "ABC ", ["&#1114112;"] = "\u{fffd}",
    ["a<script>1 < 2 </b> </Script >b<style>x"] = "ab", ["<script/>x<scripts>y"] = "xy",
    ["<ruby>a<rp>(</rp><rt>b</rt><rp>)</rp></ruby>c"] = "ac",
    ["a<template><b>c</b></template>d"] = "ad",
    ["a<![CDATA[b > c]] >d"] = "ab > cd", ["a<![cdata[b"] = "a<![cdata[b",
    ["&#128;&#x9f;&#129;&#160;."] = "€Ÿ\u{81}\u{a0}.", ["&#65"] = "&#65", ["&#65a;"] = "&#65a;",
    ["&lang;&rang;"] = "\u{27e8}\u{27e9}",
    ["&#xd800;"] = "\u{fffd}", ["& &; &1"] = "& &; &1", [""] = "", ["<"] = "<", ["&"] = "&",
  } do
    it(("of %q"):format(text), function() assert.equal(want, html.text(text)) end)
  end
end)
