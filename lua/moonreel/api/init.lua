--- Documentation of the bindings: modules, types, and the rows of their functions.
-- @module moonreel.api
local core = require "moonreel.core.api"

local api = {}

---@class moonreel.api.Row
---@field name string
---@field type string             "(dtype: mr.Dtype, dims: integer[]): mr.Tensor", or a field's type
---@field doc string
---@field call function|nil       nil: a field
---@field options table[]|nil     fields {name, type, doc, default} of the argument `options`

---@class moonreel.api.Face
---@field name string             "moonreel.core.tensor" or "mr.Tensor"
---@field doc string
---@field rows moonreel.api.Row[]

local all, by_function

--- Every module and type of the bindings, by name. This opens all modules of the core.
---@return table<string, moonreel.api.Face>
function api.faces()
  if not all then
    for name in pairs(package.preload) do
      if name:match("^moonreel%.core%.") then
        require(name)
      end
    end
    all = core.faces()
  end
  return all
end

--- The sorted names of the modules or of the types.
---@param kind string  "module" or "type"
---@return string[]
function api.names(kind)
  local out, start = {}, kind == "module" and "^moonreel%." or "^mr%."
  for name in pairs(api.faces()) do
    if name:match(start) then
      out[#out + 1] = name
    end
  end
  table.sort(out)
  return out
end

--- Finds the row of a function of the bindings.
---@param f function
---@return moonreel.api.Row|nil row
---@return moonreel.api.Face|nil face
function api.find(f)
  if not by_function then
    by_function = {}
    for _, face in pairs(api.faces()) do
      for _, row in ipairs(face.rows) do
        if row.call then
          by_function[row.call] = { row, face }
        end
      end
    end
  end
  local found = by_function[f]
  if found then
    return found[1], found[2]
  end
end

-- parts of a text at commas outside brackets
local function split(text)
  local parts, depth, from = {}, 0, 1
  for i = 1, #text do
    local c = text:sub(i, i)
    if c:match("[%(%[{<]") then
      depth = depth + 1
    elseif c:match("[%)%]}>]") then
      depth = depth - 1
    elseif c == "," and depth == 0 then
      parts[#parts + 1] = text:sub(from, i - 1):match("^%s*(.-)%s*$")
      from = i + 1
    end
  end
  local last = text:sub(from):match("^%s*(.-)%s*$")
  if last ~= "" then
    parts[#parts + 1] = last
  end
  return parts
end

--- Parses a signature.
---@param row moonreel.api.Row
---@return table[] arguments  {name, type, optional}
---@return string[] results   types
function api.signature(row)
  local inner, results = row.type:match("^(%b()):?%s*(.*)$")
  local arguments = {}
  for i, part in ipairs(split(inner:sub(2, -2))) do
    local name, optional, kind = part:match("^([%w_%.]+)(%??):%s*(.+)$")
    arguments[i] = { name = name, type = kind, optional = optional == "?" }
  end
  return arguments, split(results)
end

--- How to call a function: "T.new(dtype, dims) -> mr.Tensor", "tensor:slice(axis, start, stop)".
---@param owner string  text before its name, with the dot or colon
---@param row moonreel.api.Row
---@return string
function api.call_text(owner, row)
  local arguments, results = api.signature(row)
  local names, open = {}, 0
  for i, one in ipairs(arguments) do
    if one.optional then
      open = open + 1
    end
    names[i] = (one.optional and " [" or "") .. (i > 1 and ", " or "") .. one.name
  end
  local text = table.concat(names):gsub("^ ", "")
  return ("%s%s(%s%s)%s"):format(owner, row.name, text, ("]"):rep(open),
    #results > 0 and " -> " .. table.concat(results, ", ") or "")
end

--- A default as text; nil: there is no default, or it is a table, which the description explains.
---@param option table
---@return string|nil
function api.default_text(option)
  if option.default == nil or type(option.default) == "table" then
    return nil
  end
  return type(option.default) == "number" and ("%.14g"):format(option.default)
    or tostring(option.default)
end

--- The help page of a row, for a terminal.
---@param owner string
---@param row moonreel.api.Row
---@return string
function api.text(owner, row)
  if not row.call then
    return ("%s%s: %s\n  %s"):format(owner, row.name, row.type, row.doc)
  end
  local lines = { api.call_text(owner, row), "  " .. row.doc }
  for _, one in ipairs((api.signature(row))) do
    lines[#lines + 1] = ("  %-12s %s%s"):format(one.name, one.type,
      one.optional and ", optional" or "")
  end
  for _, option in ipairs(row.options or {}) do
    lines[#lines + 1] = api.option_text(option)
  end
  return table.concat(lines, "\n")
end

--- One line about an option of a function.
---@param option table  {name, type, doc, default}
---@return string
function api.option_text(option)
  local default = api.default_text(option)
  return ("    %-14s %-18s %s"):format(option.name,
    option.type .. (default and default ~= "" and " = " .. default or ""), option.doc)
end

return api
