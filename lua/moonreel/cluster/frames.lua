--- The messages between launcher and hosts: texts and lists of texts with a length prefix, which
-- may contain any bytes. A greeting line precedes the first message, so that the output of login
-- scripts is skipped.
-- @module moonreel.cluster.frames
local frames = {}

frames.GREETING = "\nmoonreel-node 1\n"
local MOST, PROLOGUE = 1 << 20, 1 << 16

--- Encodes a message as bytes.
---@param message table  kind, and fields: texts or lists of texts
---@return string
function frames.encode(message)
  local names, parts = {}, {}
  for name in pairs(message) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local value = message[name]
    local list = type(value) == "table"
    parts[#parts + 1] = string.pack("<s4BI4", name, list and 1 or 0, list and #value or 1)
    for _, text in ipairs(list and value or { value }) do
      parts[#parts + 1] = string.pack("<s4", tostring(text))
    end
  end
  return string.pack("<s4", table.concat(parts))
end

local function decode(text)
  local message, at = {}, 1
  while at <= #text do
    local name, list, n
    name, list, n, at = string.unpack("<s4BI4", text, at)
    local values = {}
    for i = 1, n do
      values[i], at = string.unpack("<s4", text, at)
    end
    message[name] = list == 1 and values or values[1]
  end
  return message
end

---@class moonreel.cluster.Reader
local Reader = {}
Reader.__index = Reader

--- Creates a reader that takes bytes as they arrive and returns whole messages.
---@param greeted boolean|nil  the greeting has been read already
---@return moonreel.cluster.Reader
function frames.reader(greeted)
  return setmetatable({ rest = "", greeted = greeted or false }, Reader)
end

--- Returns the next messages; raises a text if the bytes are not a message.
---@param bytes string
---@return table[]
function Reader:feed(bytes)
  local list = {}
  self.rest = self.rest .. bytes
  if not self.greeted then
    local _, stop = self.rest:find(frames.GREETING, 1, true)
    if not stop then
      if #self.rest > PROLOGUE then
        error("its output does not come from moonreel's helper; try: a shell start-up file on that "
          .. "host that prints nothing", 0)
      end
      return list
    end
    self.greeted, self.rest = true, self.rest:sub(stop + 1)
  end
  while #self.rest >= 4 do
    local n = string.unpack("<I4", self.rest)
    if n > MOST then
      error(("it sent a message of %d bytes; expected at most %d"):format(n, MOST), 0)
    elseif #self.rest < 4 + n then
      break
    end
    local good, message = pcall(decode, self.rest:sub(5, 4 + n))
    if not good or type(message.kind) ~= "string" then
      error("it sent bytes that are not a message", 0)
    end
    list[#list + 1], self.rest = message, self.rest:sub(5 + n)
  end
  return list
end

return frames
