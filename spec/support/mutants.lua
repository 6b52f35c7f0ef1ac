--- Mutants of a source in C, CUDA or Lua: its text with one change. They come in the order of the
-- text, so that a seed draws the same ones on any machine. Kinds:
--   operator   is replaced by another one, or a sign or a negation is removed
--   constant   a number is one more or one less, true is false
--   condition  is negated
--   operand    is removed with its operator, is one more or one less, or becomes a constant
--   statement  is removed, or an element of a list
-- Comments, strings, preprocessor lines, assertions of C, and code that only nvcc compiles are not
-- changed, because no spec can see them.
local tokens = dofile "spec/support/tokens.lua"

local mutants = {}

local NONE = {}
local COMPARISONS = { c = "< <= > >= == !=", lua = "< <= > >= == ~=" }
-- replacements of binary operators and of other words
local OPERATORS = { ["&&"] = "||", ["||"] = "&&", ["and"] = "or", ["or"] = "and", ["+"] = "-",
  ["-"] = "+", ["*"] = "/", ["/"] = "*", ["//"] = "*", ["%"] = "/", ["<<"] = ">>", [">>"] = "<<",
  ["&"] = "|", ["|"] = "&", ["^"] = "*" }
local WORDS = { ["+="] = "-= =", ["-="] = "+= =", ["*="] = "/= =", ["|="] = "&= =",
  ["&="] = "|= =", ["++"] = "--", ["--"] = "++", ["true"] = "false", ["false"] = "true" }
for word in (COMPARISONS.c .. " ~="):gmatch "%S+" do
  OPERATORS[word] = COMPARISONS
end
local LOGICAL = { ["&&"] = true, ["||"] = true, ["and"] = true, ["or"] = true }
local CHOICE = { ["?"] = true, [":"] = true }
-- tokens before which a whole expression begins, and constants that replace it
local BEFORE = { ["="] = true, [","] = true, ["("] = true, ["["] = true, ["{"] = true,
  ["return"] = true, ["if"] = true, ["elseif"] = true, ["while"] = true, ["until"] = true,
  ["in"] = true }
local VALUES = { c = "0 1", lua = "nil 0 1 true false" }

-- collects the mutants of a text
local Source = {}
Source.__index = Source

-- the text of tokens
function Source:between(from, to)
  return from <= to and self.text:sub(self.list[from].first, self.list[to].last) or ""
end

function Source:add(kind, from, to, new)
  local key = from .. " " .. to .. " " .. new
  if from <= to and not self.seen[key] and new ~= self:between(from, to) then
    self.seen[key] = true
    self.found[#self.found + 1] = { kind = kind, from = from, to = to, new = new,
      first = self.list[from].first, last = self.list[to].last, line = self.list[from].line }
  end
end

function Source:is_single(from, to)
  for k = from, to do
    if self.list[k].level then
      return false
    end
  end
  return true
end

-- the expression of some tokens becomes each of these constants, one more, one less
function Source:replace(from, to, values)
  local only = from == to and self.list[from].kind
  if from > to or only == "text" then
    return
  end
  for value in values:gmatch "%S+" do
    self:add(only == "number" and "constant" or "operand", from, to, value)
  end
  if self.list[to].kind ~= "number" and values:find "0" then
    self:add("operand", from, to, self:between(from, to) .. " + 1")
    self:add("operand", from, to, self:between(from, to) .. " - 1")
  end
end

function Source:negate(from, to)
  local part, kind = self:between(from, to), (self.list[from] or NONE).kind
  if from == to and (kind == "text" or kind == "number") then
    return
  end
  self:add("condition", from, to, (self.language == "c" and "!" or "not ")
    .. (self:is_single(from, to) and part or "(" .. part .. ")"))
end

-- of tokens [first, last] only [from, to] stay; brackets around a single operand are removed too
function Source:keep(first, last, from, to)
  local bracket, before = self.list[first - 1] or NONE, self.list[first - 2] or NONE
  if bracket.word == "(" and bracket.mate == last + 1 and not before.ends
    and not tokens.HEADS[before.word] and self:is_single(from, to) then
    first, last = first - 1, last + 1
  end
  self:add("operand", first, last, self:between(from, to))
end

-- a word by itself
function Source:word(i, t)
  local others = t.level and OPERATORS[t.word] or not t.level and WORDS[t.word] or ""
  for other in (others == COMPARISONS and others[self.language] or others):gmatch "%S+" do
    if other ~= t.word then
      self:add(t.level and "operator" or t.kind == "name" and "constant" or "operator", i, i, other)
    end
  end
  local number = t.kind == "number" and math.tointeger(tonumber((t.word:gsub("[uUlL]+$", ""))))
  if number then
    self:add("constant", i, i, ("%d"):format(number + 1))
    self:add("constant", i, i, ("%d"):format(math.max(number - 1, 0)))
  elseif t.word == "not" or (t.word == "!" or t.word == "-") and not t.level
    and not (self.list[i - 1] or NONE).ends then
    self:add("operator", i, i, "")
  end
end

