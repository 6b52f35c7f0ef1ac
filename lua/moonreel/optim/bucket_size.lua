--- Chooses the size of communication buckets. Ref: reference parallelism 2.
-- @module moonreel.optim.bucket_size
local bucket_size = {}

--- Elements of the smallest; all others are whole multiples of it, as recipes count them.
bucket_size.least = 1 << 20

local SHARE = 0.9           -- of the backward pass that collectives may fill
local AROUND = { 1 / 4, 1 / 2, 2, 4 }

-- the power of two that is x or the next one above it
local function power_of_two(x)
  local n = bucket_size.least
  while n < x do
    n = n * 2
  end
  return n
end

--- Where nothing is known of links: 128 x 2^20 elements up to 256 ranks, above them 512.
---@param ranks integer
---@return integer elements
function bucket_size.start(ranks) return (ranks <= 256 and 128 or 512) << 20 end

--- The size by formula: the smallest whose collectives fit in parallel with the backward pass;
-- where none does, that of the least sum of latencies and of the last bucket, which nothing hides.
---@param o table  bytes: of all gradients; element: bytes of one; latency_s: of a collective; rate:
---   bytes of gradients reduced in a second; backward_s
---@return integer elements  a power of two
function bucket_size.formula(o)
  local left = SHARE * o.backward_s - o.bytes / o.rate
  local bytes = left > 0 and o.bytes * o.latency_s / left
    or math.sqrt(o.bytes * o.latency_s * o.rate)
  return power_of_two(math.min(bytes, o.bytes) / o.element)
end

--- The sizes to try: that of the formula, and around it those that cut otherwise.
---@param elements integer  of the formula
---@param trained integer   elements in all
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

--- The quickest of what was tried; of those within `margin` of it the one that was tried first.
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
