--- Cleans captions by the rules that the reference applies to prompts, and offline to datasets.
-- Ref: opensora-1.2.md 4.6; the numbers at the rules refer to it. The step that repairs wrongly
-- encoded text (ftfy, in 19) is left out. Names of characters, which follow it there, must come
-- before 16, which replaces every &.
-- @module moonreel.caption.clean
local html = require "moonreel.caption.html"
local pattern = require "moonreel.caption.pattern"
local unicode = require "moonreel.caption.unicode"

local clean = {}

local HOST = [[[a-zA-Z0-9.\-]+[.](?:com|co|ru|net|org|edu|gov|it)[\w/-]*\b/?(?!@)]]
local FILE = "(?:png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4)"
local DASHES = "-\u{58A}\u{5BE}\u{1400}\u{1806}\u{2010}-\u{2015}\u{2E17}\u{2E1A}\u{2E3A}\u{2E3B}"
  .. "\u{2E40}\u{301C}\u{3030}\u{30A0}\u{FE31}\u{FE32}\u{FE58}\u{FE63}\u{FF0D}"

-- {pattern, replacement}, before and after the HTML is removed
local before = {
  { "<person>", "person" }, -- 2
  { [[\b(?:https?:(?:/{1,3}|[a-zA-Z0-9%])|]] .. HOST .. ")", "" }, -- 3
  { [[\b(?:www:(?:/{1,3}|[a-zA-Z0-9%])|]] .. HOST .. ")", "" },
}
local behind = {
  { [[@[\w]+\b]], "" }, -- 5
  { "[\u{31C0}-\u{31FF}\u{3200}-\u{4DFF}\u{4E00}-\u{9FFF}]+", "" }, -- 6
  { "[" .. DASHES .. "]+", "-" }, -- 7
  { "[`\u{B4}\u{AB}\u{BB}\u{201C}\u{201D}\u{A8}]", '"' }, -- 8
  { "[\u{2018}\u{2019}]", "'" },
  { "&quot;?", "" }, -- 9
  { "&amp", "" },
  { [[\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}]], " " }, -- 10
  { [[\d:\d\d\s+$]], "" }, -- 11
  { [[\\n]], " " }, -- 12
  { [[#\d{1,3}\b]], "" }, -- 13
  { [[#\d{5,}\b]], "" },
  { [[\b\d{6,}\b]], "" },
  { [[\S+\.]] .. FILE, "" }, -- 14
  { [=[["']{2,}]=], '"' }, -- 15
  { [[\.{2,}]], " " },
  { "[#\u{AE}\u{2022}\u{A9}\u{2122}&@\u{B7}\u{BA}\u{BD}\u{BE}\u{BF}\u{A1}\u{A7}"
    .. [=[~)(\]\[}{|\\/*]+]=], " " }, -- 16
  { [[\s+\.\s+]], " " }, -- 17
}
local JOINTS = pattern.new "[-_]" -- 18
local words = {
  { [[\b[a-zA-Z]{1,3}\d{3,15}\b]], "" }, -- 20
  { [[\b[a-zA-Z]+\d+[a-zA-Z]+\b]], "" },
  { [[\b\d+[a-zA-Z]+\d+\b]], "" },
  { [[(?:worldwide\s+)?(?:free\s+)?shipping]], "" }, -- 21
  { [[(?:free\s)?download(?:\sfree)?]], "" },
  { [[\bclick\b\s(?:for|on)\s\w+]], "" },
  { [[\b]] .. FILE .. [[(?:\simages?)?]], "" },
  { [[\bpage\s+\d+\b]], "" },
  { [[\b\d*[a-zA-Z]+\d+[a-zA-Z]+\d+[a-zA-Z\d]*\b]], " " }, -- 22
  { "\\b\\d+\\.?\\d*[x\u{445}\u{D7}]\\d+\\.?\\d*\\b", "" }, -- 23
  { [[\b\s+:\s+]], ": " }, -- 24
  { [[(\D[,./])\b]], [[\1 ]] }, -- 25
  { [[\s+]], " " }, -- 26
  { [=[^["']([\w\W]+)["']$]=], [[\1]] }, -- 27
  { "^['_,\\-:;]", "" },
  { "['_,\\-:+]$", "" },
  { [[^\.\S+$]], "" },
}

local function apply(rules, codes)
  for _, rule in ipairs(rules) do
    rule.pattern = rule.pattern or pattern.new(rule[1])
    codes = rule.pattern:replace(codes, rule[2])
  end
  return codes
end

-- decodes %41 and + of URLs
local function unquote(text)
  return (text:gsub("%+", " "):gsub("%%(%x%x)", function(hex)
    return string.char(tonumber(hex, 16))
  end))
end

-- applies all rules once
local function pass(text)
  local codes = unicode.lower(unicode.strip(unicode.codes(unquote(text)))) -- 1
  codes = apply(before, codes)
  codes = apply(behind, unicode.codes(html.text(unicode.text(codes)))) -- 4
  local apart, joints = JOINTS:replace(codes, " ")
  codes = apply(words, unicode.strip(joints > 3 and apart or codes)) -- 19
  return unicode.text(unicode.strip(codes))
end

--- Cleans a caption by all rules. They are applied twice, as in the reference.
---@param text string
---@return string
function clean.caption(text) return pass(pass(text)) end

--- A caption without cleaning: in lower case, without white space at both ends.
---@param text string
---@return string
function clean.plain(text)
  return unicode.text(unicode.strip(unicode.lower(unicode.codes(text))))
end

return clean