-- the operands left and right of an operator: the nearest, and all of the same level
function Source:operands(i, t)
  local from, to = tokens.reach(self.list, i, -1, t.level), tokens.reach(self.list, i, 1, t.level)
  local near = tokens.reach(self.list, i, -1, t.level + 1)
  self:keep(from, to, from, i - 1)
  self:keep(from, to, i + 1, to)
  local values = LOGICAL[t.word] and self.language == "lua" and "true false nil" or "0 1"
  for _, part in ipairs { { from, i - 1 }, { near, i - 1 }, { i + 1, to } } do
    self:replace(part[1], part[2], values)
    if LOGICAL[t.word] then
      self:negate(part[1], part[2])
    end
  end
end

-- condition ? one : other
function Source:choice(i)
  local from, colon = tokens.reach(self.list, i, -1), tokens.reach(self.list, i, 1) + 1
  local to = tokens.reach(self.list, colon, 1, nil, CHOICE)
  self:keep(from, to, i + 1, colon - 1)
  self:keep(from, to, colon + 1, to)
  self:negate(from, i - 1)
end

-- the expression after a token, unless it is a name that gets a value
function Source:expression(i, t)
  local to = tokens.reach(self.list, i, 1)
  local after = (self.list[to + 1] or NONE).word
  if t.opens and t.names or t.inside.names or after == "=" or after == "in" then
    return
  end
  self:replace(i + 1, to, VALUES[self.language])
  local head = self.language == "c" and (self.list[i - 1] or NONE).word or t.word
  if tokens.HEADS[head] or head == "elseif" or head == "until" then
    self:negate(i + 1, to)
  end
end

-- a call becomes one of its arguments; an element of a list is removed, and an argument in Lua
function Source:elements(i, mate, called)
  local first, from = tokens.reach(self.list, i, -1, 99), i + 1
  while called and not self.list[first].begins and not self.list[first].opens do
    first = first + 1
  end
  while from < mate do
    local to = from
    while to < mate and self.list[to].word ~= "," do
      to = (self.list[to].opens and self.list[to].mate or to) + 1
    end
    if called then
      self:add("operand", first, mate, self:between(from, to - 1))
    end
    if not called or self.language == "lua" then
      local back = to == mate and self.list[from - 1].word == "," and 1 or 0
      self:add("statement", from - back, to < mate and to or to - 1, "")
    end
    from = to + 1
  end
end

--- All mutants of a text.
---@param text string
---@param language string  "c" or "lua"
---@return table[]  {kind, from, to: indices of tokens, first, last: the replaced bytes, new: the
---   replacement, line}
function mutants.of(text, language)
  local self = setmetatable({ text = text, language = language, list = tokens.of(text, language),
    found = {}, seen = {} }, Source)
  for i, t in ipairs(self.list) do
    local is_declared = language == "c" and tokens.declares(self.list, i + 1)
    if t.kind ~= "text" then
      self:word(i, t)
      if t.level then
        self:operands(i, t)
      elseif language == "c" and t.word == "?" then
        self:choice(i)
      elseif BEFORE[t.word] and not t.block and not is_declared then
        self:expression(i, t)
      end
      local called = t.word == "(" and not t.names and (self.list[i - 1] or NONE).ends
      if (called or t.word == "{" and not t.block) and not is_declared then
        self:elements(i, t.mate, called)
      end
      local last, new = tokens.statement(self.list, i, language)
      if last then
        self:add("statement", i, last, new)
      end
    end
  end
  return self.found
end

--- Random elements of a list, each once, and each kind as often: the same for the same seed.
---@param list table[]  of mutants.of
---@param seed integer
---@return fun(): table|nil  the next one
function mutants.draws(list, seed)
  math.randomseed(seed, 0)
  local kinds, by_kind = {}, {}
  for _, mutant in ipairs(list) do
    if not by_kind[mutant.kind] then
      by_kind[mutant.kind] = {}
      kinds[#kinds + 1] = by_kind[mutant.kind]
    end
    table.insert(by_kind[mutant.kind], mutant)
  end
  return function()
    if #kinds == 0 then
      return nil
    end
    local k = math.random(#kinds)
    local left = kinds[k]
    local i = math.random(#left)
    local mutant = left[i]
    left[i] = left[#left]
    left[#left] = nil
    if #left == 0 then
      table.remove(kinds, k)
    end
    return mutant
  end
end

-- spellings in C of the same number
local SAME = { ["false"] = "0", NULL = "0", MR_OK = "0", ["true"] = "1" }

--- The mutant that equals another change of a text, except for spaces and comments.
---@param text string
---@param changed string   the text with that change
---@param language string  "c" or "lua"
---@return table|nil       one of mutants.of
function mutants.same(text, changed, language)
  local old, new = tokens.split(text, language), tokens.split(changed, language)
  local function word(t)
    return language == "c" and SAME[t.word] or t.word
  end
  -- the number of equal tokens at the beginning, and at the end
  local most, head, tail = math.min(#old, #new), 0, 0
  while head < most and word(old[head + 1]) == word(new[head + 1]) do
    head = head + 1
  end
  while tail < most and word(old[#old - tail]) == word(new[#new - tail]) do
    tail = tail + 1
  end
  for _, mutant in ipairs(mutants.of(text, language)) do
    local before, after = mutant.from - 1, #old - mutant.to
    if before <= head and after <= tail and before + after <= #new then
      local made = tokens.split(mutant.new, language)
      local is_same = #made == #new - before - after
      for k, t in ipairs(made) do
        is_same = is_same and word(t) == word(new[before + k])
      end
      if is_same then
        return mutant
      end
    end
  end
end

return mutants
