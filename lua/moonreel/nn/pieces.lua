--- Layers over a clip in pieces of time, with the results of the whole clip. What layers keep of a
-- piece is carried to the next: the last rows of what a convolution reads, and sums over all rows.
-- A convolution that reads later rows gives those that it can, so its result is late by some rows.
-- Layers are written once, over parts {v, rows, late, size}: v [B, rows, H, W, C]; all of a clip,
-- or the rows of a piece, late by this many behind those that came; size {H, W, C}. Rows before the
-- first and behind the last are zeros to every convolution, as the whole has them.
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

-- ---- pieces of it ----

local Pieces = {}
Pieces.__index = Pieces

-- Layers are gone through twice. First without a graph: which rows are kept, what is taken and
-- given. Then for the nodes, with what was found.
local function walk(sweep, held, g, io)
  return setmetatable({ takes = {}, gives = {}, kept = {}, outputs = {}, held = held or {}, g = g,
    io = io, name = sweep.name, dtype = sweep.dtype, adds = sweep.adds }, Pieces)
end

local function part(v, rows, late, size) return { v = v, rows = rows, late = late, size = size } end

local function shape_of(x, rows) return { rows, table.unpack(x.size) } end

-- an input, or without a graph the fact that it is taken
local function take(self, name, row)
  self.takes[name] = row
  return self.g and self.io[name] or nil
end

--- What comes in.
---@param name string     of the value
---@param rows integer    of a piece
---@param size integer[]  {H, W, C}
---@param of nil|fun(v: mr.Value): mr.Value  from the input to [1, rows, H, W, C]
---@param row table|nil   shape and dtype of the input, where they are others
function Pieces:source(name, rows, size, of, row)
  row = row or { shape = { rows, table.unpack(size) }, dtype = self.dtype }
  local v = take(self, "source", { value = name, rows = rows, late = 0, shape = row.shape,
    dtype = row.dtype })
  v = v and (of and of(v) or v:reshape { 1, rows, table.unpack(size) })
  return part(v, rows, 0, size)
end

--- A layer that takes every row by itself.
---@param size table      {H, W, C} of its result
---@param layer fun(v: mr.Value): mr.Value
---@param times integer|nil  rows for one
function Pieces:map(x, size, layer, times)
  times = times or 1
  return part(self.g and layer(x.v), times * x.rows, times * x.late, size)
end

-- which rows of a part are those of the clip: 1, others 0
local function mask_of(self, x)
  local name = ("inside %d %d"):format(x.rows, x.late)
  local mask = take(self, name, { value = ("%s inside %d"):format(self.name, x.rows), rows = x.rows,
    late = x.late, mask = true, shape = { x.rows }, dtype = "f32" })
  return mask and nn.cast(mask, x.v.dtype):reshape { 1, x.rows, 1, 1, 1 }
end

-- the value of a part, zeros outside the clip
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

-- rows [first, last) of a kept part; row 0 is the first that came with this piece
local function rows_of(x, first, last)
  local begin = -x.late
  x.least = math.max(x.least, begin - first)
  return x.v and x.v:slice(TIME, first - begin + x.held, last - begin + x.held)
end

--- A convolution in time of a kept part.
---@param how table      kernel, stride, before: zeros before the first row; up: rows for one of the
---   part, formed by the layer
---@param size integer[]
---@param layer fun(v: mr.Value, more: integer): mr.Value  over the rows that it reads; more: zeros
---   before and behind more than its own, less than none
function Pieces.window(_, x, how, size, layer)
  local up, rows = how.up or 1, x.rows * (how.up or 1) // how.stride
  local ready = up * (x.rows - x.late)
  local last = (ready - how.kernel + how.before) // how.stride + 1
  local from = ((last - rows) * how.stride - how.before) // up
  local to = -(-((last - 1) * how.stride - how.before + how.kernel) // up)
  local v = rows_of(x, from, to)
  return part(v and layer(v, -how.before), rows, rows - last, size)
end

--- Rows of a kept part as late as those of another.
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

-- late by whole pieces
local function aligned(self, x)
  local late = -(-x.late // x.rows) * x.rows
  if late == x.late then
    return x
  end
  return self:rows(self:keep(x), part(nil, x.rows, late, x.size), x.size,
    function(v) return v end)
end

--- Sums over all rows of the clip: those that an earlier sweep has made, or, where this one adds
-- them, nothing yet.
---@param name string
---@param shape integer[]  of the sums, f32
---@param sums fun(v: mr.Value): mr.Value  of the part's rows; of zeros they are zero
function Pieces:total(x, name, shape, sums)
  local before = take(self, name, { value = name, carried = shape[1], shape = shape,
    dtype = "f32" })
  self.gives[name] = { value = name, carried = shape[1] }
  if self.adds ~= name then
    -- the next piece has them from this one, not from afar
    self.outputs[name] = before and (ops.copy(before))
    return before
  end
  self.late = math.max(self.late or 0, x.late / x.rows)
  local v = masked(self, x)
  self.outputs[name] = v and before + nn.cast(sums(v), "f32"):reshape(shape)
end

--- What goes out, in whole pieces.
---@param name string  of the value
---@param of nil|fun(v: mr.Value): mr.Value  what it is given as
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

-- what a sweep takes and gives, and how many rows of each part are kept
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

-- the first row that a call takes of a value
local function first_of(row, at, count, around)
  if row.mask then
    return at * row.rows - row.late + around * row.rows
  end
  return row.rows and math.min(at, count - 1) * row.rows or 0
end

--- Append the calls of a sweep over a clip: `count` pieces, and as many more as its results are
-- late.
---@param calls table     list; values: what its calls bring themselves
---@param sweep table     part, key, name: of what it carries; dtype; adds: sums that it makes;
---   layers(e, net): what it does, net = layers of the part, nil where no nodes are made
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
      -- what lies outside the clip is of no use
      if first >= 0 and first < count * (row.rows or 1) then
        call.gives[name] = { row.value, first, row.rows or row.carried }
      end
    end
    calls[#calls + 1] = call
  end
end

return pieces
