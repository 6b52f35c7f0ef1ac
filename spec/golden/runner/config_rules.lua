--- What our rules make of a text, an argument or a command line of the reference's cases, worked
-- out without the rooms under test: from the reference's own value and the rule that differs. Each
-- function gives a value or part of an error's text, and the reason for which that may not be what
-- the reference does. Ref: recipes.md 2 and 7, opensora-2.0.md 7.
-- @module spec.golden.runner.config_rules
local json = require "moonreel.core.json"

local rules = {}

-- ---- a text without a field ----

local function trim(text) return text:match("^%s*(.-)%s*$") end

-- the quoted text that begins here, without its quotes; nil: none does
local function quoted(text, at)
  local quote = text:match("^[\"']", at)
  local rest = quote and text:sub(at + 1):gsub("\\.", "xx")
  local stop = rest and rest:find(quote, 1, true)
  return stop and text:sub(at + 1, at + stop - 1)
end

-- the text without what stands in quotes
local function unquoted(text)
  local out, at = {}, 1
  while at <= #text do
    local inner = quoted(text, at)
    out[#out + 1] = inner and "" or text:sub(at, at)
    at = at + (inner and #inner + 2 or 1)
  end
  return table.concat(out)
end

-- is a text one quoted text and nothing besides?
local function is_one_quoted(text)
  local inner = quoted(text, 1)
  return inner ~= nil and #inner + 2 == #text
end

-- the text that stands in quotes, or nil where Lua, Python and JSON do not share an escape
local function unescaped(inner)
  local known = { n = "\n", t = "\t", r = "\r", ["\\"] = "\\", ["'"] = "'", ['"'] = '"' }
  local good = true
  local out = inner:gsub("\\(.)", function(c)
    good = good and known[c] ~= nil
    return known[c]
  end)
  return good and out or nil
end

local function is_plain(value)
  if type(value) ~= "table" then
    return true
  end
  for key, item in pairs(value) do
    if key == "__float__" or key == "__complex__" or key == "__bytes__" or key == "__ellipsis__"
        or not is_plain(item) then
      return false
    end
  end
  return true
end

-- does something in a value satisfy a test?
local function any(value, test)
  if test(value) then
    return true
  end
  for _, item in pairs(type(value) == "table" and value or {}) do
    if any(item, test) then
      return true
    end
  end
  return false
end

local function is_set(value) return type(value) == "table" and value.__set__ ~= nil end

-- a dictionary with a key that is neither a text nor a whole number
local function has_odd_key(value)
  for _, pair in ipairs(type(value) == "table" and value.__dict__ or {}) do
    if type(pair[1]) ~= "string" and math.type(pair[1]) ~= "integer" then
      return true
    end
  end
  return false
end

local constants = { none = "null", null = "null", ["nil"] = "null", ["true"] = "true",
  ["false"] = "false" }

-- a word in JSON: a word of ours, a number as it stands, or nothing that JSON knows
local function word_of(word)
  local number = math.tointeger(tonumber(word)) or tonumber(word)
  return constants[word:lower()] or number and json.encode(number) or word
end

-- what stands before a key that is a number, which JSON does not know
local COUNT = "number "

local function counted(value)
  if type(value) ~= "table" then
    return value
  end
  local out = json.is_array(value) and json.array {} or {}
  for key, item in pairs(value) do
    local number = type(key) == "string" and key:match("^" .. COUNT .. "(.*)")
    out[math.tointeger(tonumber(number)) or key] = counted(item)
  end
  return out
end

-- A literal in brackets, in whatever brackets, quotes and words of Lua or Python, as JSON: brackets
-- without `:` hold lists, keys are texts. nil for any other text.
local function as_json(text)
  local out, open, at = {}, {}, 1
  local function put(piece) out[#out + 1] = piece end
  while at <= #text do
    local c, word, inner = text:sub(at, at), text:match("^[%w_.+-]+", at), quoted(text, at)
    local piece = word or inner and text:sub(at, at + #inner + 1)
    at = at + #(piece or c)
    if piece then
      local plain = not inner or unescaped(inner)
      if plain and text:match("^%s*:", at) then
        put(json.encode(math.tointeger(tonumber(word)) and COUNT .. word or word or plain))
      elseif plain then
        put(word and word_of(word) or json.encode(plain))
      else
        return nil
      end
    elseif c:find "[%[({]" then
      put("[")
      open[#open + 1] = #out
    elseif c:find "[%])}]" and #open > 0 then
      -- a comma before it does not count
      if out[#out] == "," and #out - 1 > open[#open] then
        out[#out] = ""
      end
      put(c == "}" and (out[open[#open]] == "{" or #out == open[#open]) and "}" or "]")
      out[open[#open]] = out[#out] == "}" and "{" or "["
      open[#open] = nil
    elseif not c:find "%s" then
      if c == ":" and #open > 0 then
        out[open[#open]] = "{"
      end
      put(c)
    end
  end
  local good, value = pcall(json.decode, table.concat(out, " "), "case")
  if good then
    return counted(value)
  end
end

-- Rules in order; the first one that applies says why our value is not the reference's. Each is
-- {reason, applies(text, reference), value(text, reference)}; without the last the text stays text.
local of_texts = {
  { "numbers that are not finite, complex numbers, bytes and ... are no settings",
    function(_, reference) return not is_plain(reference) end },
  { "keys are texts and whole numbers", function(_, reference)
    return any(reference, has_odd_key)
  end, function(text) return text:find "^{%s*%a" and as_json(text) or text end },
  { "a list stands in brackets", function(text, reference)
    return type(reference) == "table" and (not trim(text):match("^[%[({]")
      or reference.__tuple__ ~= nil and as_json(text) == nil)
  end },
  { "none, true and false are read in any case, with spaces around them",
    function(text, reference)
      return reference == text and constants[trim(text):lower()] ~= nil
    end, function(text) return json.decode(constants[trim(text):lower()], "case") end },
  { "nothing follows a value", function(text, reference)
    return reference ~= text and unquoted(text):find("#", 1, true) ~= nil
  end },
  { "a sign stands at its number", function(text, reference)
    return type(reference) == "number" and trim(text):match("^[+-][%s(]") ~= nil
  end },
  { "an underscore stands between two digits", function(text, reference)
    return type(reference) == "number" and text:find("^%s*[+-]?0%a_") ~= nil
  end },
  { "digits are those of ASCII", function(text, reference)
    return type(reference) == "number" and text:find("[\128-\255]") ~= nil
  end },
  { "a text in quotes has no prefix and no second text beside it", function(text, reference)
    local one = trim(text)
    return type(reference) == "string" and reference ~= text and one:find("[\"']") ~= nil
      and not (one:match("^[(%[{]") and as_json(one)) and not is_one_quoted(one)
  end },
  { "texts know the escapes of JSON", function(text, reference)
    local inner = quoted(trim(text), 1)
    return inner ~= nil and is_one_quoted(trim(text)) and reference ~= text
      and unescaped(inner) == nil and not inner:find "\\u%x%x%x%x"
  end },
  { "a text in quotes may hold line ends", function(text, reference)
    return reference == text and is_one_quoted(trim(text)) and unescaped(trim(text)) ~= nil
  end, function(text) return unescaped(quoted(trim(text), 1)) end },
  { "a key stands once", function(text, reference)
    return type(reference) == "table" and reference ~= text and text:match "^%s*{"
      and as_json(text) == nil
  end },
  { "a set is a list", function(_, reference) return any(reference, is_set) end, as_json },
  { "words are read in any case, and keys need no quotes, also inside lists",
    function(text, reference)
      return reference == text and text:match("^[%[({]") and as_json(text) ~= nil
    end, as_json },
  { "parentheses hold a list, also of one value", function(text, reference)
    return trim(text):match("^[%[({]") ~= nil and reference ~= text
      and unquoted(text):find("(", 1, true) ~= nil and as_json(text) ~= nil
  end, as_json },
}

--- What a text is where no field says of which kind it ought to be.
---@param text string
---@param reference any  the reference's value, in its encoding
---@return any value     in the same encoding
---@return string|nil why
function rules.text(text, reference)
  for _, rule in ipairs(of_texts) do
    if rule[2](text, reference) then
      if not rule[3] then
        return text, rule[1]
      end
      return rule[3](text, reference), rule[1]
    end
  end
  return reference
end

-- ---- words of a command line ----

-- words that belong to a flag before them
local flag_values = { ["true"] = true, ["false"] = true, ["0"] = true, ["1"] = true, none = true,
  yes = true, no = true, on = true, off = true }

--- Words as we split them: positional ones and {key, text}.
---@param words string[]
---@param is_flag function|nil  (key): does it need no value?
---@param unknown function|nil  (key): what is wrong with it, or nil
---@return table|nil parsed  {positional, pairs, why}
---@return string|nil problem
function rules.words(words, is_flag, unknown)
  local parsed, i = { positional = {}, pairs = {} }, 1
  local why = {}
  while i <= #words do
    local word = words[i]
    local key, text = word:match("^%-%-([^=]+)=(.*)$")
    if word == "--" then
      why[#why + 1] = "what follows -- is no option"
      table.move(words, i + 1, #words, #parsed.positional + 1, parsed.positional)
      break
    elseif key then
      why[#why + 1] = "the first = splits"
      if unknown and unknown(key) then
        return nil, unknown(key)
      end
      parsed.pairs[#parsed.pairs + 1] = { key, text }
    elseif word:match("^%-%-.") then
      key, text = word:sub(3), words[i + 1]
      local flag = is_flag and is_flag(key)
      if unknown and unknown(key) then
        return nil, unknown(key)
      end
      if not is_flag and #parsed.positional == 0 then
        why[#why + 1] = "options may stand before the recipe"
      end
      if flag and not (text and flag_values[text:lower()]) then
        why[#why + 1] = "a flag needs no value"
        text = "true"
      elseif not text or text:match("^%-%-") then
        return nil, word .. ": expected VALUE, got nothing"
      else
        i = i + 1
      end
      parsed.pairs[#parsed.pairs + 1] = { key, text }
    elseif word:match("^%-%a") then
      return nil, word .. ": no such option"
    elseif word:match("^[%a_][%w_.-]*=") then
      key, text = word:match("^([^=]*)=(.*)$")
      why[#why + 1] = "NAME=VALUE needs no dashes"
      if unknown and unknown(key) then
        return nil, unknown(key)
      end
      parsed.pairs[#parsed.pairs + 1] = { key, text }
    else
      parsed.positional[#parsed.positional + 1] = word
    end
    i = i + 1
  end
  parsed.why = table.concat(why, "; ")
  return parsed
end

--- A whole command line of one recipe and options.
---@param words string[]
---@return table|nil parsed  {config, rest, why}
---@return string|nil problem
function rules.argv(words)
  local parsed, problem = rules.words(words)
  if not parsed then
    return nil, problem
  elseif #parsed.positional ~= 1 then
    return nil, "expected one recipe, got " .. #parsed.positional
  end
  local out = { config = parsed.positional[1], rest = {}, why = parsed.why }
  for _, pair in ipairs(parsed.pairs) do
    table.insert(out.rest, "--" .. pair[1])
    table.insert(out.rest, pair[2])
  end
  return out
end

-- ---- arguments over a recipe ----

-- where a key leads among fields {path -> kind}: the names on the way, the kind of the field, and
-- how many names lie inside a map; or nil and what is wrong
local function find(fields, key)
  local parts, keys, path = {}, {}, ""
  for part in key:gmatch("[^.]+") do
    parts[#parts + 1] = part
  end
  if ("." .. key .. "."):find("..", 1, true) then
    return nil, ("'%s' is not a field name"):format(key)
  end
  for i, part in ipairs(parts) do
    if fields[path] == "map" then
      -- entries of a map keep their names as they are; the inner ones are counts of frames
      keys[i] = math.tointeger(tonumber(part)) or part
    else
      path = (path == "" and "" or path .. ".") .. part:gsub("-", "_")
      keys[i] = path:match("[^.]*$")
      local outer = fields[path:match("^(.*)%.") or ""]
      if not fields[path] and outer and outer ~= "record" then
        return nil, table.concat(parts, ".", 1, i - 1) .. " has no fields of its own"
      elseif not fields[path] then
        return nil, table.concat(parts, ".", 1, i) .. " is not a field"
      end
    end
  end
  local inside = fields[path] == "map" and #keys - select(2, path:gsub("[^.]+", "")) or 0
  return { keys = keys, kind = fields[path], inside = inside, shown = table.concat(keys, ".") }
end

local function number_of(text)
  local plain = trim(text)
  if plain:find("_") and not plain:find("%D_") and not plain:find("_%D") then
    plain = plain:gsub("_", "")
  end
  local number = plain:match("^[+-]?[%d.]") and tonumber(plain)
  return number and number - number == 0 and number or nil
end

-- a table of Lua, Python or JSON; counts of frames come as numbers
local function table_of(text)
  local value = as_json(text)
  return type(value) == "table" and value or nil
end

local truths = { ["true"] = true, ["1"] = true, ["false"] = false, ["0"] = false }

-- a text as a value of each kind; nil where it does not fit
local fitting = {
  integer = function(text) return math.tointeger(number_of(text)) end,
  number = number_of,
  boolean = function(text) return truths[text:lower()] end,
  text = function(text) return text end,
  free = function(text) return number_of(text) or text end,
  list = table_of, record = table_of,
  texts = function(text) return table_of(text) or { text } end,
}

-- `changes` over `tree`; tables merge
local function merge_into(tree, changes)
  for key, value in pairs(changes) do
    if type(value) == "table" and type(tree[key]) == "table" then
      merge_into(tree[key], value)
    else
      tree[key] = value
    end
  end
end

-- the first name of a record's table that is no field, or nil
local function stranger(fields, path, value)
  for key, item in pairs(fields[path] == "record" and value or {}) do
    local inner = path .. "." .. key
    local name = not fields[inner] and inner
      or type(item) == "table" and stranger(fields, inner, item)
    if name then
      return name
    end
  end
end

-- one argument over the values; gives what is wrong with it
local function apply(fields, values, field, text)
  local value
  if text:lower() == "none" and field.kind ~= "record" and field.inside ~= 1 then
    value = nil
  else
    -- inside a map there are tables, and at last {keep, batch}
    value = (field.kind == "map" and table_of or fitting[field.kind])(text)
    if value == nil then
      return field.shown .. ": expected "
    end
    local name = stranger(fields, field.shown, value)
    if name then
      return name .. " is not a field"
    end
  end
  local at = values
  for i = 1, #field.keys - 1 do
    at[field.keys[i]] = at[field.keys[i]] or {}
    at = at[field.keys[i]]
  end
  local name = field.keys[#field.keys]
  local merges = (field.kind == "record" or field.kind == "map") and field.inside < 2
  if merges and value and at[name] then
    merge_into(at[name], value)
  else
    at[name] = value
  end
end

-- Why an argument may give another value than in the reference, which converts by the kind of the
-- value that stands there, character by character where that is a list, and knows no nested fields.
local function reason(field, text)
  if field.kind == "text" and #field.keys > 1 then
    return "a field keeps its kind"
  elseif number_of(text) and text:find "[xX]" then
    return "a number may be written as in Lua"
  elseif field.kind == "number" or field.kind == "text"
      or field.kind == "integer" and math.type(number_of(text)) == "integer" then
    return #field.keys > 2 and "nested fields are fields" or nil
  elseif field.kind == "boolean" then
    return not text:lower():match("^%a+$") and "a flag stays a flag" or nil
  end
  return "a field keeps its kind"
end

--- Arguments over a recipe.
---@param fields table   path -> kind: integer, number, boolean, text, free, list, texts, record,
---   map
---@param values table   plain values of all fields; changed
---@param words string[]
---@return string|nil problem  part of the error's text where the rules refuse the words
---@return string|nil why
function rules.merge(fields, values, words)
  local parsed, problem = rules.words(words, function(key)
    local field = find(fields, key)
    return field and field.kind == "boolean"
  end, function(key)
    return select(2, find(fields, key))
  end)
  if parsed and #parsed.positional > 0 then
    problem = ("'%s' is no option"):format(parsed.positional[1])
  end
  if problem then
    return problem, "what is no option, no field or no value is an error"
  end
  local why = parsed.why ~= "" and parsed.why or nil
  for _, pair in ipairs(parsed.pairs) do
    local field = find(fields, pair[1])
    problem = problem or apply(fields, values, field, pair[2])
    why = why or reason(field, pair[2])
  end
  return problem, problem and "a field keeps its kind" or why
end

return rules
