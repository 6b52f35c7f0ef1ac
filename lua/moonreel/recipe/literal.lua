--- One reader for Lua, Python and JSON literals, `{4,6,6}`, `[4,6,6]`, `(4, 50)`, `{1: (1.0, 2)}`,
-- and for the markers of the recipe language. It evaluates no code.
-- @module moonreel.recipe.literal
local marker = require "moonreel.recipe.marker"

local literal = {}

local words = { ["true"] = true, ["false"] = false, none = marker.none, null = marker.none,
  ["nil"] = marker.none }
local markers = { ["recipe.none"] = marker.none, ["recipe.remove"] = marker.remove,
  ["recipe.previous"] = marker.previous }
local escapes = { n = "\n", t = "\t", r = "\r", b = "\b", f = "\f", a = "\a",
  v = "\v", ["0"] = "\0",
  ["\\"] = "\\", ["'"] = "'", ['"'] = '"', ["/"] = "/" }
local closing = { ["{"] = "}", ["["] = "]", ["("] = ")" }

--- A marker as recipes write it: recipe.none, recipe.remove, recipe.previous.
---@param text string
---@return table|nil
function literal.marker(text)
  return markers[text]
end

--- A number of Lua, Python or JSON: 1_000, 0x10, 0b11, 0o17, 007, .5, 1e-3, +7.
---@param text string
---@return number|nil
function literal.number(text)
  local body = text:match("^%s*(.-)%s*$")
  local sign, rest = body:match("^([+-]?)(.*)$")
  -- underscores only between digits
  if rest:find("_") then
    local between = rest:find "^0[xX]" and "[^%x]" or "[^%d]"
    if ("." .. rest):find(between .. "_") or (rest .. "."):find("_" .. between) then
      return nil
    end
    rest = rest:gsub("_", "")
  end
  local value
  local bits, octal = rest:match("^0[bB]([01]+)$"), rest:match("^0[oO]([0-7]+)$")
  if bits then
    value = tonumber(bits, 2)
  elseif octal then
    value = tonumber(octal, 8)
  elseif rest:match("^%d+$") or rest:match("^0[xX]%x+$") then
    value = math.tointeger(tonumber(rest)) or tonumber(rest)
  elseif rest:match("^%d+%.?%d*[eE][+-]?%d+$") or rest:match("^%.%d+[eE][+-]?%d+$")
      or rest:match("^%d+%.%d*$")
    or rest:match("^%.%d+$") then
    value = tonumber(rest)
  end
  if value and value == value and math.abs(value) ~= math.huge then
    return sign == "-" and -value or value
  end
end

local Reader = {}
Reader.__index = Reader

function Reader:fail(form, ...)
  error({ literal = form:format(...) .. " at character " .. self.at }, 0)
end

function Reader:blank()
  self.at = self.text:find("%S", self.at) or #self.text + 1
  return self.text:sub(self.at, self.at)
end

function Reader:quoted(quote)
  local out, at = {}, self.at + 1
  while true do
    local c = self.text:sub(at, at)
    if c == "" then
      self:fail("text without its closing %s", quote)
    end
    if c == quote then
      break
    end
    if c == "\\" then
      local e = self.text:sub(at + 1, at + 1)
      local code = self.text:match("^u(%x%x%x%x)", at + 1)
      if code then
        out[#out + 1] = utf8.char(tonumber(code, 16))
        at = at + 6
      elseif escapes[e] then
        out[#out + 1] = escapes[e]
        at = at + 2
      else
        self:fail("unknown escape \\%s", e)
      end
    else
      out[#out + 1] = c
      at = at + 1
    end
  end
  self.at = at + 1
  return table.concat(out)
end

-- a number, a word or a marker
function Reader:bare(depth)
  local piece = self.text:match("^[%w_%.+-]+", self.at)
  if not piece then
    local c = self.text:sub(self.at, self.at)
    self:fail(c == "" and "a value is missing" or "unexpected '%s'", c)
  end
  self.at = self.at + #piece
  local number = literal.number(piece)
  if number then
    return number
  end
  if piece == "recipe.replace" and self:blank() == "{" then
    return marker.replace(self:table("{", depth + 1))
  end
  local word = markers[piece]
  if word == nil then
    word = words[piece:lower()]
  end
  return word, piece
end

function Reader:table(open, depth)
  if depth > 32 then
    self:fail("nested deeper than 32")
  end
  local out, position, close = {}, 0, closing[open]
  self.at = self.at + 1
  while true do
    local c = self:blank()
    if c == close then
      break
    end
    local key, value
    if c == "[" and open == "{" and self.text:find("^%[[^%[%]]*%]%s*=", self.at) then
      -- [key] = value
      self.at = self.at + 1
      self:blank()
      key = self:value(depth)
      if self:blank() ~= "]" then
        self:fail("expected ]")
      end
      self.at = self.at + 1
    else
      local from, word = self.at
      value, word = self:value(depth, true)
      local sep = self:blank()
      if open == "{" and (sep == ":" or sep == "=") then
        key, value = word or value, nil
      elseif word and value == nil then
        self.at = from
        self:fail("text needs quotes: '%s'", word)
      end
    end
    if key ~= nil then
      local sep = self:blank()
      if sep ~= ":" and sep ~= "=" then
        self:fail("expected = or : after a key")
      end
      self.at = self.at + 1
      self:blank()
      value = self:value(depth)
      if math.type(key) == "float" then
        key = math.tointeger(key) or key
      end
      if type(key) ~= "string" and math.type(key) ~= "integer" then
        self:fail("a key is text or an integer")
      end
    else
      position = position + 1
      key = position
    end
    if out[key] ~= nil then
      self:fail("key %s twice", tostring(key))
    end
    out[key] = value
    local c2 = self:blank()
    if c2 == "," or (c2 == ";" and open == "{") then
      self.at = self.at + 1
    elseif c2 ~= close then
      self:fail(c2 == "" and "missing %s" or "expected , or %s", close)
    end
  end
  self.at = self.at + 1
  return out
end

function Reader:value(depth, word_allowed)
  local c = self:blank()
  if closing[c] then
    return self:table(c, depth + 1)
  end
  if c == '"' or c == "'" then
    return self:quoted(c)
  end
  local value, word = self:bare(depth)
  if value == nil and not word_allowed then
    self.at = self.at - #word
    self:fail("text needs quotes: '%s'", word)
  end
  return value, word
end

--- Read one literal.
---@param text string
---@return any|nil value   plain data; marker.none for none
---@return string|nil problem
function literal.read(text)
  local reader = setmetatable({ text = text, at = 1 }, Reader)
  local ok, value = pcall(function()
    local value = reader:value(0)
    if reader:blank() ~= "" then
      reader:fail("unexpected '%s'", reader.text:sub(reader.at, reader.at))
    end
    return value
  end)
  if ok then
    return value
  end
  if type(value) == "table" and value.literal then
    return nil, value.literal
  end
  error(value, 0)
end

return literal
