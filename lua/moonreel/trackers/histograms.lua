--- Histograms in lines of the journal: counts in the bins of core/op/histogram.c, in a short form.
--
-- A line has histograms = {TAG = {first, counts, sum, sum_squares, nan}}. first: number of the bin
-- of the first count, from 0. counts: integers, where -n means n empty bins. sum and sum_squares:
-- of finite elements. nan: number of NaN elements, absent if there are none.
-- @module moonreel.trackers.histograms
local json = require "moonreel.core.json"

local histograms = {}

local SIDE <const>, LEAST <const> = 248, -46 -- bins of each sign; exponent of the smallest edge
local BINS <const> = 2 * SIDE + 1

--- Numbers in a histogram before it is shortened: counts of bins, number of NaN elements, sum, sum
-- of squares.
histograms.NUMBERS = BINS + 3

-- the magnitude at which the k-th bin of a sign begins, from 0
local function edge(k) return 2.0 ^ (LEAST + k // 4) * (1 + k % 4 / 4) end

-- the right edge of a bin, from 0
local function right(bin)
  if bin < SIDE then
    return -edge(SIDE - 1 - bin)
  end
  return edge(bin - SIDE)
end

--- Makes the short form.
---@param all number[]  sum of rows "histogram"
---@return table
function histograms.pack(all)
  local first, last
  for bin = 1, BINS do
    if all[bin] > 0 then
      first, last = first or bin, bin
    end
  end
  local counts, empty = json.array {}, 0
  for bin = first or 1, last or 0 do
    if all[bin] > 0 then
      if empty > 0 then
        counts[#counts + 1], empty = -empty, 0
      end
      counts[#counts + 1] = math.tointeger(all[bin])
    else
      empty = empty + 1
    end
  end
  local nan = math.tointeger(all[BINS + 1])
  return { first = (first or SIDE + 1) - 1, counts = counts, nan = nan > 0 and nan or nil,
    sum = all[BINS + 2], sum_squares = all[BINS + 3] }
end

local function is_number(x) return type(x) == "number" and x == x and math.abs(x) < math.huge end

-- bins with their counts, a run of empty bins as one; nil: the form is not valid
local function unpack_counts(short)
  local bin, limits, values, n = math.tointeger(short.first), {}, {}, 0
  if not bin or type(short.counts) ~= "table" then
    return nil
  end
  for _, count in ipairs(short.counts) do
    local bins = math.tointeger(count)
    bins = bins and bins < 0 and -bins or 1
    if not math.tointeger(count) or bin < 0 or bin + bins > BINS then
      return nil
    end
    bin = bin + bins
    limits[#limits + 1], values[#values + 1] = right(bin - 1), math.max(count, 0)
    n = n + values[#values]
  end
  return limits, values, n
end

---@class mr.Histogram
---@field min number       left edge of the first bin
---@field limits number[]  right edge of each bin
---@field counts number[]  of each bin
---@field num number       number of elements in them
---@field sum number
---@field sum_squares number

--- The histograms of a line: {{tag, mr.Histogram}, ...} by tag. Histograms that are empty or not in
-- a valid form are left out.
---@param line table  line of the journal
---@return table[]
function histograms.of_line(line)
  local list = {}
  for tag, short in pairs(type(line.histograms) == "table" and line.histograms or {}) do
    if type(tag) == "string" and type(short) == "table" then
      local limits, counts, n = unpack_counts(short)
      if limits and n > 0 then
        list[#list + 1] = { tag, { min = short.first > 0 and right(short.first - 1) or -edge(SIDE),
          limits = limits, counts = counts, num = n, sum = is_number(short.sum) and short.sum or 0,
          sum_squares = is_number(short.sum_squares) and short.sum_squares or 0 } }
      end
    end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

return histograms
