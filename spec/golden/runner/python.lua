--- Reads the reference's recipe files: assignments of literals, dict(...), arithmetic and names.
-- A file becomes {bases, fields = {{name, node}}}. A node is {op, ...}: value, list, dict, name
-- (a dotted path), binary, negative. Functions, imports and names with two underscores are dropped,
-- as the reference drops them. Ref: opensora-2.0.md 7.1.
-- @module spec.golden.runner.python
local marker = require "moonreel.recipe.marker"
local literal = require "moonreel.recipe.literal"

local python = {}

local Parser = {}
Parser.__index = Parser

function Parser:skip()
  self.at = self.text:find("[^%s\\]", self.at) or #self.text + 1
end

-- the text that a plain pattern matches here, or nil
function Parser:take(pattern)
  self:skip()
  local from, to = self.text:find("^" .. pattern, self.at)
  if not from then
    return nil
  end
  self.at = to + 1
  return self.text:sub(from, to)
end

function Parser:want(pattern)
  return self:take(pattern) or error(("python: expected %s at '%s'"):format(pattern,
    self.text:sub(self.at, self.at + 20)), 0)
end

-- items up to a closing bracket, each read by `item`
function Parser:items(closing, item)
  local out = {}
  while not self:take(closing) do
    out[#out + 1] = item()
    if not self:take(",") then
      self:want(closing)
      break
    end
  end
  return out
end

function Parser:dict(closing, separator, key)
  return { op = "dict", pairs = self:items(closing, function()
    local name = key()
    self:want(separator)
    return { name, self:expression(1) }
  end) }
end

function Parser:atom()
  local quoted = self:take("'[^'\n]*'") or self:take('"[^"\n]*"')
  if quoted then
    return { op = "value", value = literal.read(quoted) }
  end
  local number = self:take("[%d.][%w_.]*[eE][+-]%d+") or self:take("%.?%d[%w_.]*")
  if number then
    return { op = "value", value = literal.number(number) }
  end
  if self:take("dict%s*%(") then
    return self:dict("%)", "=", function() return self:want("[%a_][%w_]*") end)
  elseif self:take("{") then
    return self:dict("}", ":", function() return self:expression(1).value end)
  elseif self:take("%[") then
    return { op = "list", items = self:items("%]", function() return self:expression(1) end) }
  elseif self:take("%(") then
    local from = self.at
    local items = self:items("%)", function() return self:expression(1) end)
    -- one value in parentheses is that value, unless a comma follows it
    if #items == 1 and not self.text:sub(from, self.at):find(",%s*%)") then
      return items[1]
    end
    return { op = "list", items = items }
  end
  local word = self:want("[%a_][%w_.]*")
  local constants = { True = true, False = false, None = marker.none }
  if constants[word] ~= nil then
    return { op = "value", value = constants[word] }
  end
  local path = {}
  for part in word:gmatch("[^.]+") do
    path[#path + 1] = part
  end
  return { op = "name", path = path }
end

-- signs by how strongly they bind
local binary = { { "%+", "-" }, { "%*%f[^*]", "//", "/", "%%" } }

function Parser:expression(level)
  if level > #binary then
    if self:take("-") then
      return { op = "negative", self:expression(level) }
    end
    local base = self:atom()
    return self:take("%*%*") and { op = "binary", "^", base, self:expression(level) } or base
  end
  local left = self:expression(level + 1)
  while true do
    local sign
    for _, one in ipairs(binary[level]) do
      sign = sign or self:take(one)
    end
    if not sign then
      return left
    end
    left = { op = "binary", sign, left, self:expression(level + 1) }
  end
end

--- Read one file.
---@param text string
---@param name string  its name: `{{ fileBasenameNoExtension }}` stands for it
---@return table  {bases = texts, fields = {{name, node}, ...}}
function python.read(text, name)
  text = text:gsub("{{%s*fileBasenameNoExtension%s*}}", name:match("([^/]*)%.%w+$"))
  text = text:gsub("{{%s*(_base_[%w_.]*)%s*}}", "%1")
  -- indented lines after `def` are its body
  text = ("\n" .. text):gsub("\ndef [^\n]*", ""):gsub("\nimport [^\n]*", "")
    :gsub("\n    return[^\n]*", "")
  local self = setmetatable({ text = text, at = 1 }, Parser)
  local out = { bases = {}, fields = {} }
  self:skip()
  while self.at <= #text do
    local field = self:want("[%a_][%w_]*")
    self:want("=")
    local node = self:expression(1)
    if field == "_base_" then
      for i, base in ipairs(node.items or { node }) do
        out.bases[i] = base.value
      end
    elseif not field:match("^__") then
      out.fields[#out.fields + 1] = { field, node }
    end
    self:skip()
  end
  return out
end

return python
