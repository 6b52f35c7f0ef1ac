--- Matches Lua's patterns in a time that grows only with the sizes of text and pattern. Lua's own
-- matcher tries all ways in which a pattern with several repetitions may match, and their number
-- can be extremely large. This matcher never repeats an attempt that failed at a position of the
-- text, because whether the rest of a pattern matches does not depend on the path to it. Patterns
-- for which it does depend on the path, with %1 to %9, are refused; so is %b.
-- @module moonreel.text.pattern
local pattern = {}

-- local copies, because a user of this module may have replaced the string functions by it
local byte, find, sub = string.byte, string.find, string.sub

local KEPT = 100  -- the most compiled patterns in the cache

-- ---- patterns ----
-- A pattern is a list of items: {kind, class, set, slot, joined}. "one", "?", "*" and "-" match
-- letters of a set; "(" and ")" mark the capture `slot`, and "place" is an empty capture;
-- "frontier" and "end" match no letter. An item is `joined` if several paths may lead to it.

-- the bytes that a class such as "%a" or "[^x]" matches, as byte -> true
local function set_of(class)
  local set = {}
  for b = 0, 255 do
    set[b] = find(string.char(b), "^" .. class) and true or nil
  end
  return set
end

local function malformed(text, problem)
  error(("malformed pattern '%s' (%s)"):format(text, problem), 0)
end

-- the end of the class that begins at i
local function class_end(text, i)
  local c = sub(text, i, i)
  if c == "%" then
    return i < #text and i + 1 or malformed(text, "ends with '%'")
  elseif c ~= "[" then
    return i
  end
  i = sub(text, i + 1, i + 1) == "^" and i + 2 or i + 1
  repeat
    if i > #text then
      malformed(text, "missing ']'")
    end
    c = sub(text, i, i)
    i = i + (c == "%" and 2 or 1)
  until sub(text, i, i) == "]"
  return i
end

