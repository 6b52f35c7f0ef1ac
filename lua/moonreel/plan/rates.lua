--- Seconds of a program step from measured steps of the same op and dtypes at other shapes. A
-- measured machine has such points, each with its operations, bytes and seconds. The ratio of a
-- step's seconds to the machine's limits changes slowly with its size, so this factor is averaged
-- over the points, weighted by the inverse fourth power of their distance. With the second power,
-- many distant points pulled large products to the rate of small ones: with one point left out, the
-- mean error was 11 to 13 % instead of 8 to 11 %. The limits give the rest.
-- @module moonreel.plan.rates
local rates = {}

-- squared distance, in logarithms of operations and of bytes, within which points have equal weight
local NEAR = 0.1

--- The key of steps that are rated together: op, kind of kernel and dtypes of inputs; for
-- convolutions also the taps, because one cell and its neighbours use different products.
---@param row table  from mr.Program times()
---@return string    "linear bf16, bf16", "conv3d 1x3x3 by fewer products f32, f32"
function rates.key(row)
  local taps = row.op:find "^conv"
    and row.shapes:match "^%b[] %w+, %[%d+, %d+, (%d+, %d+, %d+)%]"
  return row.op .. (taps and " " .. taps:gsub(", ", "x") or "") .. (row.way and " by " .. row.way
    or "") .. " " .. row.shapes:gsub("%b[] ", "")
end

--- Points of measured steps; equal points become one with their mean.
---@param rows table[]  from mr.Program times(), timed
---@return table<string, number[][]>  by key {operations, bytes, seconds}
function rates.points(rows)
  local by, known = {}, {}
  for _, row in ipairs(rows) do
    local key = rates.key(row)
    local id = ("%s %.17g %.17g"):format(key, row.flop, row.bytes)
    local one = known[id]
    if not one then
      one = { point = { row.flop, row.bytes }, sum = 0, n = 0 }
      by[key] = by[key] or {}
      known[id], by[key][#by[key] + 1] = one, one.point
    end
    one.sum, one.n = one.sum + row.seconds, one.n + 1
    one.point[3] = one.sum / one.n
  end
  return by
end

-- seconds at the limits of a machine
local function least(m, flop, bytes)
  return flop / m.rate.product + bytes / m.peak.memory + m.rate.step_s
end

local function squared_log(a, b)
  local x = math.log((a + 1) / (b + 1))
  return x * x
end

--- Was a step of its op and dtypes measured?
---@param m table    machine with ops
---@param row table  from mr.Program times()
---@return boolean
function rates.known(m, row) return m.ops[rates.key(row)] ~= nil end

--- Seconds of a step from the machine's points.
---@param m table        machine with ops (by key), rate.product, rate.step_s, peak.memory
---@param row table      from mr.Program times()
---@param others boolean|nil  leave out points with the same operations and bytes: the prediction is
---   for a size that was never measured
---@return number|nil    nil without a point for its op
function rates.seconds(m, row, others)
  local sum, weights = 0, 0
  for _, point in ipairs(m.ops[rates.key(row)] or {}) do
    local flop, bytes, seconds = table.unpack(point)
    if not (others and flop == row.flop and bytes == row.bytes) then
      local away = squared_log(flop, row.flop) + squared_log(bytes, row.bytes) + NEAR
      local weight = 1 / (away * away)
      sum = sum + weight * math.log(seconds / least(m, flop, bytes))
      weights = weights + weight
    end
  end
  return weights > 0 and least(m, row.flop, row.bytes) * math.exp(sum / weights) or nil
end

return rates
