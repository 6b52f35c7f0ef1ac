--- Measures the links between hosts: the first rank of each host communicates with those of other
-- hosts, in pairs that are measured at the same time; each host is in one pair at a time.
-- @module moonreel.comm.links
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"

local links = {}

--- A link with less than this share of the usual rate is slow.
links.SLOW = 1 / 4

-- largest number of other hosts that a host is measured with; number of tiny round trips, of which
-- the fastest counts; how often slow links are measured again, since a host may have been busy
local PARTNERS <const>, PINGS <const>, AGAIN <const> = 16, 6, 2

-- bytes of the first message; factor to the next one, until one takes long enough
local LEAST_BYTES <const>, TIMES <const>, MOST_BYTES <const>, ENOUGH_S <const> = 1 << 16, 8,
  1 << 22, 0.02

-- ---- one link ----

-- Seconds of the round trip of a tiny message; the other end answers.
local function ping(world, to)
  local one, least = T.new("f32", { 1 }), math.huge
  for _ = 1, PINGS do
    local from = base.now_s()
    world:send(one, to)
    world:receive(one, to)
    least = math.min(least, base.now_s() - from)
  end
  return least
end

local function answer_pings(world, from)
  local one = T.new("f32", { 1 })
  for _ = 1, PINGS do
    world:receive(one, from)
    world:send(one, from)
  end
end

