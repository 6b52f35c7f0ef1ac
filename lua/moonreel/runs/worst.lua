--- Ranks samples by loss, from a journal and the order of the data. A journal has the loss of a
-- step, and the order says which samples a step had. Each step is compared with earlier steps of
-- the same bucket and a similar noise level, and a sample gets the mean of its steps. The mean says
-- more about a sample if steps have few samples and the sample occurs often.
-- @module moonreel.runs.worst
local audit = require "moonreel.runs.audit"

local worst = {}

local LEVELS <const> = 4         -- number of noise levels
local TIMES <const> = 1000       -- times of the flow are in 0..1000
local MEMORY <const> = 0.05      -- weight of the newest step in the running mean and variance
local LEAST <const> = 5          -- steps that a group needs before it is used

-- the group of a step: its bucket and its noise level
local function group_of(line)
  local t = type(line.t) == "number" and line.t or 0
  local level = math.min(LEVELS - 1, math.max(0, t * LEVELS // TIMES)) | 0
  return ("%s, noise %d of %d"):format(tostring(line.bucket), level + 1, LEVELS)
end

-- the deviations of a loss from the running mean of its group; nil: the group has too few steps
local function judge(groups, line)
  local name = group_of(line)
  local group = groups[name]
  if not group then
    groups[name] = { n = 1, mean = line.loss, variance = 0 }
    return nil
  end
  local off, score = line.loss - group.mean, nil
  if group.n >= LEAST and group.variance > 0 then
    score = off / group.variance ^ 0.5
  end
  group.n = group.n + 1
  local share = math.max(MEMORY, 1 / group.n)
  group.mean = group.mean + share * off
  group.variance = (1 - share) * (group.variance + share * off * off)
  return score
end

local function add(samples, draw, i, line, score)
  local name = ("%d %d"):format(draw.source, draw.rows[i])
  local one = samples[name]
  if not one then
    one = { source = draw.source, row = draw.rows[i], times = 0, sum = 0, loss_sum = 0 }
    samples[name], samples[#samples + 1] = one, one
  end
  one.times, one.sum = one.times + 1, one.sum + score
  one.loss_sum, one.step = one.loss_sum + line.loss, line.step
end

--- Ranks the samples of a run by their losses.
---@param record table      from audit.read
---@param order mr.Order  at its beginning
---@param list table[]    its sources, {name}
---@return table[] rows   the worst first: {source = number, row = from 1, times, score = mean
---   deviations above the group, loss = mean of its steps, step = the newest of them}
---@return table facts    steps: number that were judged; left: number that could not be, because
---   their lines have no loss or no digest or their group was too young; problem: the reason if no
---   step could be
function worst.of(record, order, list)
  local samples, groups, facts = {}, {}, { steps = 0, left = 0 }
  local _, problem = audit.walk(record, order, list, function(_, line, want)
    local good = line and type(line.loss) == "number" and line.keys == want.keys
    local score = good and judge(groups, line)
    if not score then
      facts.left = facts.left + 1
      return
    end
    facts.steps = facts.steps + 1
    for _, draw in ipairs(want.draws) do
      for i = 1, #draw.rows do
        add(samples, draw, i, line, score)
      end
    end
  end)
  facts.problem = problem
  for _, one in ipairs(samples) do
    one.score, one.loss = one.sum / one.times, one.loss_sum / one.times
  end
  local rows = table.move(samples, 1, #samples, 1, {})
  table.sort(rows, function(a, b)
    if a.score ~= b.score then
      return a.score > b.score
    end
    return a.source ~= b.source and a.source < b.source or a.source == b.source and a.row < b.row
  end)
  return rows, facts
end

return worst
