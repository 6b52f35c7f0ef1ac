--- Lists of rows that print as a table, and that programs can use as ordinary Lua lists.
-- @module moonreel.text.listing
local clean = require "moonreel.text.clean"

local listing = {}

local Listing = {}
Listing.__index = Listing
Listing.__name = "moonreel.Listing"
local hidden = setmetatable({}, { __mode = "k" })  -- listing -> {columns, note}

--- A size as readable text.
---@param bytes number
---@return string
function listing.size(bytes)
  for _, row in ipairs { { 1e9, "GB" }, { 1e6, "MB" }, { 1e3, "kB" } } do
    if bytes >= row[1] then
      return ("%.1f %s"):format(bytes / row[1], row[2])
    end
  end
  return ("%d B"):format(bytes)
end

--- A shape as readable text: [2,3].
function listing.shape(shape) return "[" .. table.concat(shape, ",") .. "]" end

---@param rows table[]
---@param columns table[]  {key, title, right, format} as moonreel.text.table
---@param note string|nil  last line
---@return table rows
function listing.new(rows, columns, note)
  hidden[rows] = { columns = columns, note = note }
  return setmetatable(rows, Listing)
end

--- Is this a listing?
function listing.is(value) return getmetatable(value) == Listing end

--- The rows for which f is true, or whose fields equal those of a table.
---@param want function|table
function Listing:where(want)
  local out = {}
  for _, row in ipairs(self) do
    local good = true
    if type(want) == "function" then
      good = want(row)
    else
      for key, value in pairs(want) do
        good = good and row[key] == value
      end
    end
    if good then
      out[#out + 1] = row
    end
  end
  return listing.new(out, hidden[self].columns, ("%d of %d"):format(#out, #self))
end

--- The rows sorted by a field, the largest value first.
---@param key string
function Listing:by(key)
  local out = { table.unpack(self) }
  table.sort(out, function(a, b)
    local x, y = a[key], b[key]
    if type(x) ~= type(y) then
      return type(x) == "number"
    end
    if type(x) == "string" then
      return x < y
    end
    return x ~= nil and y ~= nil and x > y
  end)
  return listing.new(out, hidden[self].columns, hidden[self].note)
end

Listing.most_rows = 60

local function text_of(self, most)
  local facts, rows = hidden[self], {}
  for i = 1, math.min(#self, most) do
    rows[i] = self[i]
  end
  local lines = { (require("moonreel.text.table").text(facts.columns, rows):gsub("\n$", "")) }
  if #rows < #self then
    lines[#lines + 1] = ("... %d more; x:all() prints every one"):format(#self - #rows)
  end
  if facts.note then
    lines[#lines + 1] = clean(facts.note)
  end
  return table.concat(lines, "\n")
end

function Listing:__tostring() return text_of(self, Listing.most_rows) end

--- Prints every row.
function Listing:all() print(text_of(self, math.huge)) end

return listing
