--- The fields of an index row for filters, statistics, splits and exports.
-- @module moonreel.data.row
local base = require "moonreel.core.base"
local nearest = require "moonreel.text.nearest"

local row = {}

local VFR, INTERLACED = 1, 4

--- The fields of every row, in the order of exports: {name, value = function(row), number, doc}.
-- Columns of the index follow them.
row.fields = {
  { "path", "path relative to its root folder", value = function(r) return r.path end },
  { "text", "the first caption", value = function(r) return r.text end },
  { "num_frames", "displayable frames; 1: a picture", number = true,
    value = function(r) return r.frames end },
  { "height", "pixels, as shown", number = true, value = function(r) return r.height end },
  { "width", "pixels, as shown", number = true, value = function(r) return r.width end },
  { "aspect_ratio", "height / width", number = true,
    value = function(r) return r.height / r.width end },
  { "resolution", "height * width", number = true,
    value = function(r) return r.height * r.width end },
  { "fps", "frames per second; 0: a picture", number = true, value = function(r) return r.fps end },
  { "seconds", "length", number = true, value = function(r) return r.duration_ms / 1000 end },
  { "start_s", "start of the sample in its file, in seconds",
    value = function(r) return r.start_us / 1e6 end },
  { "end_s", "end of the sample in its file; absent: the end of the file",
    value = function(r) return r.end_us >= 0 and r.end_us / 1e6 or nil end },
  { "bytes", "size of the file", number = true, value = function(r) return r.bytes end },
  { "text_bytes", "length of the first caption", number = true,
    value = function(r) return #r.text end },
  { "codec", "codec of the stream", value = function(r) return r.codec end },
  { "image", "is it a picture?", value = function(r) return r.image end },
  { "vfr", "are its frames unevenly spaced?", value = function(r) return r.flags & VFR ~= 0 end },
  { "interlaced", "is it interlaced?",
    value = function(r) return r.flags & INTERLACED ~= 0 end },
  { "key", "key of the sample, 32 hexadecimal digits", value = function(r) return r.key end },
  { "file", "path with its root folder", value = function(r) return r.file end },
}

local by_name = {}
for _, field in ipairs(row.fields) do
  by_name[field[1]] = field
end
-- the name of this field in Lua code
by_name.frames = by_name.num_frames

--- Names of all fields that rows of these indexes have.
---@param columns string[]  of the index
---@param numbers? boolean  only those that are numbers
---@return string[]
function row.names(columns, numbers)
  local names = {}
  for _, field in ipairs(row.fields) do
    if field.number or not numbers then
      names[#names + 1] = field[1]
    end
  end
  return table.move(columns, 1, #columns, #names + 1, names)
end

--- A function that reads one field of a row; nil if the row has no value.
---@param name string
---@param columns string[]  of the index
---@param who string        the command, for the error MR_E_USAGE, which names the nearest field
---@param number? boolean   allow only fields with numbers
---@return fun(r: table): any
function row.reader(name, columns, who, number)
  local field = by_name[name]
  if field and (field.number or not number) then
    return field.value
  end
  for _, column in ipairs(columns) do
    if column == name then
      return function(r) return r.columns[name] end
    end
  end
  local names = row.names(columns, number)
  local near = nearest(name, names)
  base.raise("MR_E_USAGE", ("%s: there is no %s '%s'%s; expected one of %s"):format(who,
    number and "number" or "field", name, near and (", did you mean '" .. near .. "'?") or "",
    table.concat(names, ", ")))
end

return row
