--- Layers over a clip in pieces of time, with the results of the whole clip. The state that layers
-- keep of a piece is carried to the next: the last rows that a convolution reads, and sums over all
-- rows. A convolution that reads later rows gives the rows that it can compute, so its result is
-- late by some rows. Layers are written once, over parts {v, rows, late, size}: v [B, rows, H, W,
-- C] is all of a clip, or the rows of a piece, late by this number of rows; size is {H, W, C}. Rows
-- before the first and after the last are zeros for every convolution, as for the whole clip.
-- @module moonreel.nn.pieces
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local shared = require "moonreel.nn.shared"

local pieces = {}

local TIME <const> = 1

-- ---- all of a clip ----

local Whole = {}
Whole.__index = Whole

--- All of a clip at once.
---@param g mr.Graph
---@return table  with the methods below
function pieces.whole(g) return setmetatable({ g = g }, Whole) end

function Whole.source(_, v) return { v = v } end

function Whole.map(_, x, _, layer) return { v = layer(x.v) } end

function Whole.keep(_, x) return x end

function Whole.window(_, x, _, _, layer) return { v = layer(x.v, 0) } end

function Whole.rows(_, x, _, _, layer) return { v = layer(x.v) } end

function Whole.total(self, x, _, _, sums)
  local part = shared.rows(self.g)
  return part and part:total(self.g, sums(x.v)) or sums(x.v)
end

-- ---- pieces of a clip ----

local Pieces = {}
Pieces.__index = Pieces

-- Goes through the layers twice. The first time, without a graph, finds the rows that are kept,
-- taken and given. The second time adds the nodes.
local function walk(sweep, held, g, io)
  return setmetatable({ takes = {}, gives = {}, kept = {}, outputs = {}, held = held or {}, g = g,
    io = io, name = sweep.name, dtype = sweep.dtype, adds = sweep.adds }, Pieces)
end

local function part(v, rows, late, size) return { v = v, rows = rows, late = late, size = size } end

local function shape_of(x, rows) return { rows, table.unpack(x.size) } end

-- an input; without a graph a record that it is taken
local function take(self, name, row)
  self.takes[name] = row
  return self.g and self.io[name] or nil
end

--- The input of a piece.
---@param name string     name of the value
---@param rows integer    rows of a piece
---@param size integer[]  {H, W, C}
---@param of nil|fun(v: mr.Value): mr.Value  from the input to [1, rows, H, W, C]
---@param row table|nil   shape and dtype of the input, if they differ
function Pieces:source(name, rows, size, of, row)
  row = row or { shape = { rows, table.unpack(size) }, dtype = self.dtype }
  local v = take(self, "source", { value = name, rows = rows, late = 0, shape = row.shape,
    dtype = row.dtype })
  v = v and (of and of(v) or v:reshape { 1, rows, table.unpack(size) })
  return part(v, rows, 0, size)
end

--- A layer that processes every row by itself.
---@param size table      {H, W, C} of its result
---@param layer fun(v: mr.Value): mr.Value
---@param times integer|nil  rows of the result for one row
function Pieces:map(x, size, layer, times)
  times = times or 1
  return part(self.g and layer(x.v), times * x.rows, times * x.late, size)
end

-- which rows of a part belong to the clip: 1, others 0
local function mask_of(self, x)
  local name = ("inside %d %d"):format(x.rows, x.late)
  local mask = take(self, name, { value = ("%s inside %d"):format(self.name, x.rows), rows = x.rows,
    late = x.late, mask = true, shape = { x.rows }, dtype = "f32" })
  return mask and nn.cast(mask, x.v.dtype):reshape { 1, x.rows, 1, 1, 1 }
end

-- the value of a part, with zeros outside the clip
local function masked(self, x)
  local mask = mask_of(self, x)
  return mask and x.v * mask
end

--- A part of which later pieces read rows.
function Pieces:keep(x)
  local i = #self.kept + 1
  local one = part(nil, x.rows, x.late, x.size)
  one.least, self.kept[i] = 0, one
  one.v, one.held = masked(self, x), self.held[i] or 0
  if one.held > 0 then
    local name, held = "state " .. i, one.held
    one.v = G.concat({ self.io[name]:reshape { 1, held, table.unpack(x.size) }, one.v }, TIME)
    self.outputs[name] = one.v:slice(TIME, x.rows, x.rows + held):reshape(shape_of(x, held))
  end
  return one
end

-- rows [first, last) of a kept part; row 0 is the first one of this piece
local function rows_of(x, first, last)
  local begin = -x.late
  x.least = math.max(x.least, begin - first)
  return x.v and x.v:slice(TIME, first - begin + x.held, last - begin + x.held)
end