-- Bytes per second to a rank: messages become larger until one takes long enough.
local function rate_to(world, to, way_s)
  local bytes = LEAST_BYTES
  while true do
    local x <close>, one = T.new("f32", { bytes // 4 }), T.new("f32", { 1 })
    world:send(T.from({ 1 }, { bytes }, "f64"), to)
    local from = base.now_s()
    world:send(x, to)
    world:receive(one, to)
    local seconds = base.now_s() - from
    if seconds >= ENOUGH_S or bytes >= MOST_BYTES then
      world:send(T.from({ 1 }, { 0 }, "f64"), to)
      return bytes / math.max(seconds - way_s, seconds / 8)
    end
    bytes = bytes * TIMES
  end
end

local function take_from(world, from)
  local size = T.new("f64", { 1 })
  while true do
    local bytes = math.tointeger(world:receive(size, from):item())
    if bytes == 0 then
      return
    end
    local x <close> = T.new("f32", { bytes // 4 })
    world:receive(x, from)
    world:send(T.new("f32", { 1 }), from)
  end
end

-- Measures both directions of a link, one after the other: this end's round trip and rate to the
-- other.
local function measure(world, other, first)
  local way_s
  local function speak()
    way_s = ping(world, other)
    return rate_to(world, other, way_s)
  end
  local function listen()
    answer_pings(world, other)
    take_from(world, other)
  end
  local rate
  if first then
    rate = speak()
    listen()
  else
    listen()
    rate = speak()
  end
  return way_s, rate
end

-- ---- all links ----

-- The partner of host i of n in a round, from 0; nil: the host rests. In n - 1 rounds (n odd: n)
-- each host has every other as a partner.
local function partner(i, round, n)
  local even = n + n % 2
  local other = i == even - 1 and round or (2 * round - i) % (even - 1)
  if other == i then
    other = even - 1
  end
  return other < n and other or nil
end

-- hosts in the order of their first ranks: {name, rank}; and the number of this rank's host if the
-- rank is its first
local function hosts_of(names, rank)
  local hosts, known, own = {}, {}, nil
  for i, name in ipairs(names) do
    if not known[name] then
      known[name], hosts[#hosts + 1] = true, { name = name, rank = i - 1 }
      own = i - 1 == rank and #hosts or own
    end
  end
  return hosts, own
end

-- the measurements of each host, sent to all ranks: rate and round trip to host j, 0: not measured
local function share(world, hosts, rates, ways)
  local row, n = {}, #hosts
  for j = 1, n do
    row[j], row[n + j] = rates[j] or 0, ways[j] or 0
  end
  local flat = world:all_gather(T.from({ 1, 2 * n }, row, "f64")):totable()
  local rate, way = {}, {}
  for i, host in ipairs(hosts) do
    local at = host.rank * 2 * n
    rate[i] = table.move(flat, at + 1, at + n, 1, {})
    way[i] = table.move(flat, at + n + 1, at + 2 * n, 1, {})
  end
  return rate, way
end

local function median(list)
  table.sort(list)
  local n = #list
  return n > 0 and (list[(n + 1) // 2] + list[n // 2 + 1]) / 2 or 0
end

-- measured numbers of a matrix: of row i, of column j, or all
local function measured(matrix, i, j)
  local list = {}
  for a, row in ipairs(matrix) do
    for b, value in ipairs(row) do
      if value > 0 and (not i or a == i) and (not j or b == j) then
        list[#list + 1] = value
      end
    end
  end
  return list
end

-- links that are too slow: {from, to}, in an order that is the same on all ranks
local function slow_ones(rate)
  local usual, list = median(measured(rate)), {}
  for i, row in ipairs(rate) do
    for j, value in ipairs(row) do
      if value > 0 and value < links.SLOW * usual then
        list[#list + 1] = { from = i, to = j, rate = value }
      end
    end
  end
  return list
end

--- Measures the links between the hosts of a world. All ranks call it, and get the same result.
---@param world mr.Comm
---@param names string[]  the host of each rank
---@return table found    hosts: names; rate[i][j]: bytes per second from host i to host j;
---   way[i][j]: seconds of a round trip; 0: not measured
function links.measure(world, names)
  local hosts, own = hosts_of(names, world:rank())
  local n, rates, ways = #hosts, {}, {}
  local function speak(other, first)
    local way_s, rate = measure(world, hosts[other].rank, first)
    ways[other] = math.min(ways[other] or math.huge, way_s)
    rates[other] = math.max(rates[other] or 0, rate)
  end
  for round = 0, own and math.min(n + n % 2 - 2, PARTNERS - 1) or -1 do
    local other = partner(own - 1, round, n)
    if other then
      speak(other + 1, own < other + 1)
    end
  end
  local rate, way = share(world, hosts, rates, ways)
  for _ = 1, AGAIN do
    local again = slow_ones(rate)
    for _, link in ipairs(again) do
      if own == link.from or own == link.to then
        speak(own == link.from and link.to or link.from, own == link.from)
      end
    end
    if #again > 0 then
      rate, way = share(world, hosts, rates, ways)
    end
  end
  local found = { hosts = {}, rate = rate, way = way }
  for i, host in ipairs(hosts) do
    found.hosts[i] = host.name
  end
  return found
end

--- A rate as text.
---@param bytes_s number
---@return string
function links.text(bytes_s)
  return bytes_s >= 1e9 and ("%.1f GB/s"):format(bytes_s / 1e9)
    or ("%.3g MB/s"):format(bytes_s / 1e6)
end

-- the fault of a host's rate, compared with the rates of all hosts; nil: no fault
local function fault_of(verb, rates, i)
  local others = {}
  for k, rate in ipairs(rates) do
    others[#others + 1] = k ~= i and rate or nil
  end
  local usual = median(others)
  return rates[i] < links.SLOW * usual and ("%s %s, other hosts %s"):format(verb,
    links.text(rates[i]), links.text(usual)) or nil
end

--- A text about the slowest link.
---@param slowest table  from links.judge
---@return string
function links.describe(slowest)
  return ("the slowest link between hosts, from %s to %s, carries %s; %s is usual"):format(
    slowest.from, slowest.to, links.text(slowest.rate), links.text(slowest.usual))
end

--- The measurements by host, and the slowest link.
---@param found table  from links.measure
---@return table[] rows    {host, sends, receives: bytes per second, way_s: seconds of a round trip:
---   medians over other hosts; fault: a text, nil if the host is as fast as the others}
---@return table slowest   {from, to: names, rate, usual: the median of all links, slow: boolean}
function links.judge(found)
  local slowest = { rate = math.huge, usual = median(measured(found.rate)) }
  for i, row in ipairs(found.rate) do
    for j, rate in ipairs(row) do
      if rate > 0 and rate < slowest.rate then
        slowest.from, slowest.to, slowest.rate = found.hosts[i], found.hosts[j], rate
      end
    end
  end
  slowest.slow = slowest.rate < links.SLOW * slowest.usual
  local rows, sends, receives = {}, {}, {}
  for i in ipairs(found.hosts) do
    sends[i], receives[i] = median(measured(found.rate, i)), median(measured(found.rate, nil, i))
  end
  for i, host in ipairs(found.hosts) do
    rows[i] = { host = host, sends = sends[i], receives = receives[i],
      way_s = median(measured(found.way, i)) }
    -- with a single link it is not known which end is slow
    if #found.hosts > 2 then
      rows[i].fault = fault_of("sends", sends, i) or fault_of("receives", receives, i)
    elseif slowest.slow then
      rows[i].fault = links.describe(slowest)
    end
  end
  return rows, slowest
end

return links
