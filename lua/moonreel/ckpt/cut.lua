--- Maps parameters that ranks share (moonreel.nn.split) to files, which store whole parameters: the
-- boxes of a whole parameter that this rank has, in order. A rank has a share of each part of an
-- axis, one after another.
-- @module moonreel.ckpt.cut
local T = require "moonreel.core.tensor"

local cut = {}

-- this rank's range of each part of an axis: {from, to}
local function shares(p)
  local list, before = {}, 0
  for i, n in ipairs(p.cut.parts) do
    local share = n // p.cut.ranks
    list[i] = { before + p.cut.at * share, before + (p.cut.at + 1) * share }
    before = before + n
  end
  return list
end

--- The shape of this rank's share of a parameter.
---@param p table  from params:list(), with a cut
---@return integer[]
function cut.own_shape(p)
  local shape = table.move(p.shape, 1, #p.shape, 1, {})
  shape[p.cut.axis + 1] = shape[p.cut.axis + 1] // p.cut.ranks
  return shape
end

--- This rank's share of a whole parameter.
---@param p table          from params:list()
---@param whole mr.Tensor  of shape p.shape
---@return mr.Tensor       [p.count]
function cut.take(p, whole)
  if not p.cut then
    return whole:reshape { -1 }
  end
  local own, at = T.new(whole.dtype, { p.count }), 0
  for _, share in ipairs(shares(p)) do
    local part = whole:slice(p.cut.axis, share[1], share[2])
    local n = T.count(part.shape)
    own:slice(0, at, at + n):reshape(part.shape):copy_from(part)
    at = at + n
  end
  return own
end

-- Elements [from, to) of a matrix with `cols` columns as at most three boxes of rows and columns:
-- the rest of a row, whole rows, the beginning of a row.
local function boxes_of(cols, from, to)
  local list = {}
  while from < to do
    local row, col = from // cols, from % cols
    local rows = col == 0 and math.max((to - from) // cols, 1) or 1
    local last = math.min(to, (row + rows) * cols)
    list[#list + 1] = { row = row, rows = rows, from = col, to = last - (row + rows - 1) * cols,
      n = last - from }
    from = last
  end
  return list
end

--- The shape of the whole parameter in a checkpoint.
---@param p table      from params:list()
---@param per integer  elements along the last axis for each number
---@return integer[]
function cut.shape(p, per)
  local shape = table.move(p.shape, 1, #p.shape, 1, {})
  shape[#shape] = shape[#shape] // per
  return shape
end

--- The boxes of the whole parameter that contain some of this rank's elements, in their order.
---@param p table       from params:list(), with one or two axes and a cut
---@param from integer  element of this rank's share
---@param to integer
---@param per integer|nil  each number stands for `per` elements along the last axis, and all counts
---   are of numbers; absent: 1
---@return table[]      {box = {{from, to} of each axis}, n = number of elements}
function cut.boxes(p, from, to, per)
  per = per or 1
  local list, at, rank = {}, 0, #p.shape
  for _, share in ipairs(shares(p)) do
    -- a matrix; a single axis is its only row
    local rows, cols = { 0, rank > 1 and p.shape[1] or 1 }, { 0, p.shape[rank] // per }
    if p.cut.axis == rank - 1 then
      cols = { share[1] // per, share[2] // per }
    else
      rows = share
    end
    local high, wide = rows[2] - rows[1], cols[2] - cols[1]
    local first, last = math.max(from - at, 0), math.min(to - at, high * wide)
    for _, one in ipairs(boxes_of(wide, first, last)) do
      local columns = { cols[1] + one.from, cols[1] + one.to }
      local of_rows = { rows[1] + one.row, rows[1] + one.row + one.rows }
      list[#list + 1] = { n = one.n, box = rank > 1 and { of_rows, columns } or { columns } }
    end
    at = at + high * wide
  end
  return list
end

--- Boxes of a matrix as ranges of its elements, in their order.
---@param pieces table[]    from cut.boxes
---@param shape integer[]   shape of the matrix
---@return table[]          {range = {from, to}, n}
function cut.ranges(pieces, shape)
  local list, cols = {}, shape[2]
  for _, piece in ipairs(pieces) do
    local rows, columns = table.unpack(piece.box)
    local wide = columns[2] - columns[1]
    local high = wide == cols and rows[2] - rows[1] or 1
    for row = rows[1], rows[2] - 1, high do
      local from = row * cols + columns[1]
      list[#list + 1] = { range = { from, from + high * wide }, n = high * wide }
    end
  end
  return list
end

return cut
