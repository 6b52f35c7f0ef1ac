--- Removes HTML from text: drops tags and comments, and replaces character references. Like
-- Python's parser, it keeps incomplete and unknown tags in text that is not a page.
-- @module moonreel.caption.html
local unicode = require "moonreel.caption.unicode"

local html = {}

-- the end of a tag whose name begins after `at`: quotes after = may contain >; nil: there is no end
local function end_of_tag(text, at)
  while true do
    local i = text:find("[>=]", at)
    if not i then
      return nil
    end
    if text:sub(i, i) == ">" then
      return i
    end
    local quote = text:match("^=%s*([\"'])", i)
    local _, open = text:find("^=%s*", i)
    local close = quote and text:find(quote, open + 2, true)
    if quote and not close then
      return nil
    end
    at = close and close + 1 or i + 1
  end
end

-- elements whose text is not part of the page's text
local silent = { script = true, style = true, template = true, rt = true, rp = true }

-- the last byte of such an element, whose tag at `at` ends at `last`
local function end_of_element(text, at, last)
  local name = text:match("^<(%a[^%s/>]*)", at):lower()
  if not silent[name] or text:sub(last - 1, last - 1) == "/" then
    return last
  end
  local _, close = text:lower():find("</" .. name .. "%s*>", last + 1)
  return close or #text
end

-- the last byte of the markup at a <, and the text in it; nil: it is text, false: it has no end
local function markup(text, at)
  if text:find("^<%a", at) then
    local last = end_of_tag(text, at + 2)
    return last and end_of_element(text, at, last) or false
  elseif text:find("^<!%-%-", at) then
    local _, last = text:find("-->", at + 4, true)
    return last or false
  elseif text:find("^<!%[[cC][dD][aA][tT][aA]%[", at) then
    local inside, stop = text:match("^(.-)%]%s*%]%s*>()", at + 9)
    return stop and stop - 1 or false, inside
  elseif text:find("^<[/!?]", at) then
    return text:find(">", at + 2, true) or false
  end
  return nil
end

-- references below 256 that are not characters mean those of Windows, as pages use them
local windows = table.pack(utf8.codepoint(
  "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8D}Ž\u{8F}\u{90}‘’“”•–—˜™š›œ\u{9D}žŸ", 1, -1))

-- the character of a reference at a &, and its last byte; nil: it is text
local function reference(text, at)
  local number, last = text:match("^&#(%d+)()", at)
  if not number then
    number, last = text:match("^&#[xX](%x+)()", at)
    number = number and "0x" .. number
  end
  -- another character must end it; a number at the end of the text is not a reference
  if number and text:find("^%X", last) then
    local code = math.tointeger(tonumber(number)) or -1
    code = windows[code - 0x7f] or code
    local good = code >= 0 and code < 0x110000 and (code < 0xd800 or code > 0xdfff)
    return utf8.char(good and code or 0xfffd), text:find("^;", last) and last or last - 1
  end
  -- another character must end a name; a name at the end of the text is not a reference
  local name, stop = text:match("^&(%a[%w.%-]*)()", at)
  if not name or stop > #text then
    return nil
  end
  local code = unicode.named(name)
  last = text:sub(stop, stop) == ";" and stop or stop - 1
  return code and utf8.char(code) or "&" .. name, last
end

--- The text of a page.
---@param text string
---@return string
function html.text(text)
  local out, at = {}, 1
  while true do
    local i = text:find("[<&]", at)
    out[#out + 1] = text:sub(at, (i or #text + 1) - 1)
    if not i then
      return table.concat(out)
    end
    local put, last
    if text:sub(i, i) == "<" then
      last, put = markup(text, i)
      put = last and (put or "") or nil
      if last == false then
        -- everything up to the next >, else to the next <, is text
        last = text:find(">", i + 1, true) or (text:find("<", i + 1, true) or i + 1) - 1
      end
    else
      put, last = reference(text, i)
    end
    last = last or i
    out[#out + 1] = put or text:sub(i, last)
    at = last + 1
  end
end

return html
