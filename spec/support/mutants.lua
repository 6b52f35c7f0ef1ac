--- Random breakages of a source file: one operator, number, condition or statement is changed. All
-- mutants of a text come in the order of the text, so a seed picks the same ones anywhere.
local mutants = {}

-- what stands for what; a `-` or `&` that has one operand alone is left
local C = { ["<"] = "<=", ["<="] = "<", [">"] = ">=", [">="] = ">", ["=="] = "!=", ["!="] = "==",
  ["&&"] = "||", ["||"] = "&&", ["+"] = "-", ["-"] = "+", ["/"] = "*", ["%"] = "/", ["<<"] = ">>",
  [">>"] = "<<", ["+="] = "-=", ["-="] = "+=", ["|="] = "&=", ["&="] = "|=" }
local LUA = { ["<"] = "<=", ["<="] = "<", [">"] = ">=", [">="] = ">", ["=="] = "~=", ["~="] = "==",
  ["and"] = "or", ["or"] = "and", ["not"] = "", ["+"] = "-", ["-"] = "+", ["*"] = "/", ["//"] = "*",
  ["%"] = "//", ["<<"] = ">>", [">>"] = "<<" }

-- tokens that are passed over whole: comments, texts, lines of the preprocessor
local SKIPPED = {
  c = { "^//[^\n]*", "^/%*.-%*/", '^"[^"\\\n]*"', '^"[^\n]-[^\\]"', "^'\\?[^\n]-'",
    "^#[^\n]*\\\n[^\n]*", "^#[^\n]*" },
  lua = { "^%-%-%[(=*)%[.-%]%1%]", "^%-%-[^\n]*", "^%[(=*)%[.-%]%1%]", '^"[^"\\\n]*"',
    '^"[^\n]-[^\\]"', "^'[^'\n]*'" },
}
local THREE = { ["..."] = true, ["<<="] = true, [">>="] = true }
local TWO = {}
for pair in ("<= >= == != ~= && || << >> += -= *= /= |= &= -> ++ -- // .. ::"):gmatch "%S+" do
  TWO[pair] = true
end

local function skipped(text, at, language)
  for _, pattern in ipairs(SKIPPED[language]) do
    local _, last = text:find(pattern, at)
    if last then
      return last
    end
  end
end

-- the token at a place: its kind ("name", "number", "sign") and its last byte
local function token(text, at)
  for kind, pattern in pairs { name = "^[%a_][%w_]*", number = "^%d[%w_.]*" } do
    local _, last = text:find(pattern, at)
    if last then
      return kind, last
    end
  end
  return "sign", at + (THREE[text:sub(at, at + 2)] and 2 or TWO[text:sub(at, at + 1)] and 1 or 0)
end

-- statements that stand alone on a line
local STATEMENT = {
  c = "^[%a_%*][%w_>%.%-%[%]%*]* ?[%(%+%-|&=][^{}]*;$",
  lua = "^[%a_][%w_%.%[%]\":]*[ %(][^{}]*$",
}
local KEPT = { c = { "^return%f[%W]", "^static%f[%W]", "^else%f[%W]", "^[%w_]+ [%w_%*]+ =" },
  lua = { "^local%f[%W]", "^return%f[%W]", "^if%f[%W]", "^for%f[%W]", "^while%f[%W]",
    "^function%f[%W]", "^else", "^until", "[,%(=]$", "%f[%a]then$", "%f[%a]do$" } }

-- add what a line as a whole can become: without its statement, or under the opposite condition
local function of_line(add, line, first, language)
  local lead, body = line:match "^(%s*)(.-)%s*$"
  local from, to = first + #lead, first + #lead + #body - 1
  local start, condition, rest
  if language == "c" then
    start, condition, rest = body:match "^(.*%f[%w]if )(%b())(.*)$"
  else
    start, condition, rest = body:match "^(e?l?s?e?if )(.+)( then)$"
  end
  if condition then
    add(from, to, start .. (language == "c" and "(!" .. condition .. ")"
      or "not (" .. condition .. ")") .. rest)
  end
  if #lead == 0 or not body:find(STATEMENT[language])
    or select(2, body:gsub("[%(%[]", "")) ~= select(2, body:gsub("[%)%]]", "")) then
    return
  end
  for _, pattern in ipairs(KEPT[language]) do
    if body:find(pattern) then
      return
    end
  end
  add(from, to, language == "c" and ";" or "")
end

--- Every mutant of a text.
---@param text string      a source of C or Lua
---@param language string  "c" or "lua"
---@return table[]  {first, last: the bytes that go, new: what stands there instead, line: its
---   number, was, now: the line before and after}
function mutants.of(text, language)
  local list, line_number, line_first = {}, 1, 1
  local function add(first, last, new)
    local line_last = (text:find("\n", line_first, true) or #text + 1) - 1
    list[#list + 1] = { first = first, last = last, new = new, line = line_number,
      was = text:sub(line_first, line_last),
      now = text:sub(line_first, first - 1) .. new .. text:sub(last + 1, line_last) }
  end
  local signs, at, operand = language == "c" and C or LUA, 1, false
  of_line(add, text:match "^[^\n]*", 1, language)
  while at <= #text do
    local byte = text:sub(at, at)
    local last = not byte:find "%s" and skipped(text, at, language)
    if byte == "\n" then
      line_number, line_first, last = line_number + 1, at + 1, at
      of_line(add, text:match("^[^\n]*", at + 1), at + 1, language)
    elseif byte:find "%s" then
      last = at
    elseif last then
      operand = byte == '"' or byte == "["
      line_number = line_number + select(2, text:sub(at, last):gsub("\n", ""))
      line_first = text:sub(at, last):find "\n" and last - #text:sub(at, last):match "[^\n]*$" + 1
        or line_first
    else
      local kind
      kind, last = token(text, at)
      local word = text:sub(at, last)
      local binary = operand and text:sub(at - 1, at - 1):find "%s"
      if kind == "number" and math.tointeger(tonumber(word)) then
        add(at, last, tostring(math.tointeger(word) + 1))
      elseif signs[word] and (binary or word == "not") then
        add(at, last, signs[word])
      end
      operand = kind == "number" or word:find "^[%)%]]" or kind == "name" and not signs[word]
    end
    at = last + 1
  end
  return list
end

--- Some of a list, each at most once: the same for the same seed.
---@param list table[]
---@param count integer
---@param seed integer
---@return table[]
function mutants.pick(list, count, seed)
  math.randomseed(seed, 0)
  local left, picked = table.move(list, 1, #list, 1, {}), {}
  while #picked < count and #left > 0 do
    picked[#picked + 1] = table.remove(left, math.random(#left))
  end
  return picked
end

return mutants
