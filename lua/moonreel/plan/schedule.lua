--- The events of a data-parallel step: which collective runs when, beside what.
-- Ref: reference parallelism 2, 3 and 9.
-- @module moonreel.plan.schedule
local collective = require "moonreel.plan.collective"
local simulate = require "moonreel.plan.simulate"

local schedule = {}

--- What a step consists of.
---@class moonreel.plan.Step
---@field forward_s number
---@field backward_s number
---@field parameters number
---@field bucket number        elements of a bucket
---@field gather_bytes number|nil  of one gathered element: 2, or 1 where weights travel in FP8
---@field group moonreel.plan.Group
---@field two_hops boolean|nil inside the nodes first
---@field gather string|nil    "exposed" (default): weights are gathered before the forward pass;
---   "hidden": each bucket before its readers, behind the forward pass; "twice": once more, behind
---   the backward pass (ZeRO 3)

-- collectives of one bucket, after `before`; returns its last event
local function add_collective(events, m, step, what, elements, before)
  local bytes = (what == "gather" and step.gather_bytes or 2) * elements
  if not step.two_hops then
    local stream = step.group.nodes > 1 and "comm_inter" or "comm_intra"
    events[#events + 1] = { stream = stream, name = what, after = before,
      seconds = collective.flat(m, step.group, bytes) }
    return #events
  end
  local intra, inter = collective.two_hops(m, step.group, bytes)
  local hops = { { "comm_intra", intra }, { "comm_inter", inter } }
  for k = 1, 2 do
    -- a reduction goes inside the nodes first, a gather between them first
    local hop = hops[what == "reduce" and k or 3 - k]
    events[#events + 1] = { stream = hop[1], seconds = hop[2], name = what, after = before }
    before = { #events }
  end
  return #events
end

--- Events of one step.
---@param m table  machine
---@param step moonreel.plan.Step
---@return moonreel.plan.Event[]
function schedule.events(m, step)
  local events, buckets = {}, math.ceil(step.parameters / step.bucket)
  local function elements(k)
    return k < buckets and step.bucket or step.parameters - (buckets - 1) * step.bucket
  end
  local gathered = {}
  for k = 1, buckets do
    gathered[k] = add_collective(events, m, step, "gather", elements(k))
  end
  local gather = step.gather or "exposed"
  for k = 1, buckets do
    events[#events + 1] = { stream = "compute", name = "forward",
      seconds = step.forward_s * elements(k) / step.parameters,
      after = { gather == "exposed" and gathered[buckets] or gathered[k] } }
  end
  local forward, again = #events, {}
  -- a gather goes out before the reduction that would hold it up: one bucket ahead of its reader
  local function gather_again(k)
    if k >= 1 and gather == "twice" then
      again[k] = add_collective(events, m, step, "gather", elements(k), { forward })
    end
  end
  gather_again(buckets)
  for k = buckets, 1, -1 do
    gather_again(k - 1)
    events[#events + 1] = { stream = "compute", name = "backward", after = { again[k] or forward },
      seconds = step.backward_s * elements(k) / step.parameters }
    add_collective(events, m, step, "reduce", elements(k), { #events })
  end
  return events
end

--- Seconds of one step, with the slowest of all ranks.
---@param m table
---@param step moonreel.plan.Step
---@param sigma number|nil  deviation of ranks' compute, 0
---@return number seconds
---@return moonreel.plan.Times times
function schedule.seconds(m, step, sigma)
  local ranks = step.group.gpus * step.group.nodes
  local slow = simulate.slowest(ranks, sigma or 0)
  local drawn = setmetatable({ forward_s = step.forward_s * slow,
    backward_s = step.backward_s * slow }, { __index = step })
  local times = simulate.run(schedule.events(m, drawn), m.communication_share)
  return times.seconds, times
end

return schedule
