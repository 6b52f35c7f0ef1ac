--- Copies weights of a checkpoint or a file into the regions of an executor.
-- @module moonreel.ckpt.fill
local cut = require "moonreel.ckpt.cut"
local start = require "moonreel.ckpt.start"

local fill = {}

--- The part of a parameter that a region has.
---@param r table       a row of exec:regions()
---@param p table       from params:list()
---@param mine table|nil  {start, stop}: range in the elements of all parameters; nil: all
---@return table|nil has  shape: of the whole, over all ranks; from, to: its own elements; at: where
---   these begin in the region; pieces: their places in the whole, in order, {n = elements, range =
---   {from, to}, or box = {{from, to} of each axis}, or all}; nil: no part
function fill.part(r, p, mine)
  local first = math.max(p.offset, r.start, mine and mine.start or 0)
  local last = math.min(p.offset + p.count, r.stop, mine and mine.stop or math.maxinteger)
  if p.frozen ~= (r.role == "frozen") or first >= last then
    return nil
  end
  local all = (p.count + r.per - 1) // r.per
  local from, to = (first - p.offset) // r.per, (last - p.offset + r.per - 1) // r.per
  local has = {shape = r.per == 1 and p.shape or {all}, from = from, to = to,
    at = (first - r.start) // r.per}
  if p.cut then
    has.shape, has.pieces = cut.shape(p, r.per), cut.boxes(p, from, to, r.per)
  else
    has.pieces = {{n = to - from, range = (from > 0 or to < all) and {from, to} or nil}}
  end
  return has
end

--- Writes the part of a parameter that a region has.
---@param run mr.Exec
---@param r table           a row of exec:regions()
---@param has table         from fill.part
---@param tensor mr.Tensor  its elements, in any dtype
function fill.write(run, r, has, tensor)
  -- the garbage collector does not see the size of tensors, so each is closed after use
  local other <close> = tensor.dtype ~= r.dtype and tensor:to(r.dtype) or nil
  run:write(r.name, has.at, other or tensor)
end

--- Loads only weights, as far as they fit; the averages start from them.
---@param run mr.Exec
---@param params mr.Params
---@param source mr.Checkpoint
---@param how table|nil   maps of the families (start.lua); average: averaged weights, if there are
---   any, else the weight itself; finite: as in start.read
---@return table report   from start.read
function fill.weights(run, params, source, how)
  local into, exact = {}, false
  for _, r in ipairs(run:regions()) do
    if r.role ~= "state" and not r.shared then
      into[#into + 1] = r
    end
    -- masters are more exact than the weights rounded from them, if there is a region for them
    exact = exact or r.role == "master" or (r.role == "weights" and r.dtype == "f32")
  end
  how = how or {}
  return start.read(source, params:list(), {maps = how.maps, average = how.average,
    exact = exact, finite = how.finite}, function(p, t)
    local own = cut.take(p, t)
    for _, r in ipairs(into) do
      local has = fill.part(r, p)
      if has then
        fill.write(run, r, has, own:slice(0, has.from, has.to))
      end
    end
  end)
end

return fill
