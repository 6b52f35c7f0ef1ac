--- Watches the ranks of a page: which rank hangs, in which phase and operation; which rank is
-- slower than the others. It reads the page and the system's view of processes, so it also detects
-- ranks that are blocked or stopped.
-- @module moonreel.life.watch
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local rings = require "moonreel.life.rings"

local watch = {}

--- Phases, in the order of a run: those before its first step, then those of a step.
watch.phases = { "start", "meet", "open", "device", "index", "weights", "compile", "load",
  "forward", "reduce", "optimizer", "snapshot", "persist" }

--- A phase of each step may take TIMES as long as its 99th percentile, or its floor, whichever is
-- more. Until each rank has completed the phase KNOWN times, the limit is UNKNOWN times the floor,
-- but only the floor if the rank does no work.
watch.TIMES = 3
local KNOWN <const>, UNKNOWN <const> = 20, 6

-- A stopped rank is reported after this number of seconds, in any phase.
local STOPPED_S <const> = 5

-- The least work for a rank to count as active: a share of one processor's time, and at least two
-- ticks of the system's clock; bytes of input and output. LOOKS is the number of checks within the
-- floor.
local SHARE <const>, TICKS_S <const>, BYTES <const>, LOOKS <const> = 0.005, 0.02, 1 << 16, 8

--- A rank is slow if its own part of a step stays below this share for several steps in a row,
-- compared with the other ranks or with its own usual speed.
watch.SLOW = 0.75
watch.SLOW_STEPS = 50
-- number of steps that make a rank's history; weight of a new step in it
local HISTORY <const>, NEW_SHARE <const> = 50, 1 / 200

-- The most seconds that count between two checks. If more time has passed, the watch itself was
-- stopped, for example because the machine was suspended or overloaded, and no rank is to blame.
local GAP_S <const> = 0.25

local of_steps = { load = true, forward = true, reduce = true, optimizer = true }
local of_start = { start = true, meet = true, open = true, device = true, index = true,
  weights = true, compile = true }

--- Has a rank that is in this phase completed the rendezvous?
---@param phase string
---@return boolean
function watch.has_met(phase) return phase ~= "start" and phase ~= "meet" end

---@class mr.Watch
local Watch = {}
Watch.__index = Watch

