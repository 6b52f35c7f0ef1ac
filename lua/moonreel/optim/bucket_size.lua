--- Chooses the size of communication buckets. Ref: reference parallelism 2.
-- @module moonreel.optim.bucket_size
local bucket_size = {}

--- Elements of the smallest bucket. All other sizes are multiples of it, as recipes count buckets.
bucket_size.least = 1 << 20

local SHARE = 0.9           -- share of the backward pass that collectives may fill
local AROUND = { 1 / 4, 1 / 2, 2, 4 }

-- the smallest power of two that is at least x
local function power_of_two(x)
  local n = bucket_size.least
  while n < x do
    n = n * 2
  end
  return n
end

--- The size when the speed of links is unknown: 128 x 2^20 elements for up to 256 ranks, else 512.
---@param ranks integer
---@return integer elements
function bucket_size.start(ranks) return (ranks <= 256 and 128 or 512) << 20 end

--- Computes the size: the smallest whose collectives fit in parallel with the backward pass. If no
-- size does, the one with the smallest sum of latencies and time of the last bucket, which nothing
-- overlaps.
---@param o table  bytes: of all gradients; element: bytes per element; latency_s: of a collective;
---   rate: bytes of gradients reduced per second; backward_s
---@return integer elements  a power of two
function bucket_size.formula(o)
  local left = SHARE * o.backward_s - o.bytes / o.rate
  local bytes = left > 0 and o.bytes * o.latency_s / left
    or math.sqrt(o.bytes * o.latency_s * o.rate)
  return power_of_two(math.min(bytes, o.bytes) / o.element)
end

--- The sizes to try: the computed one, and sizes around it that give another number of buckets.
---@param elements integer  the computed size
---@param trained integer   number of all trained elements
---@return integer[]
function bucket_size.around(elements, trained)
  local list, seen = { elements }, { [-(-trained // elements)] = true }
  for _, factor in ipairs(AROUND) do
    local size = math.tointeger(elements * factor)
    local pieces = -(-trained // size)
    if size >= bucket_size.least and not seen[pieces] then
      list[#list + 1], seen[pieces] = size, true
    end
  end
  return list
end

--- Returns the fastest size; among the sizes within `margin` of it, the one that was tried first.
---@param tried table[]  {elements, seconds}
---@param margin number  1.01: a hundredth
---@return integer elements
function bucket_size.best(tried, margin)
  local least = math.huge
  for _, one in ipairs(tried) do
    least = math.min(least, one.seconds)
  end
  for _, one in ipairs(tried) do
    if one.seconds <= least * margin then
      return one.elements
    end
  end
end

return bucket_size
