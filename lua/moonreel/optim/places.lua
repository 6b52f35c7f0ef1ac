--- Finds an optimizer's state, for graphs that update or read it: regions by kind, and values over
-- ranges of them.
-- @module moonreel.optim.places
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local places = {}

--- The rows of each kind of region: one row for everything, or one for each part that this rank
-- owns.
---@param run mr.Exec
---@return table<string, table[]>  by the names of moonreel.optim.regions, and w
function places.rows(run)
  local kinds = {}
  for _, row in ipairs(run:regions()) do
    local kind = regions.kind(row.name)
    kinds[kind] = kinds[kind] or {}
    table.insert(kinds[kind], row)
  end
  -- f32 weights are their own masters
  if not kinds.master and kinds.w[1].dtype == "f32" then
    kinds.master = kinds.w
  end
  return kinds
end

--- The row that contains the elements of a range; nil: there is no such row.
---@param rows table[]|nil  rows of a kind
---@param range table       start, stop: elements of the trained range
---@return table|nil
function places.row(rows, range)
  for _, row in ipairs(rows or {}) do
    if row.start <= range.start and range.stop <= row.stop then
      return row
    end
  end
end

--- A value over a range of a region; positions in a region count from the start of its row.
---@param g mr.Graph
---@param row table
---@param range table  start, stop
---@return mr.Value    [stop - start], or the number of elements that the region has for these
function places.value(g, row, range)
  return g:region(row.name, row.dtype, (range.start - row.start) // row.per,
    {(range.stop - range.start + row.per - 1) // row.per}, row.space)
end

--- Brings a value to the device. Ranges in host memory are copied in parallel with the work on the
-- previous range, after the work on the range before that is done.
---@param g mr.Graph
---@param row table        row of its region
---@param value mr.Value
---@param done mr.Value[]  the last operation on each earlier range
---@return mr.Value
function places.bring(g, row, value, done)
  if row.space ~= "pinned" then
    return value
  end
  return g:queue("h2d", function() return g:move(value, "device", done[#done - 1]) end)
end

--- The rows that contain a moment: in 32 bits, or its codes.
---@param kinds table<string, table[]>  result of places.rows
---@param moment table                  one of regions.moments
---@return table[]|nil
function places.moments(kinds, moment)
  return kinds[moment.name] or kinds[regions.coded[moment.name].codes.name]
end

--- Does an update work on copies of the state? Then it works in pieces.
---@param kinds table<string, table[]>  result of places.rows
---@return boolean
function places.moves(kinds)
  local row = places.moments(kinds, regions.moments[1])[1]
  return row.space == "pinned" or row.dtype ~= "f32"
end

local function send(g, row, value, place)
  return row.space == "pinned" and g:queue("d2h", function() return g:put(value, place) end) or nil
end

---@class mr.State  an optimizer's state for a range
---@field here mr.Value  on the device, in f32
---@field put fun(updated: mr.Value): mr.Value|nil  stores a new value; returns the last operation

-- a range of a 32-bit row
local function whole(g, row, range, done)
  local place = places.value(g, row, range)
  return {here = places.bring(g, row, place, done), put = function(updated)
    return send(g, row, updated, place)
  end}
end

-- a range of an 8-bit moment: its codes are decoded, and encoded again when it is stored
local function decoded(g, rows, coded, range, done)
  local codes, scale = whole(g, rows.codes, range, done), whole(g, rows.scale, range, done)
  return {here = ops.decode_dynamic8(codes.here, scale.here, coded.how), put = function(updated)
    local new_codes, new_scale = ops.encode_dynamic8(updated, codes.here, scale.here, coded.how)
    codes.put(new_codes)
    return scale.put(new_scale)
  end}
end

--- An optimizer's state for a range, for a graph that updates or reads it.
---@param g mr.Graph
---@param kinds table<string, table[]>  result of places.rows
---@param kind string      master, ema, or a moment of any precision
---@param range table      start, stop
---@param done mr.Value[]  as for places.bring
---@return mr.State|nil    nil: the optimizer has no such state
function places.state(g, kinds, kind, range, done)
  local row, coded = places.row(kinds[kind], range), regions.coded[kind]
  if row or not coded then
    return row and whole(g, row, range, done) or nil
  end
  local rows = {codes = places.row(kinds[coded.codes.name], range),
    scale = places.row(kinds[coded.scale.name], range)}
  return rows.codes and decoded(g, rows, coded, range, done) or nil
end

return places
