--- Where an optimizer's state is, for graphs that update or read it: regions by kind, values over
-- ranges of them.
-- @module moonreel.optim.places
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local places = {}

--- The rows of each kind of region: one over all, or one for each part that this rank owns.
---@param run mr.Exec
---@return table<string, table[]>  by the names of moonreel.optim.regions, and w
function places.rows(run)
  local kinds = {}
  for _, row in ipairs(run:regions()) do
    local kind = regions.kind(row.name)
    kinds[kind] = kinds[kind] or {}
    table.insert(kinds[kind], row)
  end
  -- weights of f32 are their own masters
  if not kinds.master and kinds.w[1].dtype == "f32" then
    kinds.master = kinds.w
  end
  return kinds
end

--- The row that holds the elements of a range; nil: none does.
---@param rows table[]|nil  of a kind
---@param range table       start, stop: elements of the trained range
---@return table|nil
function places.row(rows, range)
  for _, row in ipairs(rows or {}) do
    if row.start <= range.start and range.stop <= row.stop then
      return row
    end
  end
end

--- A value over a range of a region, which counts places from where it begins.
---@param g mr.Graph
---@param row table
---@param range table  start, stop
---@return mr.Value    [stop - start], or as many as the region has for these
function places.value(g, row, range)
  return g:region(row.name, row.dtype, (range.start - row.start) // row.per,
    {(range.stop - range.start + row.per - 1) // row.per}, row.space)
end

--- A value on the device. Ranges of what is in host memory come to it in parallel with the work
-- on the range before, and when that on the one before that is over.
---@param g mr.Graph
---@param row table        of its region
---@param value mr.Value
---@param done mr.Value[]  what was last to be done with each range so far
---@return mr.Value
function places.bring(g, row, value, done)
  if row.space ~= "pinned" then
    return value
  end
  return g:queue("h2d", function() return g:move(value, "device", done[#done - 1]) end)
end

--- Rows that hold a moment: in 32 bits, or its codes.
---@param kinds table<string, table[]>  of places.rows
---@param moment table                  of regions.moments
---@return table[]|nil
function places.moments(kinds, moment)
  return kinds[moment.name] or kinds[regions.coded[moment.name].codes.name]
end

--- Does an update work on copies of what is kept? Then it goes over pieces.
---@param kinds table<string, table[]>  of places.rows
---@return boolean
function places.moves(kinds)
  local row = places.moments(kinds, regions.moments[1])[1]
  return row.space == "pinned" or row.dtype ~= "f32"
end

local function send(g, row, value, place)
  return row.space == "pinned" and g:queue("d2h", function() return g:put(value, place) end) or nil
end

---@class mr.State  what an optimizer keeps of a range
---@field here mr.Value  on the device, in f32
---@field put fun(updated: mr.Value): mr.Value|nil  it becomes this: the last that is to be done so

-- a range of a row of 32 bits
local function whole(g, row, range, done)
  local place = places.value(g, row, range)
  return {here = places.bring(g, row, place, done), put = function(updated)
    return send(g, row, updated, place)
  end}
end

-- a range of a moment in 8 bits: its codes come, and numbers are made of them and go back
local function decoded(g, rows, coded, range, done)
  local codes, scale = whole(g, rows.codes, range, done), whole(g, rows.scale, range, done)
  return {here = ops.decode_dynamic8(codes.here, scale.here, coded.how), put = function(updated)
    local new_codes, new_scale = ops.encode_dynamic8(updated, codes.here, scale.here, coded.how)
    codes.put(new_codes)
    return scale.put(new_scale)
  end}
end

--- What an optimizer keeps of a range, for a graph that updates or reads it.
---@param g mr.Graph
---@param kinds table<string, table[]>  of places.rows
---@param kind string      master, ema, or a moment, in whatever bits
---@param range table      start, stop
---@param done mr.Value[]  as places.bring takes it
---@return mr.State|nil    nil: it keeps none
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
