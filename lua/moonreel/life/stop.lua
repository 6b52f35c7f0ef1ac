--- Stops a run's processes on this host: first by a request, so that the run saves; then
-- terminates; then kills. Only processes that surely belong to the run are reached: its launch's
-- page names process, start time and owner, and all processes of the launch have its token in their
-- environment.
-- @module moonreel.life.stop
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"

local stop = {}

local TERM <const>, KILL <const>, CONT <const> = 15, 9, 18
local LOOK_S <const> = 0.02

-- every process of a launch that lives: its launcher, ranks, and what these have started
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

-- Ask once: the launcher hands it on to its ranks; without one each rank is asked. What is stopped
-- goes on, to hear it.
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

-- wait until nothing lives, at most so long; what is left
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

-- ranks of a launch that have begun, and the largest step of any
local function ranks_of(one)
  local ranks, step = 0, 0
  for rank = one.about.first, one.about.first + one.about.ranks - 1 do
    local r = one.page:rank(rank)
    ranks, step = ranks + (r.state and 1 or 0), math.max(step, r.step)
  end
  return ranks, step
end

-- stop one launch: how many of its processes ended in which way
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

--- Stop launches of this host, those of one run.
---@param launches table[]  of moonreel.life, which are closed
---@param o table        save_s: to save and end by themselves, end_s: after each further signal;
---   pause: a function that waits between two looks, base.sleep where no other task has to go on
---@param newest function(dir) -> the newest step that is committed, or nil
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
    -- a launch that could not tidy up has left its page
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
