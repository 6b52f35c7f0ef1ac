--- Tokens of sources in C, CUDA or Lua, with their context, for mutants.lua, and C without comments
-- and strings, for sources.lua. It relies on the formatting of this project: binary operators have
-- spaces around them, unary ones have none.
local tokens = {}

local function set(words)
  local list = {}
  for word in words:gmatch "%S+" do
    list[word] = true
  end
  return list
end

local LANGUAGES = { lua = "lua", c = "c", h = "c", cpp = "c", cu = "c", cuh = "c" }

--- The language of a file.
---@param path string
---@return string|nil  "c" or "lua"
function tokens.language(path)
  return LANGUAGES[path:match "%.(%w+)$"]
end

-- ---- tokens in order ----

local COMMENTS = { "^//[^\n]*", "^/%*.-%*/" }
local OTHERS = { { "name", { "^[%a_][%w_]*" } }, { "number", { "^%.?%d[%w_.]*" } },
  { "sign", { "^%.%.%.", "^<<=", "^>>=", "^[<>=!~]=", "^[-+*/%%|&^]=", "^&&", "^||", "^<<", "^>>",
    "^%->", "^%+%+", "^%-%-", "^//", "^%.%.", "^::", "^." } } }
-- kinds of text outside strings, those without a name first: spaces, comments, code that only nvcc
-- compiles, preprocessor lines, assertions. In plain C a quote may separate digits.
local KINDS = {
  c = { { nil, { "^%s+", COMMENTS[1], COMMENTS[2], "^#ifdef __CUDACC__\n.-\n#e[^\n]*",
    "^#if defined%(__CUDACC__%).-\n#e[^\n]*", "^#[^\n]*", "^assert%b();",
    "^static_assert%b();", "^_Static_assert%b();" } }, table.unpack(OTHERS) },
  lua = { { nil, { "^%s+", "^%-%-%[(=*)%[.-%]%1%]", "^%-%-[^\n]*" } }, table.unpack(OTHERS) },
  plain = { { nil, COMMENTS }, { "plain", { "^[^\"'/%d]+", "^%d[%w_']*", "^/" } } },
}

-- the last byte of the string, or long string of Lua, that begins at a position
local function quoted(text, at, language)
  local quote, last = text:match("^[\"']", at), at
  while quote do
    last = text:find("[\\" .. quote .. "\n]", last + 1)
    if not last or text:byte(last) ~= 92 then
      return last
    end
    last = last + 1
  end
  return language == "lua" and select(2, text:find("^%[(=*)%[.-%]%1%]", at)) or nil
end

-- the kind of the text at a position, nil if it is skipped, and its last byte
local function lexeme(text, at, language)
  local last = quoted(text, at, language)
  if last then
    return "text", last
  end
  for _, kind in ipairs(KINDS[language]) do
    for _, pattern in ipairs(kind[2]) do
      last = select(2, text:find(pattern, at))
      if last then
        return kind[1], last
      end
    end
  end
end

