--- Questions about a row as a Lua expression over its fields: `fps >= 23 and #text > 0`.
-- An expression reaches the fields of moonreel.data.row, the columns of the index and a few
-- functions; nothing else.
-- @module moonreel.data.expression
local base = require "moonreel.core.base"
local row_fields = require "moonreel.data.row"

local expression = {}

-- Instructions for one row: what takes more does not end.
expression.budget = 1000 * 1000

-- a library as expressions see it: to be called, not changed
local function view(library)
  return setmetatable({}, { __index = library, __metatable = false,
    __newindex = function(_, name) error(("'%s' cannot be set"):format(name), 0) end })
end

local functions = { abs = math.abs, ceil = math.ceil, floor = math.floor, log = math.log,
  max = math.max, min = math.min, sqrt = math.sqrt, tonumber = tonumber, tostring = tostring,
  string = view(string), math = view(math) }

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

local function fail(text, problem)
  base.raise("MR_E_USAGE", ("expression '%s': %s"):format(text,
    (tostring(problem):gsub("^%[string .-%]:%d+: ", ""))))
end

--- Compile an expression for rows of an index.
---@param text string
---@param columns string[]  of the index
---@return fun(r: table): any, string|nil  its value; or nil and why it has none: a value that the
---   row lacks. Raises MR_E_USAGE: no expression, an unknown name, a failure
function expression.compile(text, columns)
  local current, missing
  local readers = {}
  local env = setmetatable({}, {
    __index = function(_, name)
      if functions[name] then
        return functions[name]
      end
      readers[name] = readers[name] or row_fields.reader(name, columns, "expression", false)
      local value = readers[name](current)
      if value == nil then
        missing = name
      end
      return value
    end,
    __newindex = function(_, name) error(("'%s' cannot be set"):format(name), 0) end,
  })
  local f, problem = load("return " .. text, text, "t", env)
  if not f then
    fail(text, problem)
  end
  local function too_long()
    error(("does not end within %d instructions"):format(expression.budget), 0)
  end
  return function(r)
    current, missing = r, nil
    debug.sethook(too_long, "", expression.budget)
    local ok, value = pcall(f)
    debug.sethook()
    if ok then
      return value
    end
    if missing then
      return nil, "no value of " .. missing
    end
    if type(value) == "table" then
      error(value, 0)
    end
    fail(text, ("%s: %s"):format(r.path, tostring(value):gsub("^.-:%d+: ", "")))
  end
end

return expression
