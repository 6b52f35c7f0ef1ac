--- Regular expressions over lists of characters, as far as the rules for captions need them: Lua's
-- patterns have no alternatives, word boundaries or classes of all scripts.
--
-- Supported: characters, classes [a-z], [^...], \b \d \D \s \S \w \n and escaped characters, groups
-- (...) and (?:...), alternatives, (?!...), ^, $, and ? * + {m,n} after one character; after a
-- group only ?. Matching is greedy, with backtracking.
-- @module moonreel.caption.pattern
local base = require "moonreel.core.base"
local unicode = require "moonreel.caption.unicode"

local pattern = {}

local function refuse(p, what)
  base.raise("MR_E_INTERNAL", ("pattern '%s': %s at %d"):format(p.source, what, p.at))
end

-- ---- reading: a pattern becomes a tree of nodes

local alternatives

local classes = {
  d = unicode.is_digit, D = function(c) return not unicode.is_digit(c) end,
  s = unicode.is_space, S = function(c) return not unicode.is_space(c) end,
  w = unicode.is_word, W = function(c) return not unicode.is_word(c) end,
}

local function one(code) return function(c) return c == code end end

-- a test for the character after a backslash
local function escaped(p)
  local letter = utf8.char(p.codes[p.at + 1])
  p.at = p.at + 2
  return classes[letter] or one(letter == "n" and 10 or utf8.codepoint(letter)),
    not classes[letter] and utf8.codepoint(letter)
end

local function peek(p, text) return p.codes[p.at] == utf8.codepoint(text) end

