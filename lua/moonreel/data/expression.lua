--- Evaluates a Lua expression over the fields of a row: `fps >= 23 and #text > 0`. An expression
-- can use the fields of moonreel.data.row, the columns of the index and a few functions, and
-- nothing else. The time for each row is limited.
-- @module moonreel.data.expression
local base = require "moonreel.core.base"
local pattern = require "moonreel.text.pattern"
local row_fields = require "moonreel.data.row"

local expression = {}

-- Limit of instructions for one row: an expression that needs more is taken not to end.
expression.budget = 10 * 1000 * 1000
-- the longest text that it may make at once
local MOST_TEXT_BYTES = 1 << 20

-- a library for expressions: they can call it, but not change it
local function view(library)
  return setmetatable({}, { __index = library, __metatable = false,
    __newindex = function(_, name) error(("'%s' cannot be set"):format(name), 0) end })
end

-- Functions of texts; none takes much time or memory.
local text_functions = { byte = string.byte, char = string.char, format = string.format,
  len = string.len, lower = string.lower, reverse = string.reverse, sub = string.sub,
  upper = string.upper, find = pattern.find, match = pattern.match, gmatch = pattern.gmatch,
  gsub = pattern.gsub }

function text_functions.rep(text, n, separator)
  if n > 0 and (#text + #(separator or "")) * n > MOST_TEXT_BYTES then
    error(("string.rep: the text would pass %d bytes"):format(MOST_TEXT_BYTES), 0)
  end
  return string.rep(text, n, separator)
end

local functions = { abs = math.abs, ceil = math.ceil, floor = math.floor, log = math.log,
  max = math.max, min = math.min, sqrt = math.sqrt, tonumber = tonumber, tostring = tostring,
  string = view(text_functions), math = view(math) }

--- The names of its functions, for people.
---@return string
function expression.functions()
  local names = {}
  for name, value in pairs(functions) do
    names[#names + 1] = type(value) == "function" and name or nil
  end
  table.sort(names)
  return table.concat(names, ", ")
end

-- phrases of other languages and their form in Lua; searched if the compiler has refused the
-- expression
local habits = {
  { " is not null ", "FIELD ~= nil" }, { " is null ", "FIELD == nil" },
  { " like ", "text:find('words')" }, { " between ", "2 <= FIELD and FIELD <= 3" },
  { " in ", "FIELD == 2 or FIELD == 3" }, { "&&", "and" }, { "||", "or" }, { "!=", "~=" },
  { "<>", "~=" }, { "!", "not" }, { " AND ", "and" }, { " OR ", "or" }, { " NOT ", "not" },
  { "=", "==" },
}

-- The first such phrase in a text, as "; try: ...".
local function advice(text)
  -- quoted text and comparisons do not count
  local bare = " " .. text:gsub("'[^']*'", "''"):gsub('"[^"]*"', '""'):gsub("[=~<>]=", "  "):gsub(
    "%s+", " ") .. " "
  for _, habit in ipairs(habits) do
    local word, lua = table.unpack(habit)
    if bare:find(word, 1, true) or word:find("%l") and bare:lower():find(word, 1, true) then
      return ("; try: '%s' instead of '%s'"):format(lua, word:match("^ *(.-) *$"))
    end
  end
  return ""
end

local function fail(text, problem, try)
  base.raise("MR_E_USAGE", ("expression '%s': %s%s"):format(text, problem, try or ""))
end

local function load_expression(text, env)
  if not text:find "%S" then
    fail(text, "is empty; try: 'fps >= 23 and #text > 0'")
  end
  local f, problem = load("return " .. text, "=expression", "t", env)
  if not f then
    fail(text, (problem:gsub("^expression:%d+: ", "")), advice(text))
  end
  return f
end

-- calls f(), with a limit, and with the text methods that end
local function run(f)
  local methods = debug.getmetatable("")
  local before = methods.__index
  methods.__index = text_functions
  debug.sethook(function()
    error(("does not end within %d instructions"):format(expression.budget), 0)
  end, "", expression.budget)
  local ok, value = pcall(f)
  debug.sethook()
  methods.__index = before
  return ok, value
end

--- Compiles an expression for rows of an index.
---@param text string
---@param columns string[]  columns of the index
---@return fun(r: table): any, string|nil  its value; or nil and the reason: a value that the row
---   lacks. Raises MR_E_USAGE for an invalid expression, an unknown name, a failure
function expression.compile(text, columns)
  local who = ("expression '%s'"):format(text)
  local current, missing, unknown
  local readers = {}
  local function value_of(name)
    if not readers[name] then
      local good, read = pcall(row_fields.reader, name, columns, who)
      if not good then
        unknown = name
        error(name, 0)
      end
      readers[name] = read
    end
    local value = readers[name](current)
    if value == nil then
      missing = name
    end
    return value
  end
  local f = load_expression(text, setmetatable({}, {
    __index = function(_, name) return functions[name] or value_of(name) end,
    __newindex = function(_, name) error(("'%s' cannot be set"):format(name), 0) end,
  }))
  return function(r)
    current, missing = r, nil
    local ok, value = run(f)
    if ok then
      return value
    elseif unknown then
      -- raises an error without a position in the expression
      row_fields.reader(unknown, columns, who)
    elseif missing then
      return nil, "no value of " .. missing
    end
    fail(text, ("%s: %s"):format(r.path, tostring(value):gsub("^.-:%d+: ", "")))
  end
end

return expression
