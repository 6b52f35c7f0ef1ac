--- What our rules make of a text, an argument or a command line of the reference's cases, worked
-- out without the rooms under test: from the reference's own value and the rule that differs. Each
-- function gives a value or part of an error's text, and the reason for which that may not be what
-- the reference does. Ref: recipes.md 2 and 7, opensora-2.0.md 7.
-- @module spec.golden.runner.config_rules
local json = require "moonreel.core.json"

local rules = {}

-- ---- a text without a field ----

local function trim(text) return text:match("^%s*(.-)%s*$") end

-- the text without what stands in quotes
local function unquoted(text) return (text:gsub('"[^"]*"', ""):gsub("'[^']*'", "")) end

-- is a text one quoted text and nothing besides?
local function is_one_quoted(text)
  return text:match('^"[^"]*"$') ~= nil or text:match("^'[^']*'$") ~= nil
end

local function is_plain(value)
  return type(value) ~= "table" or not (value.__float__ or value.__complex__ or value.__bytes__
    or value.__ellipsis__)
end

-- a literal of JSON, whose words and brackets are those of Lua or Python here; nil for any other
local function as_json(text)
  local good, value = pcall(json.decode, (text:gsub("%a+", function(word)
    local known = { none = "null", ["true"] = "true", ["false"] = "false" }
    return known[word:lower()]
  end):gsub("%(", "["):gsub("%)", "]"):gsub(",%s*%]", "]")), "case")
  if good then
    return value
  end
end

-- how deep the first elements of a list lie
local function depth(value)
  return type(value) == "table" and 1 + depth(value[1]) or 0
end

-- Rules in order; the first one that applies says why our value is not the reference's. Each is
-- {reason, applies(text, reference), value(text, reference)}; without the last the text stays text.
local of_texts = {
  { "numbers that are not finite, complex numbers, bytes and ... are no settings",
    function(_, reference) return not is_plain(reference) end },
  { "a list stands in brackets", function(text, reference)
    return type(reference) == "table" and not trim(text):match("^[%[({]")
  end },
  { "nothing follows a value", function(text, reference)
    return reference ~= text and unquoted(text):find("#", 1, true) ~= nil
  end },
  { "a sign stands at its number", function(text, reference)
    return type(reference) == "number" and trim(text):match("^[+-]%s") ~= nil
  end },
  { "digits are those of ASCII", function(text, reference)
    return type(reference) == "number" and text:find("[\128-\255]") ~= nil
  end },
  { "a text in quotes has no prefix and no second text beside it", function(text, reference)
    local one = trim(text)
    return type(reference) == "string" and reference ~= text and one:find("[\"']") ~= nil
      and not one:match("^[(%[{]") and not is_one_quoted(one)
  end },
  { "a set is a list", function(_, reference)
    return type(reference) == "table" and reference.__set__ ~= nil
  end, function(text) return as_json("[" .. trim(text):sub(2, -2) .. "]") end },
  { "none, true and false are read in any case, also inside lists", function(text, reference)
    return reference == text and text:match("^[%[(]") and as_json(text) ~= nil
  end, as_json },
  { "parentheses hold a list, also of one value", function(text, reference)
    local tuple = type(reference) == "table" and reference.__tuple__
    return trim(text):match("^%(") ~= nil and reference ~= text
      and not (tuple and depth(tuple) == #trim(text):match("^%(+"))
  end, function(text, reference)
    local value = type(reference) == "table" and reference.__tuple__ or reference
    for _ = depth(value) + 1, #trim(text):match("^%(+") do
      value = { value }
    end
    return value
  end },
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
      if #parsed.positional == 0 then
        why[#why + 1] = "options may stand before the recipe"
      end
      if flag and not (text and flag_values[text:lower()]) then
        text = "true"
      elseif not text or text:match("^%-%-") then
        return nil, word .. ": expected VALUE, got nothing"
      else
        i = i + 1
      end
      parsed.pairs[#parsed.pairs + 1] = { key, text }
    elseif word:match("^%-%a") then
      return nil, word .. ": no such option"
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
  for i, part in ipairs(parts) do
    if fields[path] == "map" then
      -- entries of a map keep their names as they are; the inner ones are counts of frames
      keys[i] = math.tointeger(tonumber(part)) or part
    else
      path = (path == "" and "" or path .. ".") .. part:gsub("-", "_")
      keys[i] = path:match("[^.]*$")
      if not fields[path] then
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
  return plain:match("^[+-]?[%d.]") and tonumber(plain) or nil
end

-- a table of Lua, Python or JSON; counts of frames come as numbers
local function table_of(text)
  local value = as_json(text:gsub("(%d+)%s*:", '"%1":'))
  if type(value) ~= "table" then
    return nil
  end
  local out = {}
  for key, item in pairs(value) do
    out[math.tointeger(tonumber(key)) or key] = item
  end
  return out
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

-- one argument over the values; gives what is wrong with it
local function apply(values, field, text)
  local value
  if text:lower() == "none" and field.kind ~= "record" then
    value = nil
  else
    -- inside a map there are tables, and at last {keep, batch}
    value = (field.kind == "map" and table_of or fitting[field.kind])(text)
    if value == nil then
      return field.shown .. ": expected "
    end
  end
  local at = values
  for i = 1, #field.keys - 1 do
    at = at[field.keys[i]]
  end
  local name = field.keys[#field.keys]
  if (field.kind == "record" or field.kind == "map") and field.inside < 2 then
    merge_into(at[name], value)
  else
    at[name] = value
  end
end

-- Why an argument may give another value than in the reference, which converts by the kind of the
-- value that stands there, character by character where that is a list, and knows no nested fields.
local function reason(field, text)
  if field.kind == "number" or field.kind == "text"
      or field.kind == "integer" and math.type(number_of(text)) == "integer" then
    return #field.keys > 2 and "nested fields are fields" or nil
  elseif field.kind == "boolean" then
    return not text:lower():match("^%a+$") and "a flag stays a flag" or nil
  end
  return "a field keeps its kind"
end

--- Arguments over a recipe.
---@param fields table   path -> kind: integer, number, boolean, text, free, list, record, map
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
  local why
  for _, pair in ipairs(parsed.pairs) do
    local field = find(fields, pair[1])
    problem = problem or apply(values, field, pair[2])
    why = why or reason(field, pair[2])
  end
  return problem, problem and "a field keeps its kind" or why
end

return rules
