--- Measurements taken in turn, round by round, and compared within each round: other load of the
-- machine affects all of them alike, so it cancels in their ratios.
-- @module moonreel.bench.paired
local base = require "moonreel.core.base"

local paired = {}

-- a median of fewer says little
paired.least_rounds = 3

--- The middle of a list of numbers.
---@param list number[]  not empty
---@return number
function paired.median(list)
  local sorted = table.move(list, 1, #list, 1, {})
  table.sort(sorted)
  local n = #sorted
  return (sorted[(n + 1) // 2] + sorted[n // 2 + 1]) / 2
end

--- Call every measure once per round.
---@param measures function[]  each returns a number; called in this order
---@param seconds number       to spend; at least `least_rounds` rounds
---@return number[][]          the numbers of each measure, a round each
function paired.rounds(measures, seconds)
  local got, start, rounds = {}, base.now_s(), 0
  for i = 1, #measures do
    got[i] = {}
  end
  while rounds < paired.least_rounds or base.now_s() - start < seconds do
    rounds = rounds + 1
    for i, measure in ipairs(measures) do
      got[i][rounds] = measure()
    end
  end
  return got
end

--- The median over rounds of a / b.
---@param a number[]
---@param b number[]
---@return number
function paired.ratio(a, b)
  local ratios = {}
  for i = 1, #a do
    ratios[i] = a[i] / b[i]
  end
  return paired.median(ratios)
end

--- Run a function again and again.
---@param run function     complete when it returns
---@param seconds number   at least one run
---@return number          runs per second
function paired.rate(run, seconds)
  local start, runs = base.now_s(), 0
  repeat
    run()
    runs = runs + 1
    local spent = base.now_s() - start
  until spent >= seconds
  return runs / (base.now_s() - start)
end

return paired
