--- Texts as lists of characters. Character classes and lower case are those of Python, for which
-- the rules for captions were written.
-- @module moonreel.caption.unicode
local tables = require "moonreel.caption.unicode_tables"

local unicode = {}

local REPLACEMENT = 0xfffd

-- converts a list of ranges to sorted first and last codes
local function ranges_of(text)
  local firsts, lasts, at = {}, {}, 0
  for first, more in text:gmatch("(%x+)%-?(%x*)") do
    at = at + tonumber(first, 16)
    firsts[#firsts + 1] = at
    at = at + (tonumber(more, 16) or 0)
    lasts[#lasts + 1] = at
  end
  return firsts, lasts
end

-- is a code in one of the ranges? ASCII codes use a Lua pattern
local function class(text, ascii)
  local firsts, lasts = ranges_of(text)
  local low = {}
  for c = 0, 127 do
    low[c] = string.char(c):find(ascii) ~= nil
  end
  return function(c)
    if c < 128 then
      return low[c]
    end
    local lo, hi = 1, #firsts + 1
    while lo < hi do
      local mid = (lo + hi) // 2
      if firsts[mid] <= c then
        lo = mid + 1
      else
        hi = mid
      end
    end
    return lo > 1 and c <= lasts[lo - 1]
  end
end

--- Letters and digits of all scripts, and _.
---@type fun(code: integer): boolean
unicode.is_word = class(tables.word, "[%w_]")
--- Decimal digits of all scripts.
---@type fun(code: integer): boolean
unicode.is_digit = class(tables.digit, "%d")
--- White space.
---@type fun(code: integer): boolean
unicode.is_space = class(tables.space, "[%s\28-\31]")

local small = {}
for first, last, step, distance in tables.small:gmatch("(%d+)%-(%d+)%-(%d+)/(%-?%d+)") do
  for c = math.tointeger(first), math.tointeger(last), math.tointeger(step) do
    small[c] = c + math.tointeger(distance)
  end
end

local names = {}
for name, code in tables.names:gmatch("(%w+)=(%d+)") do
  names[name] = math.tointeger(code)
end

--- The character with this name in HTML; nil: there is no such name.
---@param name string
---@return integer|nil
function unicode.named(name) return names[name] end

--- The codes of a text; a byte that is not UTF-8 becomes U+FFFD.
---@param text string
---@return integer[]
function unicode.codes(text)
  local out, at = {}, 1
  while at <= #text do
    local _, bad = utf8.len(text, at)
    for _, code in utf8.codes(text:sub(at, (bad or #text + 1) - 1)) do
      out[#out + 1] = code
    end
    if not bad then
      break
    end
    out[#out + 1] = REPLACEMENT
    at = bad + 1
  end
  return out
end

--- The text of a list of codes.
---@param codes integer[]
---@return string
function unicode.text(codes)
  local parts = {}
  for at = 1, #codes, 200 do
    parts[#parts + 1] = utf8.char(table.unpack(codes, at, math.min(at + 199, #codes)))
  end
  return table.concat(parts)
end

-- a sigma at the end of a word, after another letter, has a different form
local SIGMA, FINAL = 0x3a3, 0x3c2
local DOTTED_I = 0x130

local function is_letter(c) return c ~= nil and unicode.is_word(c) and not unicode.is_digit(c) end

--- Converts to lower case.
---@param codes integer[]
---@return integer[]
function unicode.lower(codes)
  local out = {}
  for i, c in ipairs(codes) do
    if c >= 65 and c <= 90 then
      c = c + 32
    elseif c == SIGMA and is_letter(codes[i - 1]) and not is_letter(codes[i + 1]) then
      c = FINAL
    elseif c == DOTTED_I then
      out[#out + 1] = 0x69
      c = 0x307
    else
      c = small[c] or c
    end
    out[#out + 1] = c
  end
  return out
end

--- Removes white space at both ends.
---@param codes integer[]
---@return integer[]
function unicode.strip(codes)
  local first, last = 1, #codes
  while first <= last and unicode.is_space(codes[first]) do
    first = first + 1
  end
  while last >= first and unicode.is_space(codes[last]) do
    last = last - 1
  end
  return table.move(codes, first, last, 1, {})
end

return unicode
