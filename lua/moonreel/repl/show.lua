--- Prints values in the form that users expect at a prompt.
-- @module moonreel.repl.show
local clean = require "moonreel.text.clean"
local listing = require "moonreel.text.listing"

local show = {}

-- bytes written at once, so that Ctrl-C is seen in between; bytes shown of a text inside a table
local PIECE, SHOWN_INSIDE = 1 << 14, 1 << 12

-- splits a text into pieces at character boundaries
local function pieces(text)
  local at = 1
  return function()
    if at > #text then
      return nil
    end
    local stop = math.min(at + PIECE - 1, #text)
    for _ = 1, 3 do
      -- the next byte continues this character
      local byte = text:byte(stop + 1)
      if not byte or byte < 0x80 or byte > 0xBF then
        break
      end
      stop = stop - 1
    end
    local piece = text:sub(at, stop)
    at = stop + 1
    return piece
  end
end

--- Writes a text of any length. Ctrl-C stops it between two pieces.
---@param text string
function show.write(text)
  for piece in pieces(text) do
    io.write(piece)
  end
end

-- Escapes the inside of a quoted text: only quotes and bytes that are unsafe for a terminal, so
-- that captions stay readable.
local function escaped(text)
  return clean((text:gsub('[\\"]', "\\%0"):gsub("\n", "\\n")))
end

local printers = {}  -- metatable __name -> function(value) -> text

--- Sets how values of a type are printed.
---@param name string  __name of their metatable
---@param f fun(value: any): string
function show.printer(name, f) printers[name] = f end

local function key_text(key)
  if type(key) == "string" then
    return key:match("^[%a_][%w_]*$") and key or "[" .. ('"%s"'):format(clean(key)) .. "]"
  end
  return "[" .. tostring(key) .. "]"
end

local function order(a, b)
  if type(a) ~= type(b) then
    return type(a) == "number"
  end
  if type(a) == "number" or type(a) == "string" then
    return a < b
  end
  return tostring(a) < tostring(b)
end

local text_of

local function type_name(value)
  local meta = debug.getmetatable(value)
  return type(meta) == "table" and rawget(meta, "__name") or nil
end

-- the name of a module of moonreel
local function module_name(value)
  for name, module in pairs(package.loaded) do
    if module == value and type(name) == "string" and name:match("^moonreel%.") then
      return name
    end
  end
end

local function table_text(value, indent, seen)
  if seen[value] then
    return "{...}"
  end
  seen[value] = true
  local parts, keys, n, wide = {}, {}, 0, 0
  for i = 1, #value do
    n = i
    if i > 100 then
      break
    end
    -- rawget, because a module may refuse unknown keys
    parts[#parts + 1] = text_of(rawget(value, i), indent + 2, seen)
  end
  if n > 100 then
    parts[#parts] = ("... %d in all"):format(#value)
  end
  for key in pairs(value) do
    if not (math.type(key) == "integer" and key >= 1 and key <= #value) then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys, order)
  for i, key in ipairs(keys) do
    if i > 100 then
      parts[#parts + 1] = ("... %d fields in all"):format(#keys)
      break
    end
    parts[#parts + 1] = key_text(key) .. " = " .. text_of(value[key], indent + 2, seen)
  end
  seen[value] = nil
  for _, part in ipairs(parts) do
    wide = wide + #part + 2
  end
  if #parts == 0 then
    return "{}"
  end
  local many_lines = wide + indent > 100
  for _, part in ipairs(parts) do
    many_lines = many_lines or part:find("\n", 1, true) ~= nil
  end
  if not many_lines then
    return "{ " .. table.concat(parts, ", ") .. " }"
  end
  local pad = (" "):rep(indent + 2)
  return "{\n" .. pad .. table.concat(parts, ",\n" .. pad) .. ",\n" .. (" "):rep(indent) .. "}"
end

function text_of(value, indent, seen)
  local name = type_name(value)
  if name and printers[name] then
    local text = printers[name](value)
    return indent == 0 and text or (text:gsub("\n.*", " ..."))
  end
  if type(value) == "string" then
    if #value <= SHOWN_INSIDE then
      return '"' .. escaped(value) .. '"'
    end
    return ('"%s" ... %d bytes'):format(escaped(value:sub(1, SHOWN_INSIDE)), #value)
  end
  local module = type(value) == "table" and module_name(value)
  if module then
    return ("module %s; help() about it: help(\"%s\")"):format(module, module)
  end
  if type(value) == "table" and not (debug.getmetatable(value)
      and debug.getmetatable(value).__tostring) then
    return table_text(value, indent, seen)
  end
  if math.type(value) == "float" then
    return ("%.10g"):format(value):gsub("^(%-?%d+)$", "%1.0") .. ""
  end
  local text = tostring(value)
  if listing.is(value) then
    return text
  end
  local lines = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do
    lines[#lines + 1] = clean(line)
  end
  return table.concat(lines, "\n")
end

--- The text of a value.
---@param value any
---@return string
function show.text(value) return text_of(value, 0, {}) end

--- Prints the results of one input; prints nothing if there are no results.
---@param results table  packed
function show.results(results)
  if results.n == 0 or (results.n == 1 and results[1] == nil) then
    return
  end
  local only = results[1]
  if results.n == 1 and type(only) == "string" and #only > SHOWN_INSIDE then
    -- a long text is shown whole, in pieces
    io.write('"')
    for piece in pieces(only) do
      io.write(escaped(piece))
    end
    io.write('"\n')
    return
  end
  local parts = {}
  for i = 1, results.n do
    parts[i] = show.text(results[i])
  end
  show.print(table.concat(parts, results.n > 1 and "\t" or ""))
end

--- Implements print() of the prompt: like Lua's print, but long texts are written in pieces.
function show.print(...)
  local values, long = table.pack(...), false
  for i = 1, values.n do
    values[i] = tostring(values[i])
    long = long or #values[i] > PIECE
  end
  if not long then
    print(table.unpack(values, 1, values.n))
    return
  end
  for i = 1, values.n do
    io.write(i > 1 and "\t" or "")
    show.write(values[i])
  end
  io.write("\n")
end

return show
