--- Completions of the Tab key: names, fields, methods and ops, and inside quotes the tensors of the
-- open checkpoint.
-- @module moonreel.repl.complete
local help = require "moonreel.repl.help"

local complete = {}

local keywords = { "and", "break", "do", "else", "elseif", "end", "false",
  "for", "function", "goto", "if", "in", "local", "nil", "not",
  "or", "repeat", "return", "then", "true", "until", "while" }
local is_keyword = {}
for _, word in ipairs(keywords) do
  is_keyword[word] = true
end

-- can a field of this name follow a dot?
local function is_name(key)
  return type(key) == "string" and key:match "^[%a_][%w_]*$" ~= nil and not is_keyword[key]
end

-- the value of a path like ckpt.settings or index; no function is called
local function value_at(session, path)
  local value
  for part in path:gmatch("[^.]+") do
    if value == nil then
      local known
      value, known = session.chunk:get(part)
      if not known then
        value = session.env[part]
      end
    else
      local ok, inner = pcall(function() return value[part] end)
      value = ok and inner or nil
    end
    if value == nil then
      return nil
    end
  end
  return value
end

local function starting_with(list, prefix, head)
  local out = {}
  for _, word in ipairs(list) do
    if word:sub(1, #prefix) == prefix then
      out[#out + 1] = head .. word
    end
  end
  table.sort(out)
  return out
end

-- is the position inside quotes, and in which call: `help("` or `ckpt:ls("`
local function quoted(before)
  local open
  for i = 1, #before do
    local c = before:sub(i, i)
    if c == open and before:sub(i - 1, i - 1) ~= "\\" then
      open = nil
    elseif not open and (c == '"' or c == "'") then
      open = c
    end
  end
  return open and before:match("([%w_.:]+)%s*[%(%[]?%s*[\"'][^\"']*$") or open
end

-- completions inside quotes: tensors of the checkpoint, or ops and fields for help
local function texts(session, call, word)
  if call == "help" or call == "why" then
    return starting_with(call == "help" and help.names() or help.field_names(), word, "")
  end
  local owner = call and call:match("^([%a_][%w_.]*)") or nil
  local value = owner and value_at(session, owner)
  local meta = value and debug.getmetatable(value)
  if not (type(meta) == "table" and meta.__name == "mr.Checkpoint") then
    value = session.env.ckpt
  end
  if not value then
    return {}
  end
  local list, out, seen = value:names(), {}, {}
  for _, name in ipairs(list) do
    if name:sub(1, #word) == word then
      -- only up to the next dot, so that a deep tree is completed step by step
      local stop = name:find(".", #word + 1, true)
      local piece = stop and name:sub(1, stop) or name
      if not seen[piece] then
        seen[piece] = true
        out[#out + 1] = piece
      end
    end
  end
  if #out == 1 and out[1]:sub(-1) == "." then
    return texts(session, call, out[1])
  end
  return require("moonreel.ckpt.names").sort(out)
end

--- The completions for the bytes from..to of a line.
---@return string[]
function complete.words(session, line, from, to)
  local before, word = line:sub(1, from - 1), line:sub(from, to)
  local call = quoted(before)
  if call then
    return texts(session, call, word)
  end
  local path, mark, prefix = word:match("^([%a_][%w_.]*)([.:])([%w_]*)$")
  if path then
    -- the last dot separates owner and field
    local value = value_at(session, path)
    if value == nil then
      return {}
    end
    local list = {}
    for _, name in ipairs(help.members(value)) do
      local ok, member = pcall(function() return value[name] end)
      if is_name(name) and (mark == "." or ok and type(member) == "function") then
        list[#list + 1] = name
      end
    end
    return starting_with(list, prefix, path .. mark)
  end
  local list, seen = {}, {}
  local function add(name)
    if is_name(name) and not seen[name] then
      seen[name] = true
      list[#list + 1] = name
    end
  end
  for name in pairs(session.env) do
    add(name)
  end
  for name in pairs(_G) do
    add(name)
  end
  for _, name in ipairs(session.chunk:locals()) do
    add(name)
  end
  table.move(keywords, 1, #keywords, #list + 1, list)
  return starting_with(list, word, "")
end

return complete
