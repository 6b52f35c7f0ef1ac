--- Charts: lines and bars, as characters for a terminal and as a picture for files.
-- @module moonreel.look.chart
local letters = require "moonreel.text.letters"
local picture = require "moonreel.look.picture"
local edit = require "moonreel.core.edit"
local options = require "moonreel.text.options"

local chart = {}

local function label(x) return ("%.4g"):format(x) end

-- the range of the finite values; a single value gets a margin
local function range(values)
  local lo, hi = math.huge, -math.huge
  for _, v in ipairs(values) do
    if v == v and v > -math.huge and v < math.huge then
      lo, hi = math.min(lo, v), math.max(hi, v)
    end
  end
  if lo > hi then
    return 0, 1
  end
  if lo == hi then
    local room = lo == 0 and 1 or math.abs(lo) * 0.1
    return lo - room, hi + room
  end
  return lo, hi
end

local INTERVALS <const> = 4 -- approximate number of intervals of an axis

-- the distance of round ticks that divide a span into about INTERVALS parts: 1, 2 or 5 times a
-- power of ten
local function round_step(span)
  local rough = span / INTERVALS
  local power = 10 ^ math.floor(math.log(rough, 10))
  for _, m in ipairs { 1, 2, 5 } do
    if rough <= m * power * 1.0001 then
      return m * power
    end
  end
  return 10 * power
end

