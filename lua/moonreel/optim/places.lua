--- Where an optimizer's state lies, as graphs that update or read it take it: rows of regions by
-- kind, values over ranges of them.
-- @module moonreel.optim.places
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
---@return mr.Value    [stop - start]
function places.value(g, row, range)
  return g:region(row.name, row.dtype, range.start - row.start, {range.stop - range.start},
    row.space)
end

--- A value on the device. Ranges of what lies in host memory come to it beside the work on the
-- range before, and when that on the one before that is over.
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

return places
