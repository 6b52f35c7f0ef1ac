--- Reads event files and W&B logs without the writers' code; makes journals for them.
local json = require "moonreel.core.json"

local tracked = {}

-- fields of a message: {{number, value}, ...}; value is an integer, or bytes
local function fields(text)
  local list, at = {}, 1
  local function varint()
    local n, shift = 0, 0
    while true do
      local b = text:byte(at)
      n, at, shift = n | (b & 127) << shift, at + 1, shift + 7
      if b < 128 then
        return n
      end
    end
  end
  while at <= #text do
    local key = varint()
    local kind, value = key & 7
    if kind == 0 then
      value = varint()
    else
      local n = kind == 1 and 8 or kind == 5 and 4 or varint()
      value, at = text:sub(at, at + n - 1), at + n
    end
    list[#list + 1] = { key >> 3, value }
  end
  return list
end
tracked.fields = fields

--- The first value of a field; nil: it is missing.
function tracked.get(text, ...)
  for _, number in ipairs { ... } do
    local found
    for _, one in ipairs(text and fields(text) or {}) do
      found = found or one[1] == number and one[2] or nil
    end
    text = found
  end
  return text
end
local get = tracked.get

--- The events of a file: {{wall, step, version, start = boolean, values = {[tag] = ...}}, ...}. A
-- value is a number, or the bytes of its message.
function tracked.events(text)
  local list, at = {}, 1
  while at <= #text do
    local n = string.unpack("<I8", text, at)
    local event = text:sub(at + 12, at + 11 + n)
    assert(#event == n, "the last record is torn")
    local one = { wall = string.unpack("<d", get(event, 1)), step = get(event, 2) or 0,
      version = get(event, 3), start = get(event, 7, 1) == 1, values = {} }
    for _, value in ipairs(fields(get(event, 5) or "")) do
      local tag, number = get(value[2], 1), get(value[2], 2)
      one.values[tag] = number and string.unpack("<f", number) or value[2]
    end
    list[#list + 1], at = one, at + 16 + n
  end
  return list
end

--- The records of a log: {{field, message}, ...}; checksums are not checked.
function tracked.records(text)
  local list, at, part = {}, 7, nil
  while at < #text do
    local left = 32768 - at % 32768
    if left < 7 then
      at = at + left
    else
      local n, kind = string.unpack("<I2B", text, at + 5)
      part = (part or "") .. text:sub(at + 8, at + 7 + n)
      at = at + 7 + n
      if kind == 1 or kind == 4 then
        local row = fields(part)
        list[#list + 1], part = { row[2][1], row[2][2], number = row[1][2] }, nil
      end
    end
  end
  return list
end

--- Keys and values of the items of a message.
function tracked.items(message, field)
  local values = {}
  for _, one in ipairs(fields(message)) do
    if one[1] == field then
      local text = get(one[2], 16)
      values[get(one[2], 1)] = text == "NaN" and "NaN" or text == "Infinity" and "Infinity"
        or json.decode(text)
    end
  end
  return values
end

--- A line of a session's start, of a step, and so on.
function tracked.start(step, more)
  local line = { kind = "start", step = step, run = "abc123", branch = 1, wall = 1.75e9 + step }
  for key, value in pairs(more or {}) do
    line[key] = value
  end
  return line
end

function tracked.step(n, loss)
  return { kind = "step", step = n, loss = loss or 1 / n, grad_norm = 0.1 * n, lr = 1e-4, t = 500.5,
    epoch = 0, samples = 8, time_s = 0.5, data_wait_s = 0.25, bucket = "6x32x32 b8 l56",
    wall = 1.75e9 + n }
end

--- Lines as a file.
function tracked.text(lines)
  local list = {}
  for i, line in ipairs(lines) do
    list[i] = type(line) == "string" and line or json.encode(line)
  end
  return table.concat(list, "\n") .. "\n"
end

return tracked
