--- Reads the reference's recipe files: assignments of literals, dict(...), arithmetic and names.
-- A file becomes {bases, fields = {{name, node}}}. A node is {op, ...}: value, list, dict, name
-- (a dotted path), binary, negative. Functions, imports and names with two underscores are dropped,
-- as the reference drops them. What else Python computes (a comprehension, a call, a condition) is
-- not read here: `known` gives the value of its field. Ref: opensora-2.0.md 7.1.
-- @module spec.golden.runner.python
local marker = require "moonreel.recipe.marker"
local literal = require "moonreel.recipe.literal"

local python = {}

local Parser = {}
Parser.__index = Parser

-- over blanks and comments
function Parser:skip()
  repeat
    self.at = self.text:find("[^%s\\]", self.at) or #self.text + 1
    local comment = self.text:match("^#[^\n]*", self.at)
    self.at = self.at + #(comment or "")
  until not comment
end

-- the text that a plain pattern matches here, or nil
function Parser:take(pattern)
  self:skip()
  local from, to = self.text:find("^" .. pattern, self.at)
  if not from then
    return nil
  end
  self.at, self.done = to + 1, to + 1
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

-- a text on one line, or nil
function Parser:quoted()
  self:skip()
  local quote = self.text:match("^[\"']", self.at)
  local stop = quote and self.text:sub(self.at + 1):gsub("\\.", "xx"):find(quote, 1, true)
  local piece = stop and self.text:sub(self.at, self.at + stop)
  if not piece or piece:find "\n" then
    return nil
  end
  self.at = self.at + #piece
  self.done = self.at
  return (literal.read(piece))
end

function Parser:atom()
  if self:take('"""') or self:take("'''") then
    error("python: a text of several lines", 0)
  end
  local quoted = self:quoted()
  if quoted then
    return { op = "value", value = quoted }
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

-- Over the statement that begins here, to the end of its line outside brackets and texts.
function Parser:pass()
  local depth = 0
  while self.at <= #self.text do
    local triple = self.text:match("^\"\"\"", self.at) or self.text:match("^'''", self.at)
    local stop = triple and select(2, self.text:find(triple, self.at + 3, true))
    local c = self.text:sub(self.at, self.at)
    if stop then
      self.at = stop + 1
    elseif c:find "[\"']" and self:quoted() then
      depth = depth + 0
    elseif c == "\n" and depth == 0 then
      return
    else
      depth = depth + (c:find "[%[({]" and 1 or c:find "[%])}]" and -1 or 0)
      self.at = self.at + 1
    end
  end
end

-- does a statement end behind what was taken last?
function Parser:has_ended() return self.text:find("^[ \t]*[;\n#]", self.done) ~= nil end

-- the value of a field; where it is beyond this reader, the known one
function Parser:field(name, known)
  local from = self.at
  local good, node = pcall(self.expression, self, 1)
  if good and self:has_ended() then
    self:take ";"
    return node
  end
  self.at = from
  self:pass()
  return known(name)
end

-- the lines without functions and imports; indented ones after `def` are its body
local function without_functions(text)
  local lines, inside = {}, false
  for line in (text .. "\n"):gmatch("(.-)\n") do
    inside = line:find "^def " ~= nil or inside and line:find "^%s+%S" ~= nil
    lines[#lines + 1] = (inside or line:find "^import [%w_]+%s*$") and "" or line
  end
  return table.concat(lines, "\n") .. "\n"
end

--- Read one file.
---@param text string
---@param name string  its name: `{{ fileBasenameNoExtension }}` and its like stand for it
---@param known fun(field: string): table  the node of a field that this reader cannot read
---@return table  {bases = texts, fields = {{name, node}, ...}}
function python.read(text, name, known)
  local file = name:match("[^/]*$")
  for word, value in pairs { fileBasename = file, fileExtname = file:match "%.%w+$",
    fileBasenameNoExtension = file:match "^(.*)%.%w+$" } do
    text = text:gsub("{{%s*" .. word .. "%s*}}", (value:gsub("%%", "%%%%")))
  end
  text = text:gsub("{{%s*(_base_[%w_.]*)%s*}}", "%1")
  local self = setmetatable({ text = without_functions(text), at = 1 }, Parser)
  local out = { bases = {}, fields = {} }
  self:skip()
  if self.text:find("^[\"']", self.at) then
    -- what the file says of itself
    self:pass()
    self:skip()
  end
  while self.at <= #self.text do
    local field = self:want("[%a_][%w_]*")
    if self:take(":") then
      self:want("[%a_][%w_.]*")
    end
    self:want("=%f[^=]")
    if self.text:find("^%s*[%a_][%w_]*%s*=%f[^=]", self.at) then
      error("python: several names of one value", 0)
    end
    local node = self:field(field, known)
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
