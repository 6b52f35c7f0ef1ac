--- Writes indexes as lists for other programs: CSV as ingest and the references read it, JSON
-- lines, and tar shards (shards.lua).
-- @module moonreel.data.export
local base = require "moonreel.core.base"
local exact = require "moonreel.text.exact"
local json = require "moonreel.core.json"
local row_fields = require "moonreel.data.row"
local shards = require "moonreel.data.shards"
local whole = require "moonreel.data.whole"

local export = {}

-- fields that ingest reads back and the references' tables have
local usual = { "path", "text", "num_frames", "height", "width", "aspect_ratio", "resolution",
  "fps" }

-- additional fields of an index whose rows are parts of files
local ranges = { "start_s", "end_s" }

-- paths are relative if all files are in one root
local function path_reader(index)
  if #index.meta.roots == 1 then
    return function(r) return r.path end
  end
  return function(r) return r.file end
end

local TICK = 1000

-- is any row a part of its file, and what is the largest number of captions of a row?
local function survey(index, tick)
  local parts, captions = false, 1
  for i = 1, #index do
    local r = index:row(i)
    parts, captions = parts or r.end_us >= 0, math.max(captions, #r.captions)
    if tick and i % TICK == 0 then
      tick(0, 0, function() return ("looking for captions: %d of %d rows"):format(i, #index) end)
    end
  end
  return parts, captions
end

-- names and readers of fields (the usual ones by default), and the number of captions
local function readers_of(index, names, tick)
  local columns, readers, captions = index.meta.columns, {}, 1
  if not names then
    local parts
    parts, captions = survey(index, tick)
    names = { table.unpack(usual) }
    if parts then
      table.move(ranges, 1, #ranges, #names + 1, names)
    end
    table.move(columns, 1, #columns, #names + 1, names)
  end
  for i, name in ipairs(names) do
    readers[i] = name == "path" and path_reader(index)
      or row_fields.reader(name, columns, "data export")
  end
  return names, readers, captions
end


local function csv_field(value)
  if value == nil then
    return ""
  end
  local text = type(value) == "number" and exact(value) or tostring(value)
  return text:find('[",\r\n]') and '"' .. text:gsub('"', '""') .. '"' or text
end

--- Writes all rows as CSV with a header; more captions are columns text_2, text_3, ...
---@param index moonreel.Index
---@param path string
---@param given? table  fields: names instead of the usual ones; tick
function export.csv(index, path, given)
  given = given or {}
  local names, readers, captions = readers_of(index, given.fields, given.tick)
  local out <close> = whole.open(path)
  local header = { table.unpack(names) }
  for c = 2, captions do
    header[#header + 1] = "text_" .. c
  end
  out.write(table.concat(header, ","), "\n")
  for i = 1, #index do
    local r, fields = index:row(i), {}
    for f, read in ipairs(readers) do
      fields[f] = csv_field(read(r))
    end
    for c = 2, captions do
      fields[#fields + 1] = csv_field(r.captions[c])
    end
    out.write(table.concat(fields, ","), "\n")
    if given.tick and i % TICK == 0 then
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

--- Writes all rows as JSON lines.
---@param index moonreel.Index
---@param path string
---@param given? table  as in csv
function export.jsonl(index, path, given)
  given = given or {}
  local names, readers = readers_of(index, given.fields, given.tick)
  local out <close> = whole.open(path)
  for i = 1, #index do
    local r = index:row(i)
    if not utf8.len(r.file) then
      base.raise("MR_E_DATA", ("%s: row %d: the path '%s' is not UTF-8, which JSON does not allow; "
        .. "try: data export csv"):format(index.meta.path, i, r.file))
    end
    out.write(json.encode(object(r, names, readers)), "\n")
    if given.tick and i % TICK == 0 then
      given.tick(i, #index)
    end
  end
  out.finish()
end

--- Copies all clips into tar files of a folder, each with its metadata next to it: KEY.mp4,
-- KEY.json.
---@param index moonreel.Index
---@param folder string    000000.tar, 000001.tar, ...
---@param given? table  shard_bytes: a shard is closed when it is at least this large (1 GB); tick
---@return integer shards
function export.shards(index, folder, given)
  local names, readers = readers_of(index, nil, given and given.tick)
  return shards.write(index, folder, function(r) return object(r, names, readers) end, given or {})
end

return export