-- the inside of [...] after its bracket
local function set(p)
  local tests, singles, ranges = {}, {}, {}
  local negated = peek(p, "^")
  p.at = p.at + (negated and 1 or 0)
  while not peek(p, "]") do
    local code = p.codes[p.at]
    if not code then
      refuse(p, "no ]")
    end
    if code == 92 then
      local test
      test, code = escaped(p)
      tests[#tests + 1] = not code and test or nil
    else
      p.at = p.at + 1
    end
    if code and peek(p, "-") and p.codes[p.at + 1] ~= 93 then
      ranges[#ranges + 1] = { code, p.codes[p.at + 1] }
      p.at = p.at + 2
    elseif code then
      singles[code] = true
    end
  end
  p.at = p.at + 1
  return function(c)
    local found = singles[c] or false
    for _, r in ipairs(ranges) do
      found = found or c >= r[1] and c <= r[2]
    end
    for _, test in ipairs(tests) do
      found = found or test(c)
    end
    return found ~= negated
  end
end

-- the inside of a group, and its bracket
local function inside(p, kind)
  local node = { kind = kind, alternatives(p) }
  if not peek(p, ")") then
    refuse(p, "no )")
  end
  p.at = p.at + 1
  return node
end

local function group(p)
  for mark, kind in pairs { ["?:"] = "group", ["?!"] = "not_ahead" } do
    if p.codes[p.at] == mark:byte(1) and p.codes[p.at + 1] == mark:byte(2) then
      p.at = p.at + 2
      return inside(p, kind)
    end
  end
  p.groups = p.groups + 1
  local number = p.groups
  local node = inside(p, "capture")
  node.number = number
  return node
end

local function atom(p)
  local c = p.codes[p.at]
  if c == 92 and p.codes[p.at + 1] == 98 then
    p.at = p.at + 2
    return { kind = "edge" }
  elseif c == 92 then
    return { kind = "one", test = (escaped(p)) }
  end
  p.at = p.at + 1
  if c == 91 then
    return { kind = "one", test = set(p) }
  elseif c == 40 then
    return group(p)
  elseif c == 94 then
    return { kind = "first" }
  elseif c == 36 then
    return { kind = "last" }
  end
  return { kind = "one", test = one(c) }
end

local counts = { [42] = { 0, math.huge }, [43] = { 1, math.huge }, [63] = { 0, 1 } }

-- an atom and its repetition
local function repeated(p)
  local node = atom(p)
  local count = counts[p.codes[p.at]]
  if count then
    p.at = p.at + 1
  elseif peek(p, "{") then
    local text, close = "", p.at
    while p.codes[close] and p.codes[close] ~= 125 do
      close = close + 1
      text = text .. utf8.char(p.codes[close] or 0)
    end
    local least, most = text:match("^(%d+),(%d*)}$")
    if not least then
      refuse(p, "expected {m,n}")
    end
    count = { math.tointeger(least), math.tointeger(most) or math.huge }
    p.at = close + 1
  end
  if count and node.kind ~= "one" and count[2] ~= 1 then
    refuse(p, "a group can only be followed by ?")
  end
  return count and { kind = "repeat", node, least = count[1], most = count[2] } or node
end

function alternatives(p)
  local list, run = { kind = "any" }, { kind = "row" }
  list[1] = run
  while p.codes[p.at] and not peek(p, ")") do
    if peek(p, "|") then
      run = { kind = "row" }
      list[#list + 1] = run
      p.at = p.at + 1
    else
      run[#run + 1] = repeated(p)
    end
  end
  return list
end

-- ---- matching: a node and what follows it become a function from a position to the end of a
-- match, or nil; `m` contains the text and the contents of groups

local link = {}

local function chain(m, node, follow) return link[node.kind](m, node, follow) end

function link.one(m, node, follow)
  local test = node.test
  return function(at)
    local c = m.codes[at]
    return c and test(c) and follow(at + 1) or nil
  end
end

-- an optional group
local function optional(m, node, follow)
  local with = chain(m, node[1], follow)
  return function(at) return with(at) or follow(at) end
end

-- A repetition of characters. What follows depends only on the position, so a position where it
-- failed is never tried again: `known` contains the run, from `first` to before `stop`, and records
-- that all positions from `failed` to `stop` fail. Without it the time for long texts would grow
-- with the square of their length.
link["repeat"] = function(m, node, follow)
  local test, least, most = node[1].test, node.least, node.most
  if node[1].kind ~= "one" then
    return optional(m, node, follow)
  end
  local known = {}
  return function(at)
    local codes, stop = m.codes, at
    local kept = most == math.huge and known.codes == codes
    while stop - at < most and codes[stop] and test(codes[stop]) do
      stop = kept and stop >= known.first and stop < known.stop and known.stop or stop + 1
    end
    kept = kept and known.stop == stop
    local failed = kept and known.failed or stop + 1
    for from = failed - 1, at + least, -1 do
      local last = follow(from)
      if last then
        return last
      end
    end
    known.codes, known.stop = codes, stop
    known.first = kept and math.min(known.first, at) or at
    known.failed = math.min(failed, at + least)
  end
end

function link.row(m, node, follow)
  for i = #node, 1, -1 do
    follow = chain(m, node[i], follow)
  end
  return follow
end

function link.any(m, node, follow)
  local ways = {}
  for i, way in ipairs(node) do
    ways[i] = chain(m, way, follow)
  end
  if #ways == 1 then
    return ways[1]
  end
  return function(at)
    for _, way in ipairs(ways) do
      local last = way(at)
      if last then
        return last
      end
    end
  end
end

function link.group(m, node, follow) return chain(m, node[1], follow) end

function link.capture(m, node, follow)
  local number = node.number
  local inner = chain(m, node[1], function(at)
    local before = m.stops[number]
    m.stops[number] = at
    local last = follow(at)
    if not last then
      m.stops[number] = before
    end
    return last
  end)
  return function(at)
    local before = m.starts[number]
    m.starts[number] = at
    local last = inner(at)
    if not last then
      m.starts[number] = before
    end
    return last
  end
end

function link.not_ahead(m, node, follow)
  local inner = chain(m, node[1], function(at) return at end)
  return function(at) return not inner(at) and follow(at) or nil end
end

function link.edge(m, _, follow)
  local function is_word(at) return m.codes[at] ~= nil and unicode.is_word(m.codes[at]) end
  return function(at) return is_word(at - 1) ~= is_word(at) and follow(at) or nil end
end

function link.first(_, _, follow)
  return function(at) return at == 1 and follow(at) or nil end
end

-- the end of the text, or of its last line
function link.last(m, _, follow)
  return function(at)
    local n = #m.codes
    return (at == n + 1 or at == n and m.codes[n] == 10) and follow(at) or nil
  end
end

-- ---- the first character of a match: a test; nil: a match can begin anywhere

local first_of

local function either(a, b) return a and b and function(c) return a(c) or b(c) end or nil end

local begins = {}
begins = {
  one = function(node) return node.test end,
  group = function(node) return first_of(node[1]) end,
  capture = function(node) return first_of(node[1]) end,
  any = function(node)
    local test = function() return false end
    for _, way in ipairs(node) do
      test = either(test, first_of(way))
    end
    return test
  end,
  -- after an optional node the following node also decides
  row = function(node)
    local test = function() return false end
    for _, part in ipairs(node) do
      local here = first_of(part)
      if here then
        test = either(test, here)
        if part.kind ~= "repeat" or part.least > 0 then
          return test
        end
      elseif begins[part.kind] then
        return nil
      end
    end
    return nil
  end,
}
begins["repeat"] = begins.group

function first_of(node) return begins[node.kind] and begins[node.kind](node) end

---@class moonreel.Pattern
local Pattern = {}
Pattern.__index = Pattern

--- Reads a pattern.
---@param source string
---@return moonreel.Pattern
function pattern.new(source)
  local p = { source = source, codes = unicode.codes(source), at = 1, groups = 0 }
  local tree = alternatives(p)
  if p.at <= #p.codes then
    refuse(p, "there is a ) without a (")
  end
  local m = { codes = {}, starts = {}, stops = {} }
  m.run = chain(m, tree, function(at) return at end)
  return setmetatable({ m = m, begins = first_of(tree) }, Pattern)
end

--- Replaces every match.
---@param codes integer[]
---@param with string     \1 means the contents of the first group
---@return integer[] codes
---@return integer count  number of matches
function Pattern:replace(codes, with)
  local m, out, at, count = self.m, {}, 1, 0
  local put = unicode.codes(with)
  m.codes, m.starts, m.stops = codes, {}, {}
  while at <= #codes do
    local stop = (not self.begins or self.begins(codes[at])) and m.run(at)
    if stop and stop > at then
      count = count + 1
      for i, c in ipairs(put) do
        if c == 92 then
          table.move(codes, m.starts[1], m.stops[1] - 1, #out + 1, out)
        elseif put[i - 1] ~= 92 then
          out[#out + 1] = c
        end
      end
      at = stop
    else
      out[#out + 1] = codes[at]
      at = at + 1
    end
  end
  return out, count
end

return pattern
