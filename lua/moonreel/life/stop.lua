--- Stops a run's processes on this host. First a request lets the run save and end; then the
-- processes are terminated; then killed. Only processes that certainly belong to the run are
-- signalled: the page of its launch names process, start time and owner, and all processes of the
-- launch have its token in their environment.
-- @module moonreel.life.stop
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"

local stop = {}

local TERM <const>, KILL <const>, CONT <const> = 15, 9, 18
local LOOK_S <const> = 0.02

-- all running processes of a launch: the launcher, the ranks, and their children
local function processes(one)
  local about, list, seen = one.about, {}, {}
  local function add(pid, start)
    local state = pid and not seen[pid] and core.state(pid, start)
    if state then
      seen[pid], list[#list + 1] = true, { pid = pid, start = start, state = state }
    end
  end
  for rank = about.first, about.first + about.ranks - 1 do
    local r = one.page:rank(rank)
    add(r.pid, r.start)
  end
  for _, p in ipairs(core.processes(about.token, about.uid)) do
    add(p.pid, p.start)
  end
  add(about.pid, about.start)
  return list
end

local function send(one, list, number)
  local reached = 0
  for _, p in ipairs(list) do
    reached = reached + (core.signal(p.pid, p.start, one.about.uid, number) and 1 or 0)
  end
  return reached
end

-- Sends the request once: to the launcher, which passes it to its ranks, or to each rank if there
-- is no launcher. Stopped processes are continued, so that they receive it.
local function ask(one)
  local about = one.about
  send(one, processes(one), CONT)
  if core.state(about.pid, about.start) then
    core.signal(about.pid, about.start, about.uid, TERM)
    return
  end
  for rank = about.first, about.first + about.ranks - 1 do
    local r = one.page:rank(rank)
    if r.state then
      core.signal(r.pid, r.start, about.uid, TERM)
    end
  end
end

-- waits until no process is left, at most for `seconds`; returns the processes that are left
local function wait(one, seconds, pause)
  local limit = base.now_s() + seconds
  while true do
    local left = processes(one)
    if #left == 0 or base.now_s() > limit then
      return left
    end
    pause(LOOK_S)
  end
end

-- the number of ranks that have started, and the largest step of any
local function ranks_of(one)
  local ranks, step = 0, 0
  for rank = one.about.first, one.about.first + one.about.ranks - 1 do
    local r = one.page:rank(rank)
    ranks, step = ranks + (r.state and 1 or 0), math.max(step, r.step)
  end
  return ranks, step
end

-- stops one launch; returns how many of its processes ended in which way
local function stop_launch(one, o)
  local ranks = ranks_of(one)
  local row = { ranks = ranks, terminated = 0, killed = 0, left = 0 }
  ask(one)
  local left = wait(one, o.save_s, o.pause)
  if #left > 0 then
    row.terminated = send(one, left, TERM)
    left = wait(one, o.end_s, o.pause)
    row.terminated = row.terminated - #left
  end
  if #left > 0 then
    row.killed = send(one, left, KILL)
    row.left = #wait(one, o.end_s, o.pause)
    row.killed = row.killed - row.left
  end
  row.step = select(2, ranks_of(one))
  return row
end

--- Stops launches of one run on this host.
---@param launches table[]  launches of moonreel.life, which are closed here
---@param o table        save_s: time to save and end; end_s: time after each further signal; pause:
---   function that waits between two checks (default: base.sleep)
---@param newest function(dir) -> the newest committed step, or nil
---@return table row     {host, ranks, saved, terminated, killed, left, free_bytes, time_s}
function stop.run(launches, o, newest)
  local started = base.now_s()
  local row = { ranks = 0, saved = 0, terminated = 0, killed = 0, left = 0 }
  for _, one in ipairs(launches) do
    local done = stop_launch(one, o)
    for _, key in ipairs { "ranks", "terminated", "killed", "left" } do
      row[key] = row[key] + done[key]
    end
    local step = newest(one.about.dir)
    row.saved = row.saved + (step and step >= done.step and done.ranks or 0)
    row.host = one.about.host
    -- a launch that was killed could not remove its page
    if done.left == 0 then
      os.remove(one.path)
    end
    one.page:close()
  end
  row.host = row.host or base.read_file("/proc/sys/kernel/hostname"):match("%S+")
  local free = base.read_file("/proc/meminfo"):match("MemAvailable:%s+(%d+)")
  row.free_bytes = free and tonumber(free) * 1024
  row.time_s = base.now_s() - started
  return row
end

return stop