--- Watches a page, or several pages as one.
---@param page mr.Life|moonreel.life.Joined
---@param floors table  floors in seconds, by phase
---@param given integer[]|nil  its ranks, which others may join; nil: the ranks of the page
function watch.new(page, floors, given)
  local about, list = page:about(), {}
  for rank = about.first, about.first + about.ranks - 1 do
    list[#list + 1] = rank
  end
  return setmetatable({ page = page, floors = floors, list = given or list,
    reported = {}, slow = { others = {}, before = {} }, usual = {}, judged = 0, seen = {},
    clock_s = 0,    looked_s = base.now_s() }, Watch)
end

--- How long a rank may stay in a phase. A phase without a floor, in which ranks wait for others,
-- has no limit.
---@param phase string
---@return number seconds  limit in any case
---@return number idle     limit while it does no work
function Watch:limit(phase)
  local floor = self.floors[phase] or math.huge
  if of_start[phase] then
    return math.huge, floor
  elseif not of_steps[phase] then
    return floor, floor
  end
  local slow_s, count = self.page:quantile(phase, 0.99)
  if count < KNOWN * #self.list then
    return floor * UNKNOWN, floor
  end
  local usual = math.max(floor, watch.TIMES * slow_s)
  return usual, usual
end

-- records when a rank last did work
local function look_for_work(self, r, seen, idle)
  if r.state == "R" then
    seen.worked_s, seen.work = self.clock_s, nil
  elseif self.clock_s >= (seen.looked_s or 0) + idle / LOOKS then
    seen.looked_s = self.clock_s
    local cpu_s, bytes = core.work(r.pid)
    local before = seen.work or { cpu_s = cpu_s, bytes = bytes, at = self.clock_s }
    local least = math.max(TICKS_S, SHARE * (self.clock_s - before.at))
    seen.work = before
    -- less than before: a child process has ended
    if cpu_s and (math.abs(cpu_s - before.cpu_s) >= least
        or math.abs(bytes - before.bytes) >= BYTES) then
      seen.worked_s, seen.work = self.clock_s, nil
    end
  end
end

-- Since when a rank in this state has not progressed, how long it may, and the reason: it is
-- stopped, or idle, or it is active but takes too long.
local function judge(self, r, seen)
  if r.state == "T" then
    local _, idle = self:limit(r.phase)
    seen.stopped_s = seen.stopped_s or self.clock_s
    return seen.stopped_s, math.min(idle, STOPPED_S), "stopped"
  end
  if seen.stopped_s then
    seen.since_s, seen.stopped_s = self.clock_s, nil
  end
  local most, idle = self:limit(r.phase)
  if idle < most and not r.open then
    look_for_work(self, r, seen, idle)
    local idle_since = math.max(seen.since_s, seen.worked_s or 0)
    if self.clock_s - idle_since > idle then
      return idle_since, idle, "idle"
    end
  end
  return seen.since_s, most, "long"
end

-- The current state of the ranks that still run, with the time since which each has made no
-- progress, by the clock of the watch, which stops while the watch is stopped.
local function living(self)
  local now, list = base.now_s(), {}
  self.clock_s = self.clock_s + math.min(now - self.looked_s, GAP_S)
  self.looked_s = now
  for _, rank in ipairs(self.list) do
    local r = self.page:rank(rank)
    if r.state then
      local sign = math.max(r.phase_s, r.beat_s, r.open and r.open.began_s or 0)
      local seen = self.seen[rank]
      if not seen or seen.sign ~= sign then
        seen = { sign = sign, since_s = self.clock_s }
        self.seen[rank] = seen
      end
      r.since_s, r.limit, r.how = judge(self, r, seen)
      r.sign_s, list[#list + 1] = seen.since_s, r
    end
  end
  return list
end

-- The rank that the others wait for: among the ranks that do not wait in a call and were not
-- reported yet, the one that exceeds its limit by most.
local function stuck(self, ranks)
  local worst, worst_s, all_wait = nil, 0, true
  local _, patience = self:limit "reduce"
  for _, r in ipairs(ranks) do
    local waits = r.open and r.state ~= "T"
    local seconds = self.clock_s - r.since_s
    all_wait = all_wait and waits and self.clock_s - r.sign_s > patience
    if not waits and not self.reported[r.rank] and seconds > r.limit and seconds > worst_s then
      worst, worst_s = r, seconds
    end
  end
  return worst, worst_s, all_wait
end

-- if ranks wait for each other: the rank whose calls differ
local function apart(self, ranks)
  local logs = {}
  for _, r in ipairs(ranks) do
    logs[r.rank] = self.page:ops(r.rank)
  end
  return rings.first_difference(logs)
end

local function described(r, seconds, difference)
  local text = ("rank %d %s in %s %s for %.1f s"):format(r.rank,
    r.state == "T" and "is stopped" or "hangs", r.phase, of_start[r.phase]
    and "before its first step" or "at step " .. r.step, seconds)
  if r.open then
    text = text .. ", within " .. rings.text(r.open)
  end
  if r.clip and r.phase == "load" then
    text = text .. ", clip " .. r.clip
  end
  if difference then
    text = text .. ": " .. rings.describe(difference)
  end
  return text
end

-- a rank that hangs, with a description; nil: no rank hangs
local function verdict(self, ranks)
  local r, seconds, all_wait = stuck(self, ranks)
  local difference
  if not r and all_wait and #ranks > 0 then
    difference = apart(self, ranks)
    for _, one in ipairs(ranks) do
      if difference and one.rank == difference.rank then
        r, seconds = one, self.clock_s - one.sign_s
        r.since_s, r.limit, r.how = one.sign_s, select(2, self:limit(one.phase)), "long"
      end
    end
  end
  if not r then
    return nil
  end
  return { kind = "hang", rank = r.rank, phase = r.phase, step = r.step, seconds = seconds,
    limit = r.limit, how = r.how, stopped = r.state == "T", op = r.open or r.last,
    difference = difference, since_s = r.since_s, text = described(r, seconds, difference) }
end

-- the median of numbers, which it sorts
local function median(list)
  table.sort(list)
  local n = #list
  return n % 2 == 1 and list[n // 2 + 1] or (list[n // 2] + list[n // 2 + 1]) / 2
end

-- the speed of each rank in a step, relative to the median of the others; nil: not all are known
local function scores(self, step)
  local own, out = {}, {}
  for _, rank in ipairs(self.list) do
    own[rank] = self.page:own_s(rank, step)
    if not own[rank] then
      return nil
    end
  end
  for rank, seconds in pairs(own) do
    local others = {}
    for other, s in pairs(own) do
      others[#others + 1] = other ~= rank and s or nil
    end
    out[rank] = median(others) / seconds
  end
  return out
end

-- The speed of a rank in a step compared with its usual speed; nil: it has no history yet. The
-- speed is compared both in seconds, so that a rank does not look slower when another one recovers,
-- and relative to the others, so that steps of longer clips do not look slow. Slow steps do not
-- enter the history.
local function score_by_history(self, rank, speed, seconds)
  local usual = self.usual[rank] or { n = 0, speed = 0, seconds = 0 }
  local score = usual.n >= HISTORY
    and math.max(speed / usual.speed, usual.seconds / seconds) or nil
  if not score or score >= watch.SLOW then
    local share = math.max(1 / (usual.n + 1), NEW_SHARE)
    self.usual[rank] = { n = usual.n + 1, speed = usual.speed + share * (speed - usual.speed),
      seconds = usual.seconds + share * (seconds - usual.seconds) }
  end
  return score
end

-- counts a slow step of a rank; after several slow steps in a row it adds an event
local function count_slow(self, against, rank, step, score, events)
  local counts = self.slow[against]
  counts[rank] = score and score < watch.SLOW and (counts[rank] or 0) + 1 or 0
  if counts[rank] ~= watch.SLOW_STEPS then
    return
  end
  local what = against == "others" and "the others took less than %g of its time"
    or "it was slower compared with the others than %g of its usual speed"
  events[#events + 1] = { kind = "slow", rank = rank, step = step, score = score,
    against = against, text = ("rank %d is slow: for %d steps in a row " .. what
      .. ", %.2f in step %d"):format(rank, counts[rank], watch.SLOW, score, step) }
end

-- finds ranks that became slow in the steps that all ranks have ended since the last check
local function stragglers(self, ranks, events)
  local done
  for _, r in ipairs(ranks) do
    done = math.min(done or r.step - 1, r.step - 1)
  end
  if #self.list < 2 or #ranks < #self.list or done < self.judged then
    self.judged = math.min(self.judged, done or 0)
    return
  end
  for step = math.max(self.judged + 1, done - 60), done do
    local all = scores(self, step)
    for _, rank in ipairs(self.list) do
      if all then
        local own = score_by_history(self, rank, all[rank], self.page:own_s(rank, step))
        count_slow(self, "others", rank, step, all[rank], events)
        -- a rank that is reported as slower than the others is not reported twice
        count_slow(self, "before", rank, step, self.slow.others[rank] == 0 and own or nil,
          events)
      end
    end
  end
  self.judged = done
end

--- Returns what has happened since the last check: a rank hangs ("hang", reported once each time),
-- continues ("on"), or has become slow ("slow").
---@return table[]  {kind, rank, text, ...}
function Watch:look()
  local events, ranks = {}, living(self)
  local hang = verdict(self, ranks)
  for _, r in ipairs(ranks) do
    local reported = self.reported[r.rank]
    -- after being stopped or idle, a rank shows no other sign than that it no longer is
    if reported and (r.sign_s > reported.since_s
      or reported.how ~= "long" and reported.how ~= r.how) then
      self.reported[r.rank] = nil
      events[#events + 1] = { kind = "on", rank = r.rank,
        text = ("rank %d continues"):format(r.rank) }
    end
  end
  if hang and not self.reported[hang.rank] then
    self.reported[hang.rank] = hang
    events[#events + 1] = hang
  end
  stragglers(self, ranks, events)
  return events
end

--- The reported rank that still hangs: its event, and the time as a multiple of its limit.
---@return table|nil event
---@return number|nil times
function Watch:standing()
  local worst, most
  for _, reported in pairs(self.reported) do
    local times = (self.clock_s - reported.since_s) / reported.limit
    if not most or times > most then
      worst, most = reported, times
    end
  end
  return worst, most
end

return watch
