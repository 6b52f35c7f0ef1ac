--- Indexes as lists that others read: CSV as ingest and the references take it, JSON lines, and
-- shards: tar files with each clip and its facts beside it.
-- @module moonreel.data.export
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local row_fields = require "moonreel.data.row"

local export = {}

-- what ingest reads back, and what the references' tables have
local usual = { "path", "text", "num_frames", "height", "width", "aspect_ratio", "resolution",
  "fps" }

-- and of an index whose rows are parts of files
local ranges = { "start_s", "end_s" }

local PIECE = 1 << 20

-- the problem of an open or a rename, without the path that Lua puts in front
local function reason(problem) return (problem:gsub("^.*: ", "")) end

-- A file that has its name once all of it is written; write(text) and finish().
local function open_file(path)
  local tmp = ("%s.tmp-%d"):format(path, base.pid())
  local function fail(problem)
    base.raise("MR_E_IO", ("%s: cannot write: %s"):format(path, reason(problem)))
  end
  local file, problem = io.open(tmp, "wb")
  if not file then
    fail(problem)
  end
  local out = {}
  function out.write(...)
    local ok, why = file:write(...)
    if not ok then
      fail(why)
    end
  end
  function out.finish()
    local ok, why = file:close()
    file = nil
    if not ok then
      fail(why)
    end
    base.rename(tmp, path)
  end
  return setmetatable(out, { __close = function()
    if file then
      file:close()
    end
    os.remove(tmp)
  end })
end

-- paths are relative where one root explains them all
local function path_reader(index)
  if #index.meta.roots == 1 then
    return function(r) return r.path end
  end
  return function(r) return r.file end
end

-- is any row a part of its file?
local function has_parts(index)
  for i = 1, #index do
    if index:row(i).end_us >= 0 then
      return true
    end
  end
  return false
end

local function readers_of(index, names)
  local columns, readers = index.meta.columns, {}
  if not names then
    names = { table.unpack(usual) }
    if has_parts(index) then
      table.move(ranges, 1, #ranges, #names + 1, names)
    end
    table.move(columns, 1, #columns, #names + 1, names)
  end
  for i, name in ipairs(names) do
    readers[i] = name == "path" and path_reader(index)
      or row_fields.reader(name, columns, "data export")
  end
  return names, readers
end

local function most_captions(index)
  local most = 1
  for i = 1, #index do
    most = math.max(most, #index:row(i).captions)
  end
  return most
end

-- numbers have as many digits as say exactly which number it is, of columns as many as f32 has
local function number_text(x)
  if math.type(x) == "integer" then
    return ("%d"):format(x)
  end
  for _, form in ipairs { "%.9g", "%.17g" } do
    local text = form:format(x)
    if tonumber(text) == x then
      return text
    end
  end
end

local function csv_field(value)
  if value == nil then
    return ""
  end
  local text = type(value) == "number" and number_text(value) or tostring(value)
  return text:find('[",\r\n]') and '"' .. text:gsub('"', '""') .. '"' or text
end

--- Write all rows as CSV with a header; further captions are columns text_2, text_3, ...
---@param index moonreel.Index
---@param path string
---@param given? table  fields: names instead of the usual ones; tick
function export.csv(index, path, given)
  given = given or {}
  local names, readers = readers_of(index, given.fields)
  local further = given.fields and 1 or most_captions(index)
  local out <close> = open_file(path)
  local header = { table.unpack(names) }
  for c = 2, further do
    header[#header + 1] = "text_" .. c
  end
  out.write(table.concat(header, ","), "\n")
  for i = 1, #index do
    local r, fields = index:row(i), {}
    for f, read in ipairs(readers) do
      fields[f] = csv_field(read(r))
    end
    for c = 2, further do
      fields[#fields + 1] = csv_field(r.captions[c])
    end
    out.write(table.concat(fields, ","), "\n")
    if given.tick and i % 1000 == 0 then
      given.tick(i, #index)
    end
  end
  out.finish()
end

-- a row as an object; several captions are a list
local function object(r, names, readers)
  local out = {}
  for f, name in ipairs(names) do
    out[name] = readers[f](r)
  end
  if out.text and #r.captions > 1 then
    out.text = json.array(r.captions)
  end
  return out
end

--- Write all rows as JSON lines.
---@param index moonreel.Index
---@param path string
---@param given? table  as of csv
function export.jsonl(index, path, given)
  given = given or {}
  local names, readers = readers_of(index, given.fields)
  local out <close> = open_file(path)
  for i = 1, #index do
    out.write(json.encode(object(index:row(i), names, readers)), "\n")
    if given.tick and i % 1000 == 0 then
      given.tick(i, #index)
    end
  end
  out.finish()
end

-- a header of POSIX tar
local function tar_header(name, bytes)
  local function octal(value, digits) return ("%0" .. digits .. "o\0"):format(value) end
  local function field(text, n) return text .. ("\0"):rep(n - #text) end
  local head = field(name, 100) .. octal(420, 7) .. octal(0, 7) .. octal(0, 7)
    .. octal(bytes, 11) .. octal(0, 11)
  local tail = "0" .. field("", 100) .. "ustar\0" .. "00" .. field("", 64) .. octal(0, 7)
    .. octal(0, 7) .. field("", 167)
  local sum = 8 * 32
  for at = 1, #head do
    sum = sum + head:byte(at)
  end
  for at = 1, #tail do
    sum = sum + tail:byte(at)
  end
  return head .. ("%06o\0 "):format(sum) .. tail
end

local function padding(bytes) return ("\0"):rep(-bytes % 512) end

local function add_clip(out, r, name)
  local file, problem = io.open(r.file, "rb")
  if not file then
    base.raise("MR_E_DATA", ("%s: cannot open: %s; try: moonreel data scan"):format(r.file,
      reason(problem)))
  end
  local _ <close> = setmetatable({}, { __close = function() file:close() end })
  local left = r.bytes
  out.write(tar_header(name, left))
  while left > 0 do
    local piece = file:read(math.min(left, PIECE))
    if not piece then
      base.raise("MR_E_DATA", ("%s: is shorter than the %d bytes of the index; try: moonreel data "
        .. "scan"):format(r.file, r.bytes))
    end
    out.write(piece)
    left = left - #piece
  end
  out.write(padding(r.bytes))
end

--- Copy all clips into tar files of a folder, each with its facts beside it: KEY.mp4, KEY.json.
---@param index moonreel.Index
---@param folder string    000000.tar, 000001.tar, ...
---@param given? table     shard_bytes: a shard is closed once it holds as much (1 GB); tick
---@return integer shards
function export.shards(index, folder, given)
  given = given or {}
  local names, readers = readers_of(index)
  local most, i, shard = given.shard_bytes or 1e9, 1, 0
  base.make_dir(folder)
  while i <= #index do
    local out <close>, held = open_file(("%s/%06d.tar"):format(folder, shard)), 0
    while i <= #index and held < most do
      local r = index:row(i)
      local facts = json.encode(object(r, names, readers))
      add_clip(out, r, r.key .. (r.path:match("%.%w+$") or ".mp4"))
      out.write(tar_header(r.key .. ".json", #facts), facts, padding(#facts))
      held = held + r.bytes + #facts + 1024
      if given.tick then
        given.tick(i, #index)
      end
      i = i + 1
    end
    out.write(("\0"):rep(1024))
    out.finish()
    shard = shard + 1
  end
  return shard
end

return export
