--- Reads lines of a file to which another process appends, perhaps on another host. Each look opens
-- the file again, because network file systems show new lines only then. Only complete lines are
-- returned: the next writer cuts off a line that a crash left unfinished, and the position for the
-- next look is never inside a line.
-- @module moonreel.runs.tail
local json = require "moonreel.core.json"

local tail = {}

local BLOCK <const> = 1 << 16   -- bytes read at once
local FIRST <const> = 1 << 15   -- bytes of the end that are read first
local LARGE <const> = 1 << 18   -- bytes of a block that is only searched
local SEARCHED <const> = 4 << 20 -- most bytes of the end that are searched
local MOST <const> = 8 << 20    -- most bytes of the end that are read; a line has at most 1 MiB

local Tail = {}
Tail.__index = Tail

--- Follows a file from its beginning; the file need not exist yet.
---@param path string
---@return mr.Tail
function tail.open(path)
  return setmetatable({ path = path, at = 0 }, Tail)
end

--- A line as an object; nil: it is not JSON, or not an object.
---@param line string
---@return table|nil
function tail.decode(line)
  local good, entry = pcall(json.decode, line)
  if good and type(entry) == "table" and not json.is_array(entry) then
    return entry
  end
end

--- The step of a line "step", without decoding the whole line: decoding all lines of a long journal
-- takes seconds. nil: another kind of line, or one that has to be decoded.
---@param line string
---@return integer|nil
function tail.step_of(line)
  return line:find('"kind":"step"', 1, true) and line:sub(-1) == "}"
    and not line:find('"sources":', 1, true)
    and math.tointeger(tonumber(line:match('"step":(%d+)'))) or nil
end

--- Iterates over the complete lines that were appended since the last call.
---@return fun(): string|nil
function Tail:lines()
  local file = io.open(self.path, "rb")
  local rest, from = "", 1
  if file then
    -- a file that became shorter is another file
    if file:seek("end") < self.at then
      self.at = 0
    end
    file:seek("set", self.at)
  end
  return function()
    while file do
      local stop = rest:find("\n", from, true)
      if stop then
        local line = rest:sub(from, stop - 1)
        self.at, from = self.at + stop + 1 - from, stop + 1
        return line
      end
      local more = file:read(BLOCK)
      if not more then
        file:close()
        file = nil
      else
        rest, from = rest:sub(from) .. more, 1
      end
    end
  end
end

--- Iterates over the objects among these lines.
---@return fun(): table|nil
function Tail:entries()
  local lines = self:lines()
  return function()
    while true do
      local line = lines()
      local entry = line and tail.decode(line)
      if entry or not line then
        return entry
      end
    end
  end
end

--- Passes the newest lines of a file to a function, newest first, until it returns true. Only the
-- end of the file is read: up to 8 MiB of it, as long as the function wants more.
---@param path string
---@param see fun(entry: table): boolean|nil  true: enough
---@return integer bytes  of the file; 0: it does not exist
function tail.newest(path, see)
  local file <close> = io.open(path, "rb")
  if not file then
    return 0
  end
  local size = file:seek("end")
  local upper, block = size, FIRST
  local kept = ""
  local cut = true -- the text after the last line break is not a complete line
  while upper > 0 and size - upper < MOST do
    local lower = math.max(0, upper - block)
    file:seek("set", lower)
    local text = (file:read(upper - lower) or "") .. kept
    upper, block = lower, block * 4
    local stop = #text
    if cut then
      stop = text:match("^.*()\n") or 0
      cut = stop == 0
      stop = stop - 1
    end
    -- lines that begin in this text; the first one may begin before it
    while stop > 0 do
      local before = text:sub(1, stop):match("^.*()\n")
      if not before and lower > 0 then
        break
      end
      local entry = tail.decode(text:sub((before or 0) + 1, stop))
      if entry and see(entry) then
        return size
      end
      stop = (before or 1) - 1
    end
    kept = text:sub(1, math.max(stop, 0))
  end
  return size
end

-- the complete line around a position of a text that ends with a complete line; nil: it begins
-- before the text
local function line_around(text, at, is_whole)
  local before = text:sub(1, at):match("^.*()\n")
  if not before and not is_whole then
    return nil
  end
  return text:sub((before or 0) + 1, (text:find("\n", at, true) or #text + 1) - 1)
end

--- The newest line of a file that contains a text. Other lines are not decoded.
---@param path string
---@param plain string    as it is written in the line
---@return table|nil      nil: there is no such line in the last 4 MiB
function tail.newest_with(path, plain)
  local file <close> = io.open(path, "rb")
  if not file then
    return nil
  end
  local size = file:seek("end")
  local upper, kept = size, ""
  while upper > 0 and size - upper < SEARCHED do
    local lower = math.max(0, upper - LARGE)
    file:seek("set", lower)
    local text = (file:read(upper - lower) or "") .. kept
    local at, found = 0, nil
    while at do
      found, at = at > 0 and at or found, text:find(plain, at + 1, true)
    end
    local entry = found and tail.decode(line_around(text, found, lower == 0) or "")
    if entry then
      return entry
    end
    -- a line that begins before this block is read with the next block
    upper, kept = lower, text:match("^[^\n]*\n") or text
  end
end

return tail