--- A convolution in time of a kept part.
---@param how table      kernel, stride, before: zeros before the first row; up: rows of the layer's
---   input for one row of the part
---@param size integer[]
---@param layer fun(v: mr.Value, more: integer): mr.Value  over the rows that it reads; more:
---   additional zeros before and after; negative: fewer
function Pieces.window(_, x, how, size, layer)
  local up, rows = how.up or 1, x.rows * (how.up or 1) // how.stride
  local ready = up * (x.rows - x.late)
  local last = (ready - how.kernel + how.before) // how.stride + 1
  local from = ((last - rows) * how.stride - how.before) // up
  local to = -(-((last - 1) * how.stride - how.before + how.kernel) // up)
  local v = rows_of(x, from, to)
  return part(v and layer(v, -how.before), rows, rows - last, size)
end

--- Rows of a kept part that are as late as those of another part.
---@param like table
---@param size integer[]
---@param layer fun(v: mr.Value): mr.Value
---@param up integer|nil  rows that the layer gives for one
function Pieces.rows(_, x, like, size, layer, up)
  up = up or 1
  local first, last = -like.late, like.rows - like.late
  local from = first // up
  local v = rows_of(x, from, -(-last // up))
  v = v and layer(v)
  return part(v and v:slice(TIME, first - up * from, last - up * from), like.rows, like.late, size)
end

-- rounds the lateness up to whole pieces
local function aligned(self, x)
  local late = -(-x.late // x.rows) * x.rows
  if late == x.late then
    return x
  end
  return self:rows(self:keep(x), part(nil, x.rows, late, x.size), x.size,
    function(v) return v end)
end

--- Sums over all rows of the clip: those of an earlier sweep; nil while this sweep is adding them.
---@param name string
---@param shape integer[]  shape of the sums, f32
---@param sums fun(v: mr.Value): mr.Value  of the part's rows; zero for rows of zeros
function Pieces:total(x, name, shape, sums)
  local before = take(self, name, { value = name, carried = shape[1], shape = shape,
    dtype = "f32" })
  self.gives[name] = { value = name, carried = shape[1] }
  if self.adds ~= name then
    -- the next piece gets them from this one, not from host memory
    self.outputs[name] = before and (ops.copy(before))
    return before
  end
  self.late = math.max(self.late or 0, x.late / x.rows)
  local v = masked(self, x)
  self.outputs[name] = v and before + nn.cast(sums(v), "f32"):reshape(shape)
end

--- The output, in whole pieces.
---@param name string  name of the value
---@param of nil|fun(v: mr.Value): mr.Value  converts the value
---@return table       the part
function Pieces:give(x, name, of)
  x = aligned(self, x)
  self.late = math.max(self.late or 0, x.late / x.rows)
  self.gives.out = { value = name, rows = x.rows, late = x.late }
  if self.g then
    self.outputs.out = of and of(x.v) or x.v:reshape(shape_of(x, x.rows))
  end
  return x
end

-- ---- the calls of a sweep ----

-- the inputs and outputs of a sweep, and the number of kept rows of each part
local function plan_of(sweep)
  local e, held = walk(sweep), {}
  sweep.layers(e)
  for i, one in ipairs(e.kept) do
    held[i] = one.least
    if one.least > 0 then
      local state = "state " .. i
      e.takes[state] = { value = sweep.name .. " " .. state, carried = held[i],
        shape = shape_of(one, held[i]), dtype = sweep.dtype }
      e.gives[state] = e.takes[state]
    end
  end
  return e, held
end

local function filled(dtype, shape)
  local ones = {}
  for i in ipairs(shape) do
    ones[i] = 1
  end
  return T.new(dtype, ones):expand(shape)
end

-- zeros, ones for the n rows of a clip, zeros
local function inside(around, n)
  local values = {}
  for i = 1, n + 2 * around do
    values[i] = i > around and i <= around + n and 1 or 0
  end
  return T.from({ n + 2 * around }, values)
end

-- the first row of a value that a call takes
local function first_of(row, at, count, around)
  if row.mask then
    return at * row.rows - row.late + around * row.rows
  end
  return row.rows and math.min(at, count - 1) * row.rows or 0
end

--- Appends the calls of a sweep over a clip: `count` pieces, and additional ones for the rows by
-- which its results are late.
---@param calls table     list; values: those that its calls bring themselves
---@param sweep table     part, key, name: of its carried values; dtype; adds: sums that it
---   computes; layers(e, net): its work, net = layers of the part, nil without a graph
---@param count integer   pieces of the clip
function pieces.append(calls, sweep, count)
  local e, held = plan_of(sweep)
  local more = math.ceil(e.late)
  local function nodes(g, net, io)
    local real = walk(sweep, held, g, io)
    sweep.layers(real, net)
    return real.outputs
  end
  for at = 0, count + more - 1 do
    local call = { part = sweep.part, key = sweep.key, takes = {}, gives = {}, nodes = nodes }
    for name, row in pairs(e.takes) do
      local value = row.value
      if row.mask then
        calls.values[value] = calls.values[value] or inside((more + 1) * row.rows, count * row.rows)
      elseif not row.rows then
        calls.values[value] = calls.values[value] or filled(row.dtype, row.shape)
      end
      call.takes[name] = { value, first_of(row, at, count, more + 1), dtype = row.dtype,
        shape = row.shape }
    end
    for name, row in pairs(e.gives) do
      local first = row.rows and at * row.rows - row.late or 0
      -- rows outside the clip are not used
      if first >= 0 and first < count * (row.rows or 1) then
        call.gives[name] = { row.value, first, row.rows or row.carried }
      end
    end
    calls[#calls + 1] = call
  end
end

return pieces
