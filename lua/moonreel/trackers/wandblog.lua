--- Writes logs of W&B runs: records in blocks, and the messages in them. Field numbers:
-- wandb_internal.proto of wandb 0.31; blocks as in LevelDB's log, with another checksum.
-- @module moonreel.trackers.wandblog
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local proto = require "moonreel.trackers.proto"

local wandblog = {}

local BLOCK <const>, HEAD <const> = 32768, 7
local WHOLE <const>, FIRST <const>, MIDDLE <const>, LAST <const> = 1, 2, 3, 4
local bytes, integer = proto.bytes, proto.integer

--- The head of the file.
---@param version integer  0 or 1: SDKs differ in the version that they read
---@return string
function wandblog.head(version) return ":W&B" .. string.pack("<I2B", 0xBEE1, version) end

local function part(kind, data)
  local typed = string.char(kind) .. data
  return string.pack("<I4I2", base.crc32(typed), #data) .. typed
end

--- Encodes a record at a position of the file, in parts if it crosses a block.
---@param data string
---@param at integer  number of bytes before it, including the head
---@return string
function wandblog.frame(data, at)
  local left, padding = BLOCK - at % BLOCK, ""
  if left < HEAD then
    padding, left = ("\0"):rep(left), BLOCK
  end
  if left >= HEAD + #data then
    return padding .. part(WHOLE, data)
  end
  local list, from, kind = { padding }, 1, FIRST
  while from <= #data do
    local n = math.min(left - HEAD, #data - from + 1)
    if from + n > #data then
      kind = LAST
    end
    list[#list + 1] = part(kind, data:sub(from, from + n - 1))
    from, left, kind = from + n, BLOCK, MIDDLE
  end
  return table.concat(list)
end

--- The length of the whole records at the beginning of a log. A torn record may follow.
---@param text string
---@return integer bytes  0: the head is incomplete
function wandblog.whole(text)
  if #text < HEAD then
    return 0
  end
  local at, good = HEAD, HEAD
  while true do
    local left = BLOCK - at % BLOCK
    if left < HEAD then
      if text:sub(at + 1, at + left) ~= ("\0"):rep(left) then
        return good
      end
      at = at + left
    end
    if #text - at < HEAD then
      return good
    end
    local sum, n, kind = string.unpack("<I4I2B", text, at + 1)
    if at + HEAD + n > #text or kind < WHOLE or kind > LAST
        or base.crc32(text:sub(at + HEAD, at + HEAD + n)) ~= sum then
      return good
    end
    at = at + HEAD + n
    if kind == WHOLE or kind == LAST then
      good = at
    end
  end
end

--- Encodes a record.
---@param number integer  number of the record in its log, from 1
---@param field integer   number of the field in the message Record
---@param message string
---@return string
function wandblog.record(number, field, message)
  return integer(1, number) .. bytes(field, message)
end

-- numbers of the fields of Record
wandblog.HISTORY, wandblog.SUMMARY, wandblog.CONFIG, wandblog.FILES = 2, 3, 5, 6
wandblog.OUTPUT, wandblog.RUN, wandblog.EXIT, wandblog.HEADER = 13, 17, 18, 21

--- Encodes a value as JSON text. NaN and infinite numbers are written as in Python.
---@param value any  as moonreel.core.json takes it
---@return string
function wandblog.json(value)
  if value ~= value then
    return "NaN"
  elseif value == math.huge or value == -math.huge then
    return value > 0 and "Infinity" or "-Infinity"
  end
  return json.encode(value)
end

local keys = setmetatable({}, { __index = function(all, name)
  all[name] = bytes(1, name)
  return all[name]
end })

--- Encodes a key and its value, for config, history and summary.
---@param field integer  number of the list's field: 1
---@param name string
---@param value any
---@return string
function wandblog.item(field, name, value)
  local key, text = keys[name], wandblog.json(value)
  local head = proto.head(16, #text)
  return proto.head(field, #key + #head + #text) .. key .. head .. text
end

--- The message with a step's values.
---@param step integer
---@param items string  concatenation of results of wandblog.item(1, ...)
---@return string
function wandblog.history(step, items) return items .. bytes(2, integer(1, step)) end

--- The message that names files to upload.
---@param path string  path below the folder `files`
---@return string
function wandblog.media_file(path)
  -- policy 0: now; type 2: media
  return bytes(1, bytes(1, path) .. integer(2, 0) .. integer(3, 2))
end

--- The message at the end of a run.
---@param code integer       exit code
---@param runtime_s integer  seconds since the log began
---@return string
function wandblog.exit(code, runtime_s) return integer(1, code) .. integer(2, runtime_s) end

--- The message with a line of the console.
---@param wall number  seconds since 1970
---@param line string
---@return string
function wandblog.output(wall, line)
  return integer(1, 1) .. bytes(2, wandblog.time(wall)) .. bytes(3, line .. "\n")
end

--- The message with a time.
---@param wall number  seconds since 1970
---@return string
function wandblog.time(wall)
  local seconds = math.floor(wall)
  return integer(1, seconds) .. integer(2, math.floor((wall - seconds) * 1e9))
end

--- The first message of a log.
---@param producer string  version of the SDK whose log format is written
---@return string
function wandblog.version(producer) return bytes(1, bytes(1, producer)) end

---@class mr.WandbRun
---@field id string
---@field project string
---@field name string      name for display
---@field entity string|nil
---@field tags string[]|nil
---@field wall number      start in seconds since 1970
---@field resume boolean|nil  it continues after its newest step
---@field rewind integer|nil  it continues after this step of its own
---@field config table     values that JSON supports, by name

--- The message that describes a run.
---@param r mr.WandbRun
---@return string
function wandblog.run(r)
  local names, config = {}, {}
  for name in pairs(r.config) do
    names[#names + 1] = name
  end
  table.sort(names)
  for i, name in ipairs(names) do
    config[i] = wandblog.item(1, name, r.config[name])
  end
  local list = { bytes(1, r.id), r.entity and bytes(2, r.entity) or "", bytes(3, r.project),
    bytes(4, table.concat(config)), bytes(8, r.name) }
  for _, tag in ipairs(r.tags or {}) do
    list[#list + 1] = bytes(10, tag)
  end
  list[#list + 1] = bytes(17, wandblog.time(r.wall))
  if r.rewind then
    list[#list + 1] = bytes(23, bytes(1, r.id) .. proto.double(2, r.rewind) .. bytes(3, "_step"))
  elseif r.resume then
    list[#list + 1] = integer(24, 1)
  end
  return table.concat(list)
end

return wandblog
