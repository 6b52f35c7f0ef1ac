--- Seconds of a collective: latency of its steps, and bytes over the slowest link. Ref: NCCL 2.30
-- graph/tuning.cc for the constants; reference parallelism 9.
-- @module moonreel.plan.collective
local collective = {}

-- NCCL's fixed seconds of a call: for a ring of large messages, and for the logarithmic algorithm
-- between nodes (PAT), which adds a step per doubling and a little per node
local RING_S, PAT_S, PAT_NODE_S, PAT_STEP_SHARE = 8.4e-6, 8e-6, 2.8e-6, 1 / 3.5

--- Seconds until the first byte of a message from one rank arrives at another.
---@param m table       machine
---@param near boolean  on the same node
---@return number
function collective.call(m, near)
  return RING_S + (near and m.node.link_step_s or m.network.step_s)
end

--- A group of ranks, and its arrangement on nodes.
---@class moonreel.plan.Group
---@field gpus integer   ranks on one node
---@field nodes integer
---@field parallel number|nil  groups that communicate at once and share the cards of a node; 1

--- Seconds until the first byte has passed through a whole ring.
---@param m table  machine
---@param group moonreel.plan.Group
---@return number
function collective.ring_latency(m, group)
  local ranks = group.gpus * group.nodes
  local between = group.nodes - 1
  return RING_S + (ranks - 1 - between) * m.node.link_step_s
    + (between > 0 and between * m.network.step_s or 0)
end

-- bytes per second of a ring: by the link inside a node, or by all of its cards together
local function ring_rate(m, group)
  if group.nodes == 1 then
    return m.node.link
  end
  return math.min(m.node.link, m.network.cards * m.network.card / (group.parallel or 1))
end

--- Reduce-scatter or all-gather over one flat ring.
---@param m table
---@param group moonreel.plan.Group
---@param bytes number  of the whole buffer
---@return number seconds
function collective.flat(m, group, bytes)
  local ranks = group.gpus * group.nodes
  if ranks == 1 then
    return 0
  end
  return collective.ring_latency(m, group) + bytes * (ranks - 1) / ranks / ring_rate(m, group)
end

--- The same in two hops: inside the nodes, and between GPUs of the same number on all nodes, which
-- use all cards at once.
---@param m table
---@param group moonreel.plan.Group
---@param bytes number
---@return number intra, number inter  seconds of the hops; hops of different buffers overlap
function collective.two_hops(m, group, bytes)
  local intra = collective.flat(m, { gpus = group.gpus, nodes = 1 }, bytes)
  if group.nodes == 1 then
    return intra, 0
  end
  local piece, per_gpu = bytes / group.gpus,
    m.network.card * m.network.cards / (group.gpus * (group.parallel or 1))
  local inter = PAT_S + math.log(group.nodes, 2) * m.network.step_s * PAT_STEP_SHARE
    + PAT_NODE_S * group.nodes + piece * (group.nodes - 1) / group.nodes / per_gpu
  return intra, inter
end

return collective
