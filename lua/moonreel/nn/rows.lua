--- A clip of which each rank has some rows of cells, channels last: [B, T, H, W, C]. Layers that
-- read no neighbours work unchanged. A convolution gets the rows that it reads from the rank above
-- and the rank below (`window`); sums over positions are sums over all ranks (`total`, `moments`).
-- Ref: parallelism 8.
-- @module moonreel.nn.rows
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local sequence = require "moonreel.nn.sequence"

local rows = {}

local ROWS <const> = 2 -- the axis that is divided

---@class mr.Rows  the part of a clip on a rank
---@field share mr.Shared
---@field cells integer  rows of cells of all ranks
---@field own integer    number of these on this rank
local Rows = {}
Rows.__index = Rows

-- Refuses a number of ranks with which a rank has fewer rows than a convolution reads from it, and
-- says which numbers of ranks and which heights are possible. `of_cell` is the number of rows in a
-- cell. The suggested number divides the present one, so that the rest of the run is unchanged.
local function refuse(self, reach, have, of_cell)
  local share = self.share
  local least = -(-reach // of_cell)
  local ranks = math.max(math.min(self.cells // least, share.ranks), 1)
  while share.ranks % ranks ~= 0 do
    ranks = ranks - 1
  end
  base.raise("MR_E_SHAPE", ("%d ranks share %d rows of cells, %d pixels each: a convolution reads "
    .. "%d row%s of its neighbour, which has only %d; try: %s = %d, or clips %d pixels high")
    :format(share.ranks, self.cells, share.pixels, reach, reach == 1 and "" or "s", have,
    share.field, ranks, least * share.ranks * share.pixels))
end

--- Applies layers to this rank's rows of a clip; returns the results of all ranks.
---@param share mr.Shared
---@param x mr.Value      [B, T, H, W, C]
---@param side integer    rows of x for one row of cells, which ranks have as a whole
---@param layers fun(part: mr.Rows, x: mr.Value): mr.Value
---@return mr.Value
function rows.through(g, share, x, side, layers)
  local height = x.shape[ROWS + 1]
  local cells = -(-height // side)
  local first, last = sequence.part(cells, share.ranks, share.at)
  local self = setmetatable({ share = share, cells = cells, own = last - first, side = side,
    width = x.shape[ROWS + 2] }, Rows)
  if cells < share.ranks then
    refuse(self, share.reach, self.cells // share.ranks, 1)
  end
  return self:gather(g, layers(self, x:slice(ROWS, first * side, math.min(last * side, height))))
end

-- Rows of a cell at the level of x. The number is the same on all ranks: the last cell may have
-- fewer rows, but all have the full width.
local function per_cell(self, x) return -(-self.side * x.shape[ROWS + 2] // self.width) end

--- Rows of x on the rank with the most of them.
---@param x mr.Value
---@return integer
function Rows:most(x) return -(-self.cells // self.share.ranks) * per_cell(self, x) end

-- reshapes rows of whole cells to cells, applies f, and reshapes back
local function by_cells(self, x, f)
  local B, frames, height, W, C = table.unpack(x.shape)
  local some = height // self.own
  local y = f(x:reshape { B, frames, self.own, some * W, C })
  return y:reshape { B, frames, self.cells * some, W, C }
end

--- The rows of all ranks. All ranks have to compute the same from them.
---@param x mr.Value  this rank's rows, whole cells
---@return mr.Value
function Rows:gather(g, x)
  return by_cells(self, x, function(v) return self.share:gather(g, v, ROWS, self.cells) end)
end

--- The rows of all ranks, from which each rank computes something different.
---@param x mr.Value  this rank's rows, whole cells
---@return mr.Value
function Rows:all(g, x)
  return by_cells(self, x, function(v) return self.share:all(g, v, ROWS, self.cells) end)
end

--- A sum over positions of all ranks.
---@param x mr.Value  sum on this rank
---@return mr.Value   sum over all ranks
function Rows:total(g, x) return (ops.sum(self.share:each(g, x), { axes = { 0 } })) end

-- ---- convolutions

-- rows of a neighbour: x is sent in the other direction, n rows come back
local function pass(self, g, x, first, last, n, hops)
  return self.share:shift(g, x:slice(ROWS, first, last), ROWS, n, hops)
end

--- The input of a convolution with the rows of neighbours, and the padding that is left.
---@param x mr.Value        this rank's rows
---@param kernel integer    rows
---@param stride integer
---@param pad integer[]     padding {before, after} in time, height and width
---@return mr.Value, integer[]
function Rows:window(g, x, kernel, stride, pad)
  local share, n = self.share, x.shape[ROWS + 1]
  local before = pad[2 * ROWS - 1]
  local behind = math.max(kernel - stride - before, 0)
  local top, bottom = share.at == 0, share.at == share.ranks - 1
  local least = self.cells // share.ranks * per_cell(self, x)
  if math.max(before, behind) > least then
    refuse(self, math.max(before, behind), least, per_cell(self, x))
  end
  pad = { table.unpack(pad) }
  pad[2 * ROWS - 1], pad[2 * ROWS] = top and before or 0, bottom and pad[2 * ROWS] or 0
  local list = { x }
  if before > 0 then
    table.insert(list, 1, pass(self, g, x, n - (bottom and 0 or before), n, top and 0 or before, 1))
  end
  if behind > 0 then
    list[#list + 1] = pass(self, g, x, 0, top and 0 or behind, bottom and 0 or behind, -1)
  end
  return #list > 1 and G.concat(list, ROWS) or x, pad
end

-- ---- norms

-- joins the moments of all ranks: mean, sum of squares around it, and number of elements, [ranks,
-- B, groups, 1] each
local function joined(mean, squares, count)
  local function all(x) return (ops.sum(x, { axes = { 0 }, keep = true })) end
  local n = all(count)
  local middle = all(mean * count) / n
  local off = mean - middle
  return middle, all(squares + off * off * count), n
end

local function split(x)
  return x:slice(3, 0, 1), x:slice(3, 1, 2), x:slice(3, 2, 3)
end

--- Moments over all ranks.
---@param x mr.Value  f32 [B, groups, 3]: mean, sum of squares around it, elements of this rank
---@return mr.Value   the same over all ranks
function Rows:moments(g, x)
  local mean, squares, n = joined(split(self.share:each(g, x)))
  return G.concat({ mean, squares, n }, 3):reshape(x.shape)
end

--- Group norm by the moments of all ranks, with gradients: the norm of this rank, corrected from
-- its moments to the joint ones.
---@param x mr.Value
---@param weight mr.Value
---@param bias mr.Value
---@param how table   groups, eps, silu
---@return mr.Value
function Rows:group_norm(g, x, weight, bias, how)
  local shape, groups = x.shape, how.groups
  local B, C = shape[1], shape[5]
  local places = T.count(shape) // (B * C)
  local function filled(dtype, dims, value)
    return g:const((ops.affine(T.new(dtype, dims), { scale = 0, shift = value })))
  end
  local own, stats = ops.group_norm(x, filled(x.dtype, { C }, 1), filled(x.dtype, { C }, 0),
    { groups = groups, eps = how.eps })
  local mean, rate = stats:slice(2, 0, 1), stats:slice(2, 1, 2)
  local count = filled("f32", { B, groups, 1 }, places * C // groups)
  -- mean squares with eps, in the form of one over rate
  local middle, squares, n = joined(split(self.share:each(g, G.concat({ mean, count / (rate * rate),
    count }, 2))))
  local scale = filled("f32", { 1, 1, 1, 1 }, 1) / ops.sqrt(squares / n)
  local function row(v) return nn.cast(v, x.dtype):reshape { B, 1, groups, 1 } end
  local function of_channel(v) return v:reshape { 1, 1, groups, C // groups } end
  local mine = { B, groups, 1 }
  middle, scale = middle:reshape(mine), scale:reshape(mine)
  local y = own:reshape { B, places, groups, C // groups } * row(scale / rate)
    + row((mean - middle) * scale)
  y = (y * of_channel(weight) + of_channel(bias)):reshape(shape)
  return how.silu and ops.silu(y) or y
end

-- ---- attention

--- Attention of one head in which queries attend to cells of their own and of earlier frames.
---@param q mr.Value  [B, T, H, W, C] of this rank; k and v have the same shape
---@return mr.Value   [B, T, H, W, C]
function Rows:frames(g, q, k, v)
  local B, frames, H, W, C = table.unpack(q.shape)
  local all, out = self:all(g, G.concat({ k, v }, 4)), {}
  local cells = all.shape[ROWS + 1] * W
  local function heads(x, n) return x:reshape { B, 1, n, 1, C } end
  -- frame by frame, because a rank has fewer queries than keys
  for t = 1, frames do
    local seen = all:slice(1, 0, t)
    local o, lse = ops.attention(heads(q:slice(1, t - 1, t), H * W),
      heads(seen:slice(4, 0, C), t * cells), heads(seen:slice(4, C, 2 * C), t * cells), {})
    g:save(o)
    g:save(lse)
    out[t] = o:reshape { B, 1, H, W, C }
  end
  return G.concat(out, 1)
end

return rows
