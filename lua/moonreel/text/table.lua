--- Prints tables: aligned columns for users, JSON for programs.
-- @module moonreel.text.table
local clean = require "moonreel.text.clean"

local printer = {}

local function text_of(value)
  if value == nil then
    return "-"
  end
  if math.type(value) == "float" then
    return ("%.6g"):format(value)
  end
  return tostring(value)
end

-- counts characters, not bytes, because captions and names are UTF-8
local function width(text) return utf8.len(text) or #text end

--- Cuts a text to a readable width; JSON contains the whole text.
---@param text string
---@return string
function printer.short(text)
  if width(text) <= 76 then
    return text
  end
  return text:sub(1, (utf8.offset(text, 74) or 74) - 1) .. "..."
end

--- May the output be colored?
---@return boolean
function printer.colours()
  local base = require "moonreel.core.base"
  local none = os.getenv("NO_COLOR")
  return base.is_terminal(1) and (none == nil or none == "") and os.getenv("TERM") ~= "dumb"
end

--- Makes text bold if the output is a terminal with colors.
function printer.bold(text)
  return printer.colours() and "\27[1m" .. text .. "\27[0m" or text
end

--- Formats rows as lines of text.
---@param columns table[]  {key, title, right = true | nil, format = function | nil}
---@param rows table[]     one table of values per row
---@return string text  ends with a line end; "" without rows and titles
function printer.text(columns, rows)
  local cells, widths = {}, {}
  for c, column in ipairs(columns) do
    widths[c] = width(column.title or column.key)
  end
  for r, row in ipairs(rows) do
    cells[r] = {}
    for c, column in ipairs(columns) do
      local value = row[column.key]
      local text = clean(column.format and value ~= nil and column.format(value, row)
        or text_of(value))
      cells[r][c] = text
      widths[c] = math.max(widths[c], width(text))
    end
  end
  local lines = {}
  local function line(texts, style)
    local parts = {}
    for c, column in ipairs(columns) do
      local pad = (" "):rep(widths[c] - width(texts[c]))
      if column.right then
        parts[c] = pad .. texts[c]
      else
        parts[c] = c < #columns and texts[c] .. pad or texts[c]
      end
    end
    lines[#lines + 1] = style((table.concat(parts, "  "):gsub("%s+$", "")))
  end
  local titles = {}
  for c, column in ipairs(columns) do
    titles[c] = column.title or column.key
  end
  line(titles, printer.bold)
  for r = 1, #rows do
    line(cells[r], function(text) return text end)
  end
  return table.concat(lines, "\n") .. "\n"
end

--- Prints rows, aligned or as a JSON array of objects.
---@param columns table[]
---@param rows table[]
---@param options table|nil  {json = true}
function printer.print(columns, rows, options)
  if options and options.json then
    local json = require "moonreel.core.json"
    local out = {}
    for r, row in ipairs(rows) do
      out[r] = {}
      for _, column in ipairs(columns) do
        local value = row[column.key]
        -- JSON does not have these numbers
        if value ~= value or value == math.huge or value == -math.huge then
          value = nil
        end
        out[r][column.key] = value == nil and json.null or value
      end
    end
    io.write(json.encode(json.array(out), { indent = 2 }), "\n")
  else
    io.write(printer.text(columns, rows))
  end
end

return printer
