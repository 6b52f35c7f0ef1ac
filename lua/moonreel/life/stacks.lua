--- Where the ranks of a launch are: the native frames of all threads, and the published Lua frames,
-- phases and calls. Ranks at the same place form a group.
-- @module moonreel.life.stacks
local core = require "moonreel.core.life"
local rings = require "moonreel.life.rings"

local stacks = {}

local function lines(text)
  local list = {}
  for line in (text or ""):gmatch "[^\n]+" do
    list[#list + 1] = line
  end
  return list
end

--- Inspects one rank: what it publishes, and its threads, the main thread first.
---@param page mr.Life
---@param rank integer
---@return table  {rank, pid, state, phase, step, clip, call, waits, lua, threads, problem}
function stacks.of_rank(page, rank)
  local r = page:rank(rank)
  local threads, problem = {}, "it has ended"
  if r.state then
    threads, problem = core.threads(r.pid)
    table.sort(threads, function(a, b) return a.tid < b.tid end)
  end
  local call = r.open or r.last
  return { rank = rank, pid = r.pid, state = r.state, phase = r.phase, step = r.step,
    clip = r.clip, call = call and rings.text(call), waits = r.open ~= nil,
    where = call and call.where, lua = lines(r.frames), threads = threads, problem = problem }
end

-- The key that ranks of a group have in common. A rank that waits for others is at the place where
-- it waits, whatever its main thread does; the places of other threads do not count.
local function place(one)
  local main = not one.waits and one.threads[1]
  return table.concat({ tostring(one.state == "T"), one.phase, one.call or "",
    tostring(one.waits), one.clip or "", table.concat(one.lua, "\n"),
    main and table.concat(main.frames, "\n") or "" }, "\0")
end

--- Formats numbers as ranges: "0-2, 5".
---@param list integer[]  ascending
---@return string
function stacks.ranges(list)
  local parts, i = {}, 1
  while i <= #list do
    local j = i
    while list[j + 1] == list[j] + 1 do
      j = j + 1
    end
    parts[#parts + 1] = i == j and tostring(list[i]) or ("%d-%d"):format(list[i], list[j])
    i = j + 1
  end
  return table.concat(parts, ", ")
end

--- Merges groups of ranks that are at the same place; the smallest groups come first.
---@param list table[]  groups of one or more hosts
---@return table[]      {ranks = integer[], and the fields that of_rank returns for one of them}
function stacks.fold(list)
  local groups, found = {}, {}
  for _, group in ipairs(list) do
    local key = place(group.one)
    if not found[key] then
      found[key] = { ranks = {}, one = group.one }
      groups[#groups + 1] = found[key]
    end
    table.move(group.ranks, 1, #group.ranks, #found[key].ranks + 1, found[key].ranks)
  end
  for _, group in ipairs(groups) do
    table.sort(group.ranks)
  end
  table.sort(groups, function(a, b)
    if #a.ranks ~= #b.ranks then
      return #a.ranks < #b.ranks
    end
    return a.ranks[1] < b.ranks[1]
  end)
  return groups
end

--- Groups the ranks of launches, as fold does.
---@param launches table[]  launches of moonreel.life
---@return table[]
function stacks.groups(launches)
  local list = {}
  for _, launch in ipairs(launches) do
    for rank = launch.about.first, launch.about.first + launch.about.ranks - 1 do
      list[#list + 1] = { ranks = { rank }, one = stacks.of_rank(launch.page, rank) }
    end
  end
  return stacks.fold(list)
end

-- groups threads with equal frames: {threads, thread}
local function folded(threads)
  local out, found = {}, {}
  for i, thread in ipairs(threads) do
    -- the main thread is never grouped
    local key = i == 1 and 1 or table.concat(thread.frames, "\n") .. "\0" .. (thread.waits or "")
    if not found[key] then
      found[key] = { count = 0, thread = thread }
      out[#out + 1] = found[key]
    end
    found[key].count = found[key].count + 1
  end
  return out
end

--- A group as text.
---@param group table  one of groups()
---@return string
function stacks.text(group)
  local one, out = group.one, {}
  local function add(...) out[#out + 1] = string.format(...) end
  add("rank%s %s: %s in %s at step %d%s", #group.ranks > 1 and "s" or "",
    stacks.ranges(group.ranks), one.state == "T" and "stopped" or one.state and "alive" or "ended",
    one.phase, one.step, one.clip and ", clip " .. one.clip or "")
  if one.call then
    add("  %s %s%s", one.waits and "waits in" or "last call", one.call,
      one.where and " at " .. one.where or "")
  end
  for _, line in ipairs(one.lua) do
    add("  lua     %s", line)
  end
  for i, fold in ipairs(folded(one.threads)) do
    local t = fold.thread
    add("  %s%s%s", i == 1 and "main thread" or ("%d thread%s %s"):format(fold.count,
      fold.count > 1 and "s" or "", t.name), t.state == "T" and ", stopped" or "",
      t.waits and ", in the kernel's " .. t.waits or "")
    for _, frame in ipairs(t.frames) do
      add("    %s", frame)
    end
  end
  if one.problem then
    add("  no native frames: %s", one.problem)
  end
  return table.concat(out, "\n") .. "\n"
end

return stacks
