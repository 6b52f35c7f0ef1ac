--- Reads CSV: fields are separated by commas; a quoted field may contain commas, line ends and
-- doubled quotes. Ref: RFC 4180.
-- @module moonreel.text.csv
local base = require "moonreel.core.base"

local csv = {}

local MARK = "^\xEF\xBB\xBF" -- some editors write it at the start of a file

-- the field at a position, and the position after it
local function field(text, at, where, line)
  if text:sub(at, at) ~= '"' then
    local stop = text:find("[,\r\n]", at) or #text + 1
    return text:sub(at, stop - 1), stop
  end
  local stop = at
  repeat
    stop = text:find('"', stop + 1, true)
    if not stop then
      base.raise("MR_E_DATA", ("%s:%d: a field begins with a quote and has no closing quote; "
        .. "expected one"):format(where, line))
    end
    local doubled = text:sub(stop + 1, stop + 1) == '"'
    stop = doubled and stop + 1 or stop
  until not doubled
  return text:sub(at + 1, stop - 1):gsub('""', '"'), stop + 1
end

-- the records of a text: lists of fields, with the line number of each
local function records(text, where)
  local list, at, line = {}, 1, 1
  while at <= #text do
    local record = { line = line }
    local stop
    repeat
      record[#record + 1], stop = field(text, at, where, line)
      local more = text:sub(stop, stop) == ","
      line, at = line + select(2, text:sub(at, stop - 1):gsub("\n", "")), stop + 1
    until not more
    if text:sub(stop, stop) == "\r" and text:sub(at, at) == "\n" then
      at = at + 1
    end
    line = line + 1
    if #record > 1 or record[1] ~= "" then
      list[#list + 1] = record
    end
  end
  return list
end

--- Returns the rows of a table whose first record contains the names of its columns.
---@param text string
---@param where string  name of the file, for errors
---@return table[] rows  {name = field, ...}; line: number of its first line
---@return table<string, boolean> columns
function csv.rows(text, where)
  local list, rows, columns = records(text:gsub(MARK, ""), where), {}, {}
  local head = table.remove(list, 1) or {}
  for _, name in ipairs(head) do
    columns[name] = true
  end
  for i, record in ipairs(list) do
    if #record ~= #head then
      base.raise("MR_E_DATA", ("%s:%d: the row has %d fields; expected %d, as the first line names "
        .. "them; try: quotes around a text with commas"):format(where, record.line, #record,
        #head))
    end
    rows[i] = { line = record.line }
    for k, name in ipairs(head) do
      rows[i][name] = record[k]
    end
  end
  return rows, columns
end

return csv