--- The tokens of a text: {word, kind = "name", "number", "text" or "sign", first, last: its bytes,
-- line}.
---@param text string
---@param language string  "c" or "lua"
---@return table[]
function tokens.split(text, language)
  local list, at, line = {}, 1, 1
  while at <= #text do
    local kind, last = lexeme(text, at, language)
    -- a preprocessor line may continue
    while not kind and text:find("^#", at) and text:find("^\\\n", last) do
      last = text:find("\n", last + 2, true) - 1
    end
    local word = text:sub(at, last)
    if kind then
      list[#list + 1] = { word = word, kind = kind, first = at, last = last, line = line }
    end
    line, at = line + select(2, word:gsub("\n", "")), last + 1
  end
  return list
end

--- C whose strings are empty and whose comments are spaces.
---@param text string
---@return string
function tokens.bare(text)
  local out, at = {}, 1
  while at <= #text do
    local kind, last = lexeme(text, at, "plain")
    out[#out + 1] = kind == "text" and '""' or kind and text:sub(at, last) or " "
    at = last + 1
  end
  return table.concat(out)
end

-- ---- relations between tokens ----

local NONE = {}
-- binary operators, the loosest first
local LEVELS = {
  c = { "||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %" },
  lua = { "or", "and", "== ~= < > <= >=", "|", "~", "&", "<< >>", "..", "+ -", "* / // %", "^" },
}
-- tokens that end an expression
local ASSIGNED = ", = += -= *= /= %= |= &= ^= <<= >>= "
local STOPS = {
  c = set(ASSIGNED .. "? : ; return case goto else do if while for switch break continue"),
  lua = set ", = ; if then else elseif while do for in until local return repeat break goto",
}
local OPENS = { c = set "( [ {", lua = set "( [ { function if do repeat" }
local CLOSES = { c = set ") ] }", lua = set ") ] } end until" }

--- The tokens of a text, which have besides: level (of an operator of two operands), stop (it ends
-- an expression), begins and ends (an operand can begin and end with it), opens, closes, mate
-- (place of the other bracket), inside (the bracket around it, an empty table outside of brackets),
-- block (it is a bracket around statements), names (it is a bracket around names of arguments, in
-- Lua), apart (a statement of Lua
-- begins that no sign parts from the one before).
---@param text string
---@param language string  "c" or "lua"
---@return table[]
function tokens.of(text, language)
  local list, levels, open = tokens.split(text, language), {}, {}
  for level, words in ipairs(LEVELS[language]) do
    for word in words:gmatch "%S+" do
      levels[word] = level
    end
  end
  for i, t in ipairs(list) do
    local before, sign = list[i - 1] or NONE, t.kind ~= "text"
    t.opens, t.closes = sign and OPENS[language][t.word], sign and CLOSES[language][t.word]
    t.stop = sign and STOPS[language][t.word]
    t.level = sign and before.ends and text:find("^%s", before.last + 1)
      and text:find("^%s", t.last + 1) and levels[t.word] or nil
    t.begins = not t.stop and not t.level and t.kind ~= "sign" and t.word ~= "end"
    t.ends = t.begins and t.word ~= "not" and t.word ~= "function" or t.closes and not t.stop
    t.apart = language == "lua" and before.ends and t.begins and sign
    if t.closes and #open > 0 then
      t.mate = table.remove(open)
      list[t.mate].mate = i
    end
    t.names = before.word == "function" or before.names and not before.opens
    t.inside = list[open[#open]] or {}
    t.inside.block = t.inside.block or t.word == ";"
    if t.opens then
      open[#open + 1] = i
    end
  end
  return list
end

--- The last token of the expression next to a token.
---@param list table[]     of tokens.of
---@param i integer        the token
---@param step integer     1: after it, -1: before it
---@param level? integer   operators as loose as this end the expression; nil: none
---@param through? table   words that do not end it: {[","] = true}
---@return integer         i if there is none
function tokens.reach(list, i, step, level, through)
  local k = i + step
  while true do
    local t = list[k]
    if not t or t.stop and not (through or NONE)[t.word]
      or (step > 0 and t.closes or step < 0 and t.opens)
      or level and t.level and (t.level < level or step > 0 and t.level == level)
      or k ~= i + step and list[step > 0 and k or k + 1].apart then
      return k - step
    end
    k = ((t.opens or t.closes) and t.mate or k) + step
  end
end

-- ---- statements ----

--- Words before a condition in brackets.
tokens.HEADS = set "if for while switch constexpr"
local WHOLE = { c = set(ASSIGNED .. "? : return break continue"), lua = set ", =" }
-- words other than a name with which a statement of C begins, and tokens before them
local FIRST, ENDED = set "if for while switch else return break continue", set "; { }"
-- tokens before the name with which a statement of Lua begins
local LEADS = set "then do else repeat end ;"

--- Does a declaration of C begin at a token?
---@param list table[]
---@param i integer
---@return boolean
function tokens.declares(list, i)
  local t, second, third = list[i] or NONE, list[i + 1] or NONE, list[i + 2] or NONE
  return t.begins and (second.begins
    or second.word == "*" and not second.level and (third.begins or third.word == "*"))
end

-- is it the body of an `if` or the like?
local function is_body(list, i)
  local before = list[i - 1] or NONE
  return before.word == "else" or before.word == "do"
    or before.word == ")" and before.mate and tokens.HEADS[(list[before.mate - 1] or NONE).word]
end

-- the last token of the statement of C at a token
local function c_end(list, i)
  local word = list[i].word
  if word == "{" then
    return list[i].mate
  elseif not tokens.HEADS[word] and word ~= "else" then
    return tokens.reach(list, i - 1, 1, nil, WHOLE.c) + 1
  end
  while word ~= "else" and list[i].word ~= "(" do
    i = i + 1
  end
  local last = c_end(list, (list[i].mate or i) + 1)
  return (list[last + 1] or NONE).word == "else" and c_end(list, last + 1) or last
end

local STATEMENT = {}

function STATEMENT.c(list, i)
  local t, body = list[i], is_body(list, i)
  if t.inside.block and t.inside.word == "{" and not t.opens and not t.closes
    and not tokens.declares(list, i) and (not t.stop or FIRST[t.word])
    and (body or t.word == "else" or ENDED[(list[i - 1] or NONE).word]) then
    local last = c_end(list, i)
    -- a function of C has to return a value
    local after = list[last + 1] or NONE
    if t.word ~= "return" or after.word ~= "}" or is_body(list, after.mate) then
      return last, body and ";" or ""
    end
  end
end

function STATEMENT.lua(list, i)
  local t, k = list[i], i
  if t.kind ~= "name" or not (tokens.HEADS[t.word] or t.word == "return" or t.word == "break"
    or t.word ~= "function" and (t.apart or t.begins and (i == 1 or LEADS[list[i - 1].word]))) then
    return nil
  end
  while (t.word == "for" or t.word == "while") and list[k].word ~= "do" do
    k = k + 1
  end
  return list[k].opens and list[k].mate or tokens.reach(list, i, 1, nil, WHOLE.lua), ""
end

--- The statement that begins at a token and can be removed.
---@param list table[]
---@param i integer
---@param language string
---@return integer|nil last  its last token; nil if none begins
---@return string|nil new    its replacement
function tokens.statement(list, i, language)
  return STATEMENT[language](list, i)
end

return tokens
