--- TensorBoard event files: records and the messages in them. Field numbers: event.proto,
-- summary.proto, histogram.proto, tensor.proto and plugins/hparams/plugin_data.proto of TensorBoard
-- 2.21.
-- @module moonreel.trackers.tfevents
local base = require "moonreel.core.base"
local proto = require "moonreel.trackers.proto"

local tfevents = {}

local bytes, integer = proto.bytes, proto.integer
local START <const> = 1 -- SessionLog.SessionStatus
local STRING <const> = 7 -- DataType.DT_STRING

local function masked(text)
  local c = base.crc32c(text)
  return ((c >> 15 | c << 17) & 0xffffffff) + 0xa282ead8 & 0xffffffff
end

--- Encodes a record: length, checksum of the length, event, checksum of the event.
---@param event string
---@return string
function tfevents.record(event)
  local length = string.pack("<I8", #event)
  return length .. string.pack("<I4", masked(length)) .. event .. string.pack("<I4", masked(event))
end

--- The length of the whole records at the beginning of a text. A torn record may follow.
---@param text string
---@return integer bytes
function tfevents.whole(text)
  local at = 0
  while #text - at >= 16 do
    local length, sum = string.unpack("<I8I4", text, at + 1)
    if masked(text:sub(at + 1, at + 8)) ~= sum or length < 0 or length > #text - at - 16
        or masked(text:sub(at + 13, at + 12 + length))
          ~= string.unpack("<I4", text, at + 13 + length) then
      break
    end
    at = at + 16 + length
  end
  return at
end

local function event(wall, step, field)
  return proto.double(1, wall) .. integer(2, step) .. field
end

--- The first event of a file.
---@param wall number  seconds since 1970
---@return string
function tfevents.version(wall) return proto.double(1, wall) .. bytes(3, "brain.Event:2") end

--- The event at which a reader drops this step and later ones of earlier files.
---@param wall number   seconds since 1970
---@param step integer  first step of this file
---@return string
function tfevents.start(wall, step) return event(wall, step, bytes(7, integer(1, START))) end

--- An event with values.
---@param wall number   seconds since 1970
---@param step integer
---@param values string  concatenation of results of scalar, text, image or plugin
---@return string
function tfevents.values(wall, step, values) return event(wall, step, bytes(5, values)) end

-- a value always has the same length: tag and key of simple_value precede the number
local heads = setmetatable({}, { __index = function(all, tag)
  local name = bytes(1, tag) .. string.char(2 << 3 | 5)
  all[tag] = proto.head(1, #name + 4) .. name
  return all[tag]
end })

--- A scalar. A reader gets the float32 nearest to x.
---@param tag string
---@param x number  may be NaN or infinite
---@return string
function tfevents.scalar(tag, x) return heads[tag] .. string.pack("<f", x) end

local function metadata(plugin, content)
  return bytes(9, bytes(1, bytes(1, plugin) .. (content and bytes(2, content) or "")))
end

--- A text, which is shown as Markdown.
---@param tag string
---@param text string
---@return string
function tfevents.text(tag, text)
  return bytes(1, bytes(1, tag .. "/text_summary") .. metadata "text"
    .. bytes(8, integer(1, STRING) .. bytes(2, bytes(2, integer(1, 1))) .. bytes(8, text)))
end

--- A picture, or a GIF that is played.
---@param tag string
---@param data string     a PNG, JPEG or GIF
---@param height integer  pixels
---@param width integer   pixels
---@return string
function tfevents.image(tag, data, height, width)
  return bytes(1, bytes(1, tag) .. bytes(4, integer(1, height) .. integer(2, width)
    .. integer(3, 3) .. bytes(4, data)))
end

-- a field of packed doubles
local function doubles(field, list)
  return bytes(field, string.pack("<" .. ("d"):rep(#list), table.unpack(list)))
end

--- A histogram.
---@param tag string
---@param h mr.Histogram
---@return string
function tfevents.histogram(tag, h)
  return bytes(1, bytes(1, tag) .. bytes(5, proto.double(1, h.min)
    .. proto.double(2, h.limits[#h.limits]) .. proto.double(3, h.num) .. proto.double(4, h.sum)
    .. proto.double(5, h.sum_squares) .. doubles(6, h.limits) .. doubles(7, h.counts)))
end

local function plugin_value(tag, content)
  return bytes(1, bytes(1, tag) .. metadata("hparams", content))
end

local kinds = { string = 1, boolean = 2, number = 3 }

local function google_value(x)
  if type(x) == "number" then
    return proto.double(2, x)
  end
  return type(x) == "boolean" and integer(4, x and 1 or 0) or bytes(3, x)
end

--- The values that describe hyper-parameters and metrics, and the hyper-parameters of this run.
---@param list table[]     {name, value}: text, number or boolean, sorted by name
---@param metrics string[]  tags of scalars
---@return string
function tfevents.hparams(list, metrics)
  local infos, values = {}, {}
  for i, row in ipairs(list) do
    infos[i] = bytes(4, bytes(1, row[1]) .. integer(4, kinds[type(row[2])]))
    values[i] = bytes(1, bytes(1, row[1]) .. bytes(2, google_value(row[2])))
  end
  for _, tag in ipairs(metrics) do
    infos[#infos + 1] = bytes(5, bytes(1, bytes(2, tag)))
  end
  return plugin_value("_hparams_/experiment", bytes(2, table.concat(infos)))
    .. plugin_value("_hparams_/session_start_info", bytes(3, table.concat(values)))
end

--- The value that marks the end of the run.
---@param good boolean  the run reached its end
---@return string
function tfevents.hparams_end(good)
  return plugin_value("_hparams_/session_end_info", bytes(4, integer(1, good and 1 or 2)))
end

return tfevents
