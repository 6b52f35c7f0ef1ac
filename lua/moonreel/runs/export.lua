--- Exports the curve of a run as a table for other programs: one row for each step that counts, in
-- order. Columns are the fields of the journal's lines. Numbers have the fewest digits that
-- identify them.
-- @module moonreel.runs.export
local exact = require "moonreel.text.exact"
local json = require "moonreel.core.json"

local export = {}

-- these columns come first, in this order; the others follow by name
local FIRST <const> = { "step", "loss", "grad_norm", "lr", "epoch", "samples", "t", "time_s",
  "data_wait_s", "wall" }

-- a field that is a record gives columns such as "gpu.power_w"
local function flatten(line, into, prefix)
  for key, value in pairs(line) do
    local name = prefix .. tostring(key)
    if type(value) == "table" then
      flatten(value, into, name .. ".")
    else
      into[name] = value
    end
  end
  return into
end

-- a line without such fields is its own row
local function row_of(line, seen)
  for key, value in pairs(line) do
    if type(value) == "table" then
      line = flatten(line, {}, "")
      for name in pairs(line) do
        seen[name] = true
      end
      return line
    end
    seen[key] = true
  end
  return line
end

--- The rows and their columns.
---@param steps table[]  lines of the journal, from Events:curve
---@return table[] rows
---@return string[] columns
function export.rows(steps)
  local rows, seen, columns = {}, {}, {}
  for i, line in ipairs(steps) do
    rows[i] = row_of(line, seen)
  end
  for _, name in ipairs(FIRST) do
    if seen[name] then
      columns[#columns + 1], seen[name] = name, nil
    end
  end
  local others = {}
  for name in pairs(seen) do
    others[#others + 1] = name
  end
  table.sort(others)
  return rows, table.move(others, 1, #others, #columns + 1, columns)
end

-- a field of a CSV file, in quotes if it contains commas, quotes or line ends
local function field(value)
  if value == json.null then
    return ""
  elseif type(value) == "number" then
    return value == value and value ~= math.huge and value ~= -math.huge and exact(value)
      or tostring(value)
  end
  local text = tostring(value)
  if text:find('[,"\r\n]') then
    return '"' .. text:gsub('"', '""') .. '"'
  end
  return text
end

--- Writes the steps as CSV: a line of names, then a line for each step. Ref: RFC 4180, but lines
-- end with a line feed only. A field that a step lacks is empty.
---@param steps table[]
---@param write fun(text: string)
function export.csv(steps, write)
  local rows, columns = export.rows(steps)
  local names = {}
  for i, name in ipairs(columns) do
    names[i] = field(name)
  end
  write(table.concat(names, ",") .. "\n")
  -- most fields have the value of the line before
  local last, texts, n = {}, {}, #columns
  for _, row in ipairs(rows) do
    for i = 1, n do
      local value = row[columns[i]]
      if value == nil then
        last[i], texts[i] = nil, ""
      elseif value ~= last[i] or value == 0 or math.type(value) ~= math.type(last[i]) then
        last[i], texts[i] = value, field(value)
      end
    end
    write(table.concat(texts, ",", 1, n) .. "\n")
  end
end

-- a value of JSON, with keys of objects sorted by name
local function value_of(value)
  if type(value) == "number" then
    return value == value and value ~= math.huge and value ~= -math.huge and exact(value) or "null"
  end
  return json.encode(value)
end

--- Writes the steps as JSON lines: an object for each step, with its fields in the order of the
-- columns of CSV. A field that a step lacks is left out.
---@param steps table[]
---@param write fun(text: string)
function export.json(steps, write)
  local rows, columns = export.rows(steps)
  for _, row in ipairs(rows) do
    local texts = {}
    for _, name in ipairs(columns) do
      if row[name] ~= nil then
        texts[#texts + 1] = json.encode(name) .. ":" .. value_of(row[name])
      end
    end
    write("{" .. table.concat(texts, ",") .. "}\n")
  end
end

return export
