--- Splits Lua source text into tokens with their positions. Knows no grammar.
-- @module moonreel.recipe.lexer
local lexer = {}

-- the end of a long bracket that opens at `from`; nil if no long bracket opens there
local function long_bracket(text, from)
  local level = text:match("^%[(=*)%[", from)
  if not level then
    return nil
  end
  local _, stop = text:find("]" .. level .. "]", from, true)
  return stop or #text
end

-- the end of a quoted text that opens at `from`
local function quoted(text, from)
  local quote = text:sub(from, from)
  local at = from + 1
  while true do
    local hit = text:find("[\\\n" .. quote .. "]", at)
    if not hit then
      return #text
    end
    local c = text:sub(hit, hit)
    if c == quote then
      return hit
    end
    if c == "\n" then
      return hit - 1
    end
    -- \z and an escaped line end skip line ends; others skip one character
    if text:sub(hit + 1, hit + 1) == "z" then
      at = text:find("%S", hit + 2) or #text + 1
    else
      at = hit + 2
    end
  end
end

-- what a word that begins with this character may be; any other character is a mark by itself
local begins = {}
for byte = 0, 127 do
  local c = string.char(byte)
  begins[c] = c:find("[%a_]") and "name" or c:find("%d") and "number" or c:find("[\"']")
    and "quoted" or c:find("[%[%-.=~<>/:]") and "long"
    or nil
end

-- marks of several characters, the longer first
local long_marks = { "^%.%.%.", "^%.%.", "^[=~<>]=", "^//", "^<<", "^>>", "^::" }

local function mark_end(text, from)
  for _, pattern in ipairs(long_marks) do
    local _, to = text:find(pattern, from)
    if to then
      return to
    end
  end
  return from
end

local find, sub = string.find, string.sub

--- Splits source text into words. Comments and blanks are left out.
---@param text string
---@return table[] words  {kind = name|number|text|mark, text, from, to, line}
function lexer.words(text)
  local words, n, at, line = {}, 0, 1, 1
  local function count_lines(from, to)
    for _ in text:sub(from, to):gmatch("\n") do
      line = line + 1
    end
  end
  -- a first line for the shell is not Lua
  if sub(text, 1, 1) == "#" then
    at = find(text, "\n", 1, true) or #text + 1
  end
  while true do
    at = find(text, "[^ \t\r\v\f]", at)
    if not at then
      return words
    end
    local word = sub(text, at, at)
    local what, kind, to = begins[word], "mark", at
    if word == "\n" then
      kind, line = nil, line + 1
    elseif what == "name" then
      kind, to = "name", select(2, find(text, "^[%w_]+", at))
    elseif what == "number" or what == "long" and find(text, "^%.%d", at) then
      -- digits, hex, exponents with their sign
      kind, to = "number", select(2, find(text, "^%.?%d[%w_%.]*", at))
      while find(text, "^[eEpP][+-]%d", to) do
        to = select(2, find(text, "^[+-][%w_%.]*", to + 1))
      end
    elseif what == "quoted" then
      kind, to = "text", quoted(text, at)
    elseif what == "long" and find(text, "^%-%-", at) then
      kind, to = nil, long_bracket(text, at + 2) or (find(text, "\n", at, true) or #text + 1) - 1
      count_lines(at, to)
    elseif what == "long" then
      to = long_bracket(text, at)
      if to then
        kind = "text"
      else
        to = mark_end(text, at)
      end
    end
    if kind then
      n = n + 1
      words[n] = { kind = kind, text = to == at and word or sub(text, at, to),
        from = at, to = to, line = line }
      if kind == "text" then
        count_lines(at, to)
      end
    end
    at = to + 1
  end
end

return lexer