-- the round numbers from the first one at or above lo to the last one at or below hi
local function ticks_of(lo, hi)
  local step, list = round_step(hi - lo), {}
  for k = math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9) do
    list[#list + 1] = k * step
  end
  return list
end

-- draws the dots of a chart on a grid: set(column, row from the bottom)
local function draw(c, width, height, set)
  local n = #c.values
  local span = c.hi - c.lo
  local function row_of(v)
    return math.min(height - 1, math.max(0, math.floor((v - c.lo) / span * (height - 1) + 0.5)))
  end
  local last
  local values = c.values
  if not c.bars and n > 1 and n < width then
    -- if there are fewer values than columns, straight lines connect them
    values = {}
    for x = 0, width - 1 do
      local at = x * (n - 1) / (width - 1)
      local i = math.min(n - 2, at // 1 | 0)
      values[x + 1] = c.values[i + 1] + (c.values[i + 2] - c.values[i + 1]) * (at - i)
    end
    n = width
  end
  for x = 0, width - 1 do
    local from = x * n // width + 1
    local to = math.max(from, (x + 1) * n // width)
    local low, high
    for i = from, math.min(to, n) do
      local v = values[i]
      if v == v and v > -math.huge and v < math.huge then
        local y = row_of(v)
        low, high = math.min(low or y, y), math.max(high or y, y)
      end
    end
    if low and c.bars then
      -- an empty bar stays empty
      if high > 0 or values[from] > 0 then
        for y = 0, high do
          set(x, y)
        end
      end
    elseif low then
      local a, b = low, high
      -- connects the line with the previous column
      if last and last < low then
        a = math.min(low, last + 1)
      elseif last and last > high then
        b = math.max(high, last - 1)
      end
      for y = a, b do
        set(x, y)
      end
      last = values[math.min(to, n)]
      last = last == last and row_of(math.max(c.lo, math.min(c.hi, last))) or high
    else
      last = nil
    end
  end
end

local read_options = options.declare("chart", {
  { "title", "text", "title above the chart", default = "" },
  { "bars", "boolean", "draw bars from zero instead of a line", default = false },
  { "from", "number", "first value of the x axis", default = 0 },
  { "to", "number", "last value of the x axis; absent: the index of the last value" },
})

--- Creates a chart.
---@param values number[]
---@param given table|nil  title, bars, from and to (range of the x axis)
function chart.new(values, given)
  local o = read_options(given)
  local c = { values = values, bars = o.bars, title = o.title, from = o.from,
    to = o.to or math.max(1, #values - (o.bars and 0 or 1)) }
  c.lo, c.hi = range(values)
  if c.bars then
    c.lo = 0
  end
  -- the axis begins and ends with a round number
  local step = round_step(c.hi - c.lo)
  c.lo = math.floor(c.lo / step + 1e-9) * step
  c.hi = math.ceil(c.hi / step - 1e-9) * step
  return c
end

--- The chart as text: half blocks, two dots per character.
---@return string
function chart.text(c)
  local columns = edit.size()
  local names = { label(c.hi), label(c.lo) }
  local margin = math.max(#names[1], #names[2])
  local width, height = math.max(16, math.min(100, columns - margin - 3)), 24
  local dots = {}
  draw(c, width, height, function(x, y) dots[y * width + x] = true end)
  local lines = { c.title ~= "" and c.title or nil }
  for row = height // 2 - 1, 0, -1 do
    local cells = {}
    for x = 0, width - 1 do
      local up, down = dots[(2 * row + 1) * width + x], dots[2 * row * width + x]
      cells[x + 1] = up and down and "█" or up and "▀" or down and "▄" or " "
    end
    local name = row == height // 2 - 1 and names[1] or row == 0 and names[2] or ""
    lines[#lines + 1] = ((" "):rep(margin - #name) .. name .. " ▏"
      .. table.concat(cells)):gsub("%s+$", "")
  end
  local left, right = label(c.from), label(c.to)
  lines[#lines + 1] = (" "):rep(margin + 2) .. left
    .. (" "):rep(math.max(1, width - #left - #right)) .. right
  return table.concat(lines, "\n") .. "\n"
end

--- Marks of the curves in one chart, in their order.
chart.MARKS = { "a", "b", "c", "d", "e", "f", "g", "h" }

-- the means of points in columns of equal width; nil: a column has no point
local function columns_of(points, from, to, width)
  local sums, counts, values = {}, {}, {}
  for _, point in ipairs(points) do
    local x = math.min(width - 1, (point[1] - from) / math.max(to - from, 1e-9) * width // 1 | 0)
    if point[2] == point[2] and math.abs(point[2]) < math.huge then
      sums[x], counts[x] = (sums[x] or 0) + point[2], (counts[x] or 0) + 1
    end
  end
  for x, sum in pairs(sums) do
    values[x] = sum / counts[x]
  end
  return values
end

-- fills gaps between columns with straight lines
local function close_gaps(values, width)
  local before
  for x = 0, width - 1 do
    if values[x] then
      for i = before and before + 1 or x, x - 1 do
        values[i] = values[before] + (values[x] - values[before]) * (i - before) / (x - before)
      end
      before = x
    end
  end
end

local read_several = options.declare("chart.several", {
  { "title", "text", "title above the chart", default = "" },
})

--- Several curves in one chart of text, each drawn with its own mark; "*" where curves overlap.
---@param curves table[]  {name, points = list of {x, y}}; at most #chart.MARKS
---@param given table|nil  title
---@return string         lines: the chart, then for each curve its mark, name and last value
function chart.several(curves, given)
  local o, height = read_several(given), 16
  local from, to, all = math.huge, -math.huge, {}
  for _, curve in ipairs(curves) do
    for _, point in ipairs(curve.points) do
      from, to = math.min(from, point[1]), math.max(to, point[1])
    end
  end
  if from > to then
    from, to = 0, 1
  end
  local columns = edit.size()
  local width = math.max(16, math.min(100, columns - 12))
  local lists = {}
  for i, curve in ipairs(curves) do
    lists[i] = columns_of(curve.points, from, to, width)
    for _, value in pairs(lists[i]) do
      all[#all + 1] = value
    end
    close_gaps(lists[i], width)
  end
  local lo, hi = range(all)
  local cells = {}
  for i, list in ipairs(lists) do
    for x, value in pairs(list) do
      local at = math.floor((value - lo) / (hi - lo) * (height - 1) + 0.5) * width + x
      cells[at] = cells[at] and cells[at] ~= chart.MARKS[i] and "*" or chart.MARKS[i]
    end
  end
  local lines = { o.title ~= "" and o.title or nil }
  local names = { label(hi), label(lo) }
  local margin = math.max(#names[1], #names[2])
  for row = height - 1, 0, -1 do
    local texts = {}
    for x = 0, width - 1 do
      texts[x + 1] = cells[row * width + x] or " "
    end
    local name = row == height - 1 and names[1] or row == 0 and names[2] or ""
    lines[#lines + 1] = ((" "):rep(margin - #name) .. name .. " ▏"
      .. table.concat(texts)):gsub("%s+$", "")
  end
  local left, right = label(from), label(to)
  lines[#lines + 1] = (" "):rep(margin + 2) .. left
    .. (" "):rep(math.max(1, width - #left - #right)) .. right
  for i, curve in ipairs(curves) do
    local last = curve.points[#curve.points]
    lines[#lines + 1] = ("%s  %s  %s"):format(chart.MARKS[i], curve.name,
      last and ("%.4f at %s"):format(last[2], label(last[1])) or "no values")
  end
  return table.concat(lines, "\n") .. "\n"
end

--- The chart as a picture of 640 x 360 pixels.
function chart.picture(c)
  local width, height, bottom, edge = 640, 360, 34, 12
  local top = edge + (c.title ~= "" and letters.height + 8 or 0)
  local y_ticks, x_ticks, left = ticks_of(c.lo, c.hi), ticks_of(c.from, c.to), 0
  -- leave space for the longest label at the left
  for _, tick in ipairs(y_ticks) do
    left = math.max(left, 16 + letters.width * #label(tick))
  end
  local ink = {}
  local function put(x, y, what)
    if x >= 0 and x < width and y >= 0 and y < height then
      ink[y * width + x] = what
    end
  end
  local function write(text, x, y)
    letters.write(text, function(dx, dy) put(x + dx, y + dy, "text") end)
  end
  local inner_w, inner_h = width - left - edge, height - bottom - top
  write(c.title, left, edge - 4)
  for _, tick in ipairs(y_ticks) do
    local y = top + math.floor((inner_h - 1) * (c.hi - tick) / (c.hi - c.lo) + 0.5)
    for x = left, width - edge - 1 do
      put(x, y, "grid")
    end
    local text = label(tick)
    write(text, left - 8 - #text * letters.width, math.max(0, y - 5))
  end
  for _, tick in ipairs(x_ticks) do
    local text = label(tick)
    local x = left + math.floor((inner_w - 1) * (tick - c.from) / (c.to - c.from) + 0.5)
    for y = top, height - bottom - 1 do
      put(x, y, "grid")
    end
    write(text, math.min(x - #text * letters.width // 2, width - #text * letters.width),
      height - bottom + 12)
  end
  draw(c, inner_w, inner_h, function(x, y)
    for d = 0, c.bars and 0 or 1 do
      put(left + x, top + inner_h - 1 - y - d, "line")
    end
  end)
  local colours = { text = { 60, 60, 60 }, grid = { 225, 225, 225 }, line = { 31, 90, 180 } }
  return picture.from(width, height, function(x, y)
    local what = ink[y * width + x]
    if what then
      return table.unpack(colours[what])
    end
    return 255, 255, 255
  end)
end

return chart
