--- Encodes fields of protobuf messages as bytes. A message is the concatenation of its fields; a
-- field is a varint `number << 3 | type` and a value. Ref: protobuf.dev, "Encoding".
-- @module moonreel.trackers.proto
local proto = {}

local VARINT <const>, EIGHT <const>, BYTES <const>, FOUR <const> = 0, 1, 2, 5

local single = {}
for i = 0, 127 do
  single[i] = string.char(i)
end

--- Encodes an integer as a varint.
---@param n integer  a negative one takes 10 bytes, as in int64
---@return string
function proto.varint(n)
  local text = single[n]
  if text then
    return text
  end
  local list = {}
  while n < 0 or n > 127 do
    list[#list + 1] = string.char(n & 127 | 128)
    n = n >> 7
  end
  list[#list + 1] = string.char(n)
  return table.concat(list)
end

-- keys of fields up to 31
local keys = {}
for i = 0, 255 do
  keys[i] = proto.varint(i)
end

local function key(number, kind)
  local n = number << 3 | kind
  return keys[n] or proto.varint(n)
end

--- Encodes a field of int32, int64, bool or enum.
---@param number integer  number of the field
---@param n integer
---@return string
function proto.integer(number, n) return key(number, VARINT) .. proto.varint(n) end

--- Encodes a field of double.
---@param number integer  number of the field
---@param x number
---@return string
function proto.double(number, x) return key(number, EIGHT) .. string.pack("<d", x) end

--- Encodes a field of float; x is rounded to the nearest float.
---@param number integer  number of the field
---@param x number
---@return string
function proto.float(number, x) return key(number, FOUR) .. string.pack("<f", x) end

--- Encodes a field of string, bytes, a message or packed numbers.
---@param number integer  number of the field
---@param text string
---@return string
function proto.bytes(number, text)
  return key(number, BYTES) .. proto.varint(#text) .. text
end

-- heads of short fields, by number << 7 | size
local heads = setmetatable({}, { __index = function(all, at)
  all[at] = key(at >> 7, BYTES) .. proto.varint(at & 127)
  return all[at]
end })

--- The bytes before the `size` bytes of such a field.
---@param number integer  number of the field
---@param size integer    bytes
---@return string
function proto.head(number, size)
  return size < 128 and heads[number << 7 | size] or key(number, BYTES) .. proto.varint(size)
end

return proto
