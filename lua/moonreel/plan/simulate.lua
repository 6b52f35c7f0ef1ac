--- Simulates events on the streams of one rank: when each starts and ends, and what it waits for.
-- An event starts after the previous event of its stream and after the events that it names. While
-- a collective runs, compute is slower by the share of the GPU that the collective uses. All ranks
-- are alike, so one is simulated; the differences between them are random (see `slowest`). Ref:
-- reference plan 6.
-- @module moonreel.plan.simulate
local simulate = {}

--- Deviation of the logarithm of a step's seconds over ranks. Healthy machines have 0.01 to 0.02
-- (reference plan 6). This value gives the smallest maximal error for the published scalings
-- (moonreel.plan.published).
simulate.SIGMA = 0.0192

---@class moonreel.plan.Event
---@field stream string    "compute", "comm_intra", "comm_inter", "h2d", "d2h", "disk"; of a job
---   that writes clips also "read" (decoder processes) and "files"
---@field seconds number   alone
---@field after integer[]|nil  events that must have ended; each is earlier in the list
---@field name string|nil

---@class moonreel.plan.Times
---@field seconds number   until the last event ended
---@field start number[]   of each event
---@field finish number[]
---@field busy table       seconds by stream
---@field path integer[]   events without a gap from the start to the last end: the critical path

local function communicates(event)
  return event.stream:sub(1, 4) == "comm"
end

-- the events that an event waits for: the previous one of its stream and those that it names
local function waits_of(events)
  local waits, last = {}, {}
  for i, event in ipairs(events) do
    waits[i] = { last[event.stream] }
    for _, before in ipairs(event.after or {}) do
      assert(before < i, "an event waits for a later one")
      table.insert(waits[i], before)
    end
    last[event.stream] = i
  end
  return waits
end

-- from the last end back along the waits that ended latest
local function critical_path(waits, finish, last)
  local path, at = {}, last
  while at do
    table.insert(path, 1, at)
    local latest
    for _, before in ipairs(waits[at]) do
      if not latest or finish[before] > finish[latest] then
        latest = before
      end
    end
    at = latest
  end
  return path
end

--- Simulates events.
---@param events moonreel.plan.Event[]
---@param communication_share number|nil  share of the GPU that a running collective takes; 0
---@return moonreel.plan.Times
function simulate.run(events, communication_share)
  local waits = waits_of(events)
  local missing, readers = {}, {}
  local running, talking, now = {}, 0, 0
  local start, finish, busy, left = {}, {}, {}, {}
  local function begin(i)
    start[i], left[i], running[#running + 1] = now, events[i].seconds, i
    talking = talking + (communicates(events[i]) and 1 or 0)
  end
  for i in ipairs(events) do
    missing[i], readers[i] = #waits[i], {}
    for _, before in ipairs(waits[i]) do
      table.insert(readers[before], i)
    end
  end
  for i in ipairs(events) do
    if missing[i] == 0 then
      begin(i)
    end
  end
  local last
  while #running > 0 do
    local slow = talking > 0 and 1 + (communication_share or 0) or 1
    local function factor(i)
      return events[i].stream == "compute" and slow or 1
    end
    local step = math.huge
    for _, i in ipairs(running) do
      step = math.min(step, left[i] * factor(i))
    end
    now = now + step
    local still, ended = {}, {}
    for _, i in ipairs(running) do
      -- an event that ends in this interval ends exactly, without a rounding remainder
      local ends = left[i] * factor(i) <= step
      left[i] = left[i] - step / factor(i)
      busy[events[i].stream] = (busy[events[i].stream] or 0) + step
      table.insert(ends and ended or still, i)
    end
    running = still
    for _, i in ipairs(ended) do
      finish[i], last = now, i
      talking = talking - (communicates(events[i]) and 1 or 0)
    end
    for _, i in ipairs(ended) do
      for _, reader in ipairs(readers[i]) do
        missing[reader] = missing[reader] - 1
        if missing[reader] == 0 then
          begin(reader)
        end
      end
    end
  end
  return { seconds = now, start = start, finish = finish, busy = busy,
    path = critical_path(waits, finish, last) }
end

--- The factor of the slowest of n ranks compared with a typical one: the expected largest of n
-- draws of a log-normal distribution with median 1.
---@param n integer
---@param sigma number  deviation of the logarithm, 0.01 to 0.02 on healthy machines
---@return number factor
function simulate.slowest(n, sigma)
  if n <= 1 or sigma == 0 then
    return 1
  end
  -- the largest of n normal draws: its mean, from P(largest <= x) = P(x)^n
  local mean, width, below = 0, 0.01, 0
  for k = -800, 800 do
    local x = k * width
    local upto = simulate.normal_below(x + width / 2) ^ n
    mean, below = mean + math.exp(sigma * x) * (upto - below), upto
  end
  return mean
end

--- P(a normal draw <= x). Ref: Abramowitz and Stegun 26.2.17, error below 7.5e-8.
---@param x number
---@return number
function simulate.normal_below(x)
  local t = 1 / (1 + 0.2316419 * math.abs(x))
  local tail = math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * t * (0.319381530 + t
    * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
  return x >= 0 and 1 - tail or tail
end

return simulate
