--- Measures alternately, in rounds, and compares within each round. Other load on the machine
-- affects all measurements of a round alike, so it cancels in their ratios.
-- @module moonreel.bench.paired
local base = require "moonreel.core.base"

local paired = {}

-- fewer rounds do not give a useful median
paired.least_rounds = 3

--- The median of a list of numbers.
---@param list number[]  not empty
---@return number
function paired.median(list)
  local sorted = table.move(list, 1, #list, 1, {})
  table.sort(sorted)
  local n = #sorted
  return (sorted[(n + 1) // 2] + sorted[n // 2 + 1]) / 2
end

--- Calls every measure once per round.
---@param measures function[]  each returns a number; called in this order
---@param seconds number       time to spend; there are at least `least_rounds` rounds
---@return number[][]          the numbers of each measure, one per round
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

--- Runs a function repeatedly.
---@param run function     has completed its work when it returns
---@param seconds number   time to spend; there is at least one run
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
