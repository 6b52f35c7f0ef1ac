--- Words of Lua source text, with their places. Knows no grammar.
-- @module moonreel.recipe.lexer
local lexer = {}

-- the end of a long bracket that opens at `from`, or nil when none opens there
local function long_bracket(text, from)
  local level = text:match("^%[(=*)%[", from)
  if not level then return nil end
  local _, stop = text:find("]" .. level .. "]", from, true)
  return stop or #text
end

-- the end of a quoted text that opens at `from`
local function quoted(text, from)
  local quote = text:sub(from, from)
  local at = from + 1
  while true do
    local hit = text:find("[\\\n" .. quote .. "]", at)
    if not hit then return #text end
    local c = text:sub(hit, hit)
    if c == quote then return hit end
    if c == "\n" then return hit - 1 end
    -- \z and an escaped line end swallow line ends, the rest one character
    if text:sub(hit + 1, hit + 1) == "z" then
      at = text:find("%S", hit + 2) or #text + 1
    else
      at = hit + 2
    end
  end
end

--- Split source text into words. Comments and blanks are left out.
---@param text string
---@return table[] words  {kind = name|number|text|mark, text, from, to, line}
function lexer.words(text)
  local words, at, line = {}, 1, 1
  local function add(kind, from, to)
    local piece = text:sub(from, to)
    words[#words + 1] = { kind = kind, text = piece, from = from, to = to, line = line }
    if kind == "text" then
      for _ in piece:gmatch("\n") do line = line + 1 end
    end
    at = to + 1
  end
  -- a first line for the shell is no Lua
  if text:sub(1, 1) == "#" then at = text:find("\n", 1, true) or #text + 1 end
  while at <= #text do
    local c = text:sub(at, at)
    if c == "\n" then
      line, at = line + 1, at + 1
    elseif c:find("%s") then
      at = at + 1
    elseif text:find("^%-%-", at) then
      local stop = long_bracket(text, at + 2)
      stop = stop or (text:find("\n", at, true) or #text + 1) - 1
      for _ in text:sub(at, stop):gmatch("\n") do line = line + 1 end
      at = stop + 1
    elseif c:find("[%a_]") then
      add("name", at, select(2, text:find("^[%w_]+", at)))
    elseif text:find("^%.?%d", at) then
      -- digits, hex, exponents with their sign
      local stop = select(2, text:find("^%.?%d[%w_%.]*", at))
      while text:find("^[eEpP][+-]%d", stop) do stop = select(2, text:find("^[+-][%w_%.]*", stop + 1)) end
      add("number", at, stop)
    elseif c == '"' or c == "'" then
      add("text", at, quoted(text, at))
    elseif long_bracket(text, at) then
      add("text", at, long_bracket(text, at))
    else
      local mark = text:match("^%.%.%.", at) or text:match("^[=~<>]=", at) or text:match("^%.%.", at)
        or text:match("^//", at) or text:match("^<<", at) or text:match("^>>", at) or text:match("^::", at) or c
      add("mark", at, at + #mark - 1)
    end
  end
  return words
end

return lexer
