--- Displays tensors: as text, and by the methods stats(), hist() and save(). plot, hist and imshow
-- accept anything that contains numbers.
-- @module moonreel.look.tensor
local T = require "moonreel.core.tensor"
local look = require "moonreel.core.look"
local base = require "moonreel.core.base"
local listing = require "moonreel.text.listing"
local options = require "moonreel.text.options"

local tensor = {}

-- the tensor of a tensor, of a tensor in a checkpoint, or of a clip (a value with __tensor); nil
local function tensor_of(x)
  local meta = debug.getmetatable(x)
  if type(meta) ~= "table" then
    return nil
  end
  if meta.__name == "mr.Tensor" then
    return x
  end
  return meta.__tensor and meta.__tensor(x)
end

local ticks = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }

--- Counts as a line of small bars.
---@param counts number[]
function tensor.sparkline(counts)
  local most, out = 0, {}
  for _, c in ipairs(counts) do
    most = math.max(most, c)
  end
  for i, c in ipairs(counts) do
    out[i] = c == 0 and " " or ticks[1 + math.min(7, (c * 8 // math.max(1, most)) | 0)]
  end
  return table.concat(out)
end

local function number(x) return math.type(x) == "integer" and tostring(x) or ("%.4g"):format(x) end

-- the positions of a dimension to show: all if there are few, else three at both ends
local function edges(n)
  if n <= 8 then
    local out = {}
    for i = 1, n do
      out[i] = i - 1
    end
    return out
  end
  return { 0, 1, 2, false, n - 3, n - 2, n - 1 }
end

-- the corner values of the last two dimensions
local function corners(t)
  local shape = t.shape
  local lead, rows, columns = {}, #shape >= 2 and shape[#shape - 1] or 1, shape[#shape] or 1
  for i = 1, #shape - 2 do
    lead[i] = "0"
  end
  local cells, widths = {}, {}
  for r, row in ipairs(edges(rows)) do
    cells[r] = {}
    for c, column in ipairs(edges(columns)) do
      local text = "..."
      if row and column then
        local at = table.move(lead, 1, #lead, 1, {})
        if #shape >= 2 then
          at[#at + 1] = tostring(row)
        end
        if #shape >= 1 then
          at[#at + 1] = tostring(column)
        end
        local value = #at > 0 and t[table.concat(at, ", ")] or t:item()
        text = t.dtype:match("^[iu]") and ("%d"):format(math.tointeger(value) or value)
          or number(value)
      end
      cells[r][c] = text
      widths[c] = math.max(widths[c] or 0, #text)
    end
  end
  local lines = {}
  if #lead > 0 then
    lines[1] = ("  at [%s, :, :]"):format(table.concat(lead, ", "))
  end
  for _, row in ipairs(cells) do
    for c, text in ipairs(row) do
      row[c] = (" "):rep(widths[c] - #text) .. text
    end
    lines[#lines + 1] = "  " .. table.concat(row, "  ")
  end
  return table.concat(lines, "\n")
end

local most_looked_at = 1 << 24

--- A tensor as text: shape, dtype, device, corner values and distribution.
function tensor.text(t)
  local n = T.count(t.shape)
  local lines = { ("tensor [%s] %s cpu"):format(table.concat(t.shape, ", "), t.dtype) }
  if n == 0 then
    return lines[1] .. " (empty)"
  end
  lines[2] = corners(t)
  if n > 8 and n <= most_looked_at then
    local s = look.summary(t)
    local counts = look.histogram(t, s.min, s.max, 24)
    lines[3] = ("  %s ▕%s▏ %s   mean %s  rms %s%s"):format(number(s.min),
      tensor.sparkline(counts), number(s.max), number(s.mean),
      number(s.rms), s.nonfinite > 0 and ("  %d not finite"):format(s.nonfinite) or "")
  end
  return table.concat(lines, "\n")
end

-- ---- methods

--- The methods of all tensors besides those of the binding; moonreel.cli adds them.
---@class mr.Tensor
local Tensor = {}
tensor.methods = Tensor

--- The statistics of a tensor: n, zeros, nonfinite, and min, max, mean, rms of the finite values.
---@return table
function Tensor:stats() return look.summary(self) end

---@class moonreel.Histogram
---@field min number
---@field max number
---@field n integer
---@field counts integer[]
local Hist = { __name = "moonreel.Histogram" }
Hist.__index = Hist
Hist.__tostring = function(self)
  return (require("moonreel.look.chart").text(self:chart()):gsub("\n$", ""))
end

--- The histogram as a chart.
function Hist:chart()
  return require("moonreel.look.chart").new(self.counts,
    { bars = true, from = self.min, to = self.max,
    title = ("%d values in %d bins"):format(self.n, #self.counts) })
end

--- Makes a histogram from pieces: each call of `pieces` returns the next tensor or nil.
---@return table {min, max, n, counts}
function tensor.histogram(pieces, stats, bins)
  local h = setmetatable({ min = stats.min, max = stats.max, n = stats.n, counts = {} }, Hist)
  for piece in pieces do
    for i, c in ipairs(look.histogram(piece, stats.min, stats.max, bins)) do
      h.counts[i] = (h.counts[i] or 0) + c
    end
  end
  return h
end

--- Counts the finite values in equal bins; the result prints as a chart.
---@param bins integer|nil  32
---@return moonreel.Histogram
function Tensor:hist(bins)
  local rest = self
  return tensor.histogram(function()
    local piece = rest
    rest = nil
    return piece
  end, look.summary(self), bins or 32)
end

-- ---- pictures

-- reads single values of a dense copy, without a table of all values
local function reader(t)
  local kinds = { u8 = "B", bool = "B", i32 = "<i4", i64 = "<i8", f32 = "<f", f64 = "<d" }
  if not kinds[t.dtype] then
    t = t:to("f32")
  end
  local bytes, form = t:bytes(), kinds[t.dtype]
  local size = string.packsize(form)
  if size == 1 then
    return function(i) return bytes:byte(i + 1) end
  end
  return function(i) return (string.unpack(form, bytes, i * size + 1)) end
end

--- Makes a picture of a tensor [H, W], [3, H, W], [H, W, 3] or [1, H, W]. u8 is used unchanged;
-- -1..1, 0..1 or any other range is scaled.
---@return table picture
function tensor.picture(t)
  local shape = t.shape
  while #shape > 3 and shape[1] == 1 do
    t = t[0]
    shape = t.shape
  end
  if #shape == 3 and shape[1] == 1 then
    t = t[0]
    shape = t.shape
  end
  local colour = #shape == 3 and (shape[1] == 3 and "first" or shape[3] == 3 and "last") or nil
  if not (#shape == 2 or colour) then
    base.raise("MR_E_SHAPE",
      ("imshow: expected [H, W], [3, H, W] or [H, W, 3], got [%s]; try: imshow(x[0])"):format(
        table.concat(shape, ", ")))
  end
  local height, width = shape[colour == "first" and 2 or 1], shape[colour == "first" and 3 or 2]
  if height * width > 1 << 24 then
    base.raise("MR_E_SHAPE", ("imshow: %d x %d pixels; expected at most 16 million"):format(height,
      width))
  end
  local get, s = reader(t), look.summary(t)
  local lo, hi = s.min, s.max
  if t.dtype == "u8" then
    lo, hi = 0, 255
  elseif lo >= 0 and hi <= 1 then
    lo, hi = 0, 1
  elseif lo >= -1 and hi <= 1 then
    lo, hi = -1, 1
  end
  local function byte(v)
    if v ~= v then
      return 255
    end
    return math.max(0, math.min(255, ((v - lo) / math.max(hi - lo, 1e-300) * 255 + 0.5) // 1)) | 0
  end
  return require("moonreel.look.picture").from(width, height, function(x, y)
    local i = y * width + x
    if colour == "first" then
      return byte(get(i)), byte(get(i + height * width)), byte(get(i + 2 * height * width))
    end
    if colour == "last" then
      return byte(get(3 * i)), byte(get(3 * i + 1)), byte(get(3 * i + 2))
    end
    local v = byte(get(i))
    return v, v, v
  end)
end

--- The numbers of a list, a tensor, or a field of rows.
---@return number[]
function tensor.numbers(x, field)
  local t = tensor_of(x)
  if t then
    if T.count(t.shape) > 1 << 22 then
      base.raise("MR_E_SHAPE", "plot: there are more than 4 million values; try: plot(x[0]) or "
        .. "hist(x)")
    end
    return t:to("f64"):totable()
  end
  local out = {}
  if type(x) == "table" then
    for i, v in ipairs(x) do
      if type(v) == "table" then
        v = v[field]
      end
      if type(v) ~= "number" then
        base.raise("MR_E_USAGE", ("plot: item %d: expected a number, got %s"):format(i, type(v)))
      end
      out[i] = v
    end
  end
  if #out == 0 then
    base.raise("MR_E_USAGE",
      ("plot: expected a tensor or a list of numbers, got %s"):format(type(x)))
  end
  return out
end

-- draws on the terminal, or saves as PNG if there is a path
local function draw(png, text, make_picture)
  local picture = require "moonreel.look.picture"
  if png then
    picture.save(make_picture(), png)
    print("saved " .. png)
  elseif text and picture.graphics() == "blocks" then
    io.write(text())
  else
    io.write(picture.text(make_picture()))
  end
end

local function draw_chart(c, png)
  local chart = require "moonreel.look.chart"
  draw(png, function() return chart.text(c) end, function() return chart.picture(c) end)
end

local png_field = { "png", "text", "save the picture to this path instead of drawing it" }
local read_plot = options.declare("plot", { png_field,
  { "field", "text", "field of rows to draw; absent: value, or the only number" },
  { "title", "text", "title above the chart" },
  { "from", "number", "first value of the x axis" },
  { "to", "number", "last value of the x axis" },
})
local read_hist = options.declare("hist", { png_field,
  { "bins", "integer", "number of bars", default = 32 } })
local read_imshow = options.declare("imshow", { png_field })

-- fields of rows that contain a step or a time
local AXES <const> = { "step", "time_s", "wall" }

-- Finds the field of rows to draw (the given field, "value", or the only number that is not an
-- axis), and the axis with its first and last value. Returns an empty table for other data.
local function facts_of(x, field)
  local first = type(x) == "table" and not tensor_of(x) and x[1]
  if type(first) ~= "table" then
    return { field = field or "value" }
  end
  local facts, others = { field = field }, {}
  for _, axis in ipairs(AXES) do
    local last = x[#x][axis]
    if not facts.axis and type(first[axis]) == "number" and type(last) == "number" then
      facts.axis, facts.from, facts.to = axis, first[axis], last
    end
  end
  for key, value in pairs(first) do
    others[#others + 1] = type(value) == "number" and key ~= facts.axis and key or nil
  end
  facts.field = field or first.value and "value" or #others == 1 and others[1] or "value"
  return facts
end

--- Draws numbers as a line: a tensor, a list of numbers, or rows ({field = "rms"} selects the
-- number). If rows have a step or a time, it is the x axis.
---@param x any
---@param given table|nil  png = "f.png" saves instead of drawing; field, title, from, to
function tensor.plot(x, given)
  local o = read_plot(given)
  local facts = facts_of(x, o.field)
  draw_chart(require("moonreel.look.chart").new(tensor.numbers(x, facts.field),
    { title = o.title or facts.axis and ("%s by %s"):format(facts.field, facts.axis),
      from = o.from or facts.from, to = o.to or facts.to }), o.png)
end

--- Draws the distribution of values.
---@param x any             tensor, tensor of a checkpoint, list of numbers
---@param given table|nil    bins = 32, png = "f.png"
function tensor.draw_hist(x, given)
  local o = read_hist(given)
  local meta = debug.getmetatable(x)
  if not (type(meta) == "table" and (meta.__tensor or meta.__name == "mr.Tensor")) then
    local list = tensor.numbers(x)
    x = T.from({ #list }, list, "f64")
  end
  -- a tensor of a checkpoint is read in pieces
  draw_chart(x:hist(o.bins):chart(), o.png)
end

--- Draws a tensor as a picture.
---@param t mr.Tensor        [H, W], [3, H, W] or [H, W, 3]
---@param given table|nil    png = "f.png"
function tensor.imshow(t, given)
  local o = read_imshow(given)
  local shown = tensor_of(t)
  if not shown then
    base.raise("MR_E_USAGE", ("imshow: expected a tensor, got %s"):format(type(t)))
  end
  draw(o.png, nil, function() return tensor.picture(shown) end)
end

-- ---- saving

local savers = {}

function savers.csv(t, path)
  local shape = t.shape
  local columns = shape[#shape] or 1
  local get, lines = reader(t), {}
  for row = 0, T.count(shape) // math.max(1, columns) - 1 do
    local cells = {}
    for c = 0, columns - 1 do
      cells[c + 1] = ("%.9g"):format(get(row * columns + c))
    end
    lines[#lines + 1] = table.concat(cells, ",")
  end
  base.replace_file(path, table.concat(lines, "\n") .. "\n")
end

function savers.safetensors(t, path)
  require("moonreel.core.ckpt").write(path,
    { { name = "tensor", dtype = t.dtype, shape = t.shape, ptr = t:clone():bytes() } })
end

function savers.png(t, path) require("moonreel.look.picture").save(tensor.picture(t), path) end

function savers.mp4(t, path)
  local shape = t.shape
  if #shape ~= 4 or shape[2] ~= 3 or t.dtype ~= "u8" then
    base.raise("MR_E_SHAPE", ("save: .mp4 needs u8 [T, 3, H, W], got %s [%s]"):format(t.dtype,
      table.concat(shape, ", ")))
  end
  require("moonreel.data").encode(path, t:bytes(),
    { frames = shape[1], height = shape[3], width = shape[4] })
end

--- Writes a tensor to a file. The extension selects the format: .csv (rows of the last dimension),
-- .safetensors, .png, .mp4.
---@param path string
function Tensor:save(path)
  local saver = savers[path:match("%.(%a%w*)$") or ""]
  if not saver then
    base.raise("MR_E_USAGE", ("save: '%s': expected a name that ends in .csv, .safetensors, .png "
      .. "or .mp4"):format(path))
  end
  saver(self, path)
  return listing.new({ { saved = path } }, { { key = "saved" } })
end

return tensor
