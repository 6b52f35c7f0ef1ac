--- Rewrites recipe source so that every table constructor records its lines. `{ ... }` becomes
-- `__table(__open(id), { ... })` and a computed key `[k]` becomes `[__key(n, k)]`, on the same
-- lines, so that line numbers in messages stay right. Only the source has the place of a value: a
-- tail call leaves no frame of the recipe on the stack, and a line hook gives wrong lines for list
-- elements. Ref: recipes.md 4.
local lexer = require "moonreel.recipe.lexer"

local rewrite = {}

local opens = { ["("] = ")", ["["] = "]", ["{"] = "}", ["function"] = "end",
  ["if"] = "end", ["do"] = "end", ["repeat"] = "until" }
local closes = { [")"] = true, ["]"] = true, ["}"] = true, ["end"] = true, ["until"] = true }

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or " ..
  "repeat return then true until while"):gmatch("%a+") do
  keywords[word] = true
end

-- `f{...}`, `f "text" {...}`, `f{...}{...}`: a constructor directly after a value, or after another
-- argument, is the argument of a call
local function is_argument(before)
  return before and ((before.kind == "name" and not keywords[before.text])
    or before.kind == "text" or before.text == ")" or before.text == "]" or before.text == "}")
end

-- the value of a literal key inside [ ]: text or number; nil if the key is computed
local function literal_key(word)
  if word.kind == "number" then
    return tonumber(word.text)
  end
  if word.kind ~= "text" then
    return nil
  end
  local simple = word.text:match("^[\"']([^\\]*)[\"']$")
  if simple then
    return simple
  end
  local chunk = load("return " .. word.text, "=key", "t", {})
  return chunk and chunk()
end

-- The form of the key of the item that begins at words[i]: `name =`, `[literal] =`, `[expression]
-- =`, or no key.
local function item_head(words, i)
  local word, after = words[i], words[i + 1]
  if word.kind == "name" and after and after.text == "=" then
    return { line = word.line, key = word.text }
  end
  if word.text == "[" and word.kind == "mark" then
    local closing = words[i + 2]
    local key = closing and closing.text == "]" and literal_key(after)
    if math.type(key) == "float" and math.tointeger(key) then
      key = math.tointeger(key)
    end
    if key ~= nil and key ~= false then
      return { line = word.line, key = key }
    end
    return { line = word.line, computed = true }
  end
  return { line = word.line, positional = true }
end

--- Rewrites one source text.
---@param text string
---@return string code
---@return table[] constructors  id -> {line, items = {{line, key | computed | positional,
---   open_ended}}}
function rewrite.source(text)
  local words = lexer.words(text)
  local edits, constructors = {}, {}
  local stack = {}
  -- Edits are made from left to right, as the words come.
  local function insert(at, piece) edits[#edits + 1] = { at = at, piece = piece } end

  for i, word in ipairs(words) do
    local top = stack[#stack]
    local mark = word.kind ~= "text" and word.text
    -- the first word after { or a separator begins an item of the innermost constructor
    if top and top.mark == "{" and top.fresh and mark ~= "}" then
      top.fresh = false
      local item = item_head(words, i)
      top.items[#top.items + 1] = item
      if item.computed then
        top.computed_from = #top.items
      end
    end
    if mark and opens[mark] then
      local entry = { mark = mark, closer = opens[mark], from = word.from, line = word.line }
      if mark == "{" then
        local id = #constructors + 1
        entry.items, entry.fresh = {}, true
        constructors[id] = { line = word.line, items = entry.items }
        entry.argument = is_argument(words[i - 1])
        insert(word.from, (entry.argument and "(" or "") .. "__table(__open(" .. id .. "),")
      elseif mark == "[" and top and top.mark == "{" and top.computed_from == #top.items then
        -- only the bracket that opens the item belongs to its key
        top.computed_from = nil
        entry.is_key = #top.items
        insert(word.to + 1, "__key(" .. entry.is_key .. ",")
      end
      stack[#stack + 1] = entry
    elseif mark and closes[mark] then
      if top and top.closer == mark then
        stack[#stack] = nil
        if top.is_key then
          insert(word.from, ")")
        end
        if mark == "}" then
          -- a call or `...` at the end may give any number of values
          local last, item = words[i - 1], top.items[#top.items]
          if item and item.positional and last
              and (last.text == "..." or last.text == ")" or last.text == "}"
              or last.kind == "text") then
            item.open_ended = true
          end
          insert(word.to + 1, top.argument and "))" or ")")
        end
      end
    elseif top and top.mark == "{" and (mark == "," or mark == ";") then
      top.fresh = true
    end
  end

  local out, at = {}, 1
  for _, edit in ipairs(edits) do
    out[#out + 1] = text:sub(at, edit.at - 1)
    out[#out + 1] = edit.piece
    at = edit.at
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out), constructors
end

return rewrite