-- adds letters of a class, with the repetition after it
local function add_letters(items, text, i)
  local last = class_end(text, i)
  local class, times = sub(text, i, last), string.match(text, "^[?*+-]", last + 1)
  -- characters that are special elsewhere are ordinary letters here
  local escaped = #class == 1 and class ~= "." and "%" .. class or class
  local item = { kind = times or "one", class = string.match(class, "^%w$") or escaped }
  item.set = set_of(item.class)
  if times == "+" then
    items[#items + 1] = { kind = "one", class = item.class, set = item.set }
    item.kind = "*"
  end
  items[#items + 1] = item
  return last + (times and 2 or 1)
end

local function add_frontier(items, text, i)
  if sub(text, i + 2, i + 2) ~= "[" then
    malformed(text, "missing '[' after '%f'")
  end
  local last = class_end(text, i + 2)
  items[#items + 1] = { kind = "frontier", set = set_of(sub(text, i + 2, last)) }
  return last + 1
end

local function add_item(items, text, i, open)
  local c, two = sub(text, i, i), sub(text, i, i + 1)
  if find(two, "^%%[b%d]") then
    error(("pattern '%s': '%s' is not supported; expected Lua's patterns without %%b and %%1 to "
      .. "%%9"):format(text, two), 0)
  elseif two == "%f" then
    return add_frontier(items, text, i)
  elseif c == "(" then
    items.captures = items.captures + 1
    local place = two == "()"
    items[#items + 1] = { kind = place and "place" or "(", slot = items.captures }
    open[#open + 1] = not place and items.captures or nil
    return i + (place and 2 or 1)
  elseif c == ")" then
    items[#items + 1] = { kind = ")", slot = table.remove(open)
      or malformed(text, "')' without '('") }
    return i + 1
  elseif c == "$" and i == #text then
    items[#items + 1] = { kind = "end" }
    return i + 1
  end
  return add_letters(items, text, i)
end

local repeats = { ["?"] = true, ["*"] = true, ["-"] = true }

local function compile(text, anchors)
  local items, open, i = { captures = 0 }, {}, 1
  if anchors and sub(text, 1, 1) == "^" then
    items.anchored, i = true, 2
  end
  while i <= #text do
    i = add_item(items, text, i, open)
  end
  if #open > 0 then
    malformed(text, "unfinished capture")
  end
  for k, item in ipairs(items) do
    local before = items[k - 1]
    item.joined = repeats[item.kind] or before and repeats[before.kind]
  end
  return items
end

local known, n_known = {}, 0

-- the items of a pattern; in gmatch a '^' is an ordinary letter
local function items_of(text, anchors)
  local name = (anchors and "^" or " ") .. text
  if not known[name] then
    if n_known == KEPT then
      known, n_known = {}, 0
    end
    known[name], n_known = compile(text, anchors), n_known + 1
  end
  return known[name]
end

-- ---- matching ----

-- The end of a match from `start`, and the marks that it set, the last one first. `tried` contains
-- the items that failed, each combined with its position into one number.
local function match_at(items, text, start, tried)
  local n = #items
  -- alternatives to try if this path fails: item, position, marks
  local ways, top = { 1, start, false }, 3
  while top > 0 do
    local k, i, marks = ways[top - 2], ways[top - 1], ways[top]
    top = top - 3
    local goes_on = true
    while goes_on do
      local item = items[k]
      if not item then
        return i - 1, marks
      end
      local kind, here = item.kind, i * n + k
      if item.joined and tried[here] then
        break
      end
      tried[here] = item.joined
      if kind == "one" then
        goes_on = item.set[byte(text, i)]
        k, i = k + 1, i + 1
      elseif repeats[kind] then
        -- one more letter, or the next item: the less preferred alternative is tried later
        local more_k = kind == "?" and k + 1 or k
        if not item.set[byte(text, i)] then
          k = k + 1
        elseif kind == "-" then
          ways[top + 1], ways[top + 2], ways[top + 3], top = more_k, i + 1, marks, top + 3
          k = k + 1
        else
          ways[top + 1], ways[top + 2], ways[top + 3], top = k + 1, i, marks, top + 3
          k, i = more_k, i + 1
        end
      elseif kind == "frontier" then
        goes_on = not item.set[byte(text, i - 1) or 0] and item.set[byte(text, i) or 0]
        k = k + 1
      elseif kind == "end" then
        goes_on, k = i > #text, k + 1
      else
        marks, k = { before = marks, item = item, at = i }, k + 1
      end
    end
  end
end

-- the captured texts, in the order of the captures
local function captured(items, text, marks)
  local found, upto = {}, {}
  while marks do
    local item, at = marks.item, marks.at
    if item.kind == ")" then
      upto[item.slot] = at - 1
    else
      found[item.slot] = item.kind == "place" and at or sub(text, at, upto[item.slot])
    end
    marks = marks.before
  end
  return table.unpack(found, 1, items.captures)
end

-- The first match from `init` on that does not end at `before`: its start, end and marks.
local function search(items, text, init, before)
  local tried, head = {}, items[1]
  while init <= #text + 1 do
    -- no match begins before the first letter that fits
    if head and head.kind == "one" and not items.anchored then
      init = find(text, head.class, init)
      if not init then
        return nil
      end
    end
    local last, marks = match_at(items, text, init, tried)
    if last and last ~= before then
      return init, last, marks
    elseif items.anchored then
      return nil
    end
    init = init + 1
  end
end

-- the position that `init` means; nil: after the text
local function place(text, init)
  init = init or 1
  if init < 0 then
    init = math.max(#text + init + 1, 1)
  end
  return init <= #text + 1 and math.max(init, 1) or nil
end

-- ---- the functions string.find, match, gmatch and gsub ----

local function checked(name, i, value)
  if type(value) ~= "string" and type(value) ~= "number" then
    error(("bad argument #%d to '%s' (text expected, got %s)"):format(i, name, type(value)), 0)
  end
  return tostring(value)
end
local function arguments(name, text, p) return checked(name, 1, text), checked(name, 2, p) end

--- Like string.find.
function pattern.find(text, p, init, plain)
  text, p = arguments("find", text, p)
  init = place(text, init)
  if not init then
    return nil
  elseif plain or not find(p, "[%^$*+?.([%%-]") then
    return find(text, p, init, true)
  end
  local items = items_of(p, true)
  local first, last, marks = search(items, text, init)
  if not first then
    return nil
  end
  return first, last, captured(items, text, marks)
end

-- the captures, or the whole match if there are no captures
local function found(items, text, first, last, marks)
  if items.captures == 0 then
    return sub(text, first, last)
  end
  return captured(items, text, marks)
end

--- Like string.match.
function pattern.match(text, p, init)
  text, p = arguments("match", text, p)
  init = place(text, init)
  local items = items_of(p, true)
  local first, last, marks
  if init then
    first, last, marks = search(items, text, init)
  end
  if not first then
    return nil
  end
  return found(items, text, first, last, marks)
end

--- Like string.gmatch.
function pattern.gmatch(text, p)
  text, p = arguments("gmatch", text, p)
  local items, at, before = items_of(p, false), 1, nil
  return function()
    local first, last, marks = search(items, text, at, before)
    at, before = last and last + 1 or #text + 2, last
    if not first then
      return nil
    end
    return found(items, text, first, last, marks)
  end
end

-- the replacement of a match: by a text with %1, a table or a function
local function replacement(by, whole, ...)
  if type(by) == "table" then
    return by[(...)]
  elseif type(by) == "function" then
    return by(...)
  end
  local captures = { ["0"] = whole, ["%"] = "%", ... }
  return (string.gsub(by, "%%(.?)", function(c)
    return captures[c] or captures[tonumber(c)]
      or error("invalid use of '%' in the replacement '" .. by .. "'", 0)
  end))
end

--- Like string.gsub.
function pattern.gsub(text, p, by, most)
  text, p = arguments("gsub", text, p)
  if type(by) ~= "table" and type(by) ~= "function" then
    by = checked("gsub", 3, by)
  end
  local items, out, at, before, n = items_of(p, true), {}, 1, nil, 0
  while n < (most or math.huge) do
    local first, last, marks = search(items, text, at, before)
    if not first then
      break
    end
    local whole = sub(text, first, last)
    out[#out + 1] = sub(text, at, first - 1)
    out[#out + 1] = replacement(by, whole, found(items, text, first, last, marks)) or whole
    at, before, n = last + 1, last, n + 1
    if items.anchored then
      break
    end
  end
  out[#out + 1] = sub(text, at)
  return table.concat(out), n
end

return pattern
