--- The row of a run in a list: its writer, progress, loss and recipe. It reads only the first line
-- and the end of a journal, so that hundreds of runs take less than a second.
-- @module moonreel.runs.glance
local base = require "moonreel.core.base"
local find = require "moonreel.runs.find"
local json = require "moonreel.core.json"
local notes = require "moonreel.runs.notes"
local run = require "moonreel.run"
local tail = require "moonreel.runs.tail"

local glance = {}

local HEAD_LINES <const> = 20 -- most lines that are read in search of the first "start"

-- kinds of lines with the current step of the run
local STANDS <const> = { start = true, step = true, skip = true, rollback = true, stop = true,
  ["end"] = true }

local function number(value) return type(value) == "number" and value or nil end
local function whole(value) return math.type(value) == "integer" and value or nil end

-- the first line "start" of a journal; it is near the beginning
local function first_start(path)
  local left = HEAD_LINES
  for entry in tail.open(path):entries() do
    left = left - 1
    if entry.kind == "start" then
      return entry
    elseif left == 0 then
      return nil
    end
  end
end

-- the values at the end of a journal: step, loss, total, last = kind of the newest line, wall
local function read_end(path)
  local seen = {}
  local bytes = tail.newest(path, function(entry)
    local kind = entry.kind
    seen.wall = seen.wall or number(entry.wall)
    if STANDS[kind] then
      seen.last = seen.last or kind
      seen.step = seen.step or whole(entry.step)
      seen.loss = seen.loss or number(entry.loss)
    end
    seen.total = seen.total or whole(entry.total)
    if kind == "start" then
      return true
    end
    return seen.step and seen.loss and seen.wall
  end)
  seen.bytes = bytes
  return seen
end

-- the owner of the lock; a lock that cannot be read has no owner
local function owner_of(dir)
  if not base.exists(dir .. "/lock") then
    return nil
  end
  local good, owner = pcall(run.owner, dir)
  return good and owner or nil
end

-- Steps of the newest launch. Saves also record them, so that a long journal need not be searched
-- for the line "start". After only one launch the first line is enough.
local function total_of(dir)
  local path = dir .. "/journal.jsonl"
  local start, owner = first_start(path), owner_of(dir)
  if start and owner and owner.fence == start.branch then
    return whole(start.total)
  end
  local entry = tail.newest_with(path, '"total":')
  return entry and whole(entry.total)
end

--- The state of a run: "running" (its writer is alive, or on another host, where this cannot be
-- checked), "finished", "stopped" (on request, and saved), "failed" (it ended with an error) or
-- "dead" (its writer was killed or its host restarted, without an end).
---@param dir string
---@param last string|nil  kind of the newest line of its journal
---@return string state
---@return table|nil owner  from moonreel.run.owner
function glance.state(dir, last)
  local owner = owner_of(dir)
  if owner and owner.owned then
    return owner.dead and "dead" or "running", owner
  elseif last == "end" then
    return "finished", owner
  elseif last == "stop" then
    return "stopped", owner
  end
  return owner and owner.fence > 0 and "failed" or "dead", owner
end

--- Does a process write this run, as far as can be checked?
---@param dir string
---@return boolean
function glance.running(dir)
  return (glance.state(dir)) == "running"
end

-- "recipe" is at the outermost level of settings.json, which is written with two spaces
local function recipe_of(dir)
  local path = dir .. "/settings.json"
  local good, text = pcall(base.read_file, path)
  local quoted = good and text:match('\n  "recipe": ("[^\n]*"),?\n')
  local decoded, name = pcall(json.decode, quoted and "[" .. quoted .. "]" or "")
  return decoded and type(name) == "table" and name[1] or nil, good and text or nil
end

-- only the values in settings.json; their origins are the larger part of the file
local function values_of(text)
  local part = text and text:match('\n  "settings": (%b{})')
  local good, tree = pcall(json.decode, part or "")
  if good and type(tree) == "table" then
    return tree
  end
  -- a brace inside a text would end that part too early
  good, tree = pcall(json.decode, text or "")
  return good and type(tree) == "table" and type(tree.settings) == "table" and tree.settings or nil
end

--- The values of a run's settings, as in settings.json: records as tables, keys as texts.
---@param dir string
---@return table|nil
function glance.settings(dir)
  local good, text = pcall(base.read_file, dir .. "/settings.json")
  return values_of(good and text or nil)
end

-- is the current stage of a run its last one?
local function is_last(text, stage)
  local tree = values_of(text)
  local list = tree and tree.stages
  local last = type(list) == "table" and list[#list]
  return type(last) == "table" and last.name == stage
end

--- The row of a run. Fields are nil if the run does not record them.
---@param one table  {name, dir} from find.all
---@return table     name, dir, state, step, total, loss, wall: seconds since 1970 of its newest
---   line; age_s: seconds since then; host: of its writer; recipe; stage; notes: their number; last
---   note; launches
function glance.of(one)
  local parts = find.parts(one.dir)
  local part = parts[#parts]
  local row = { name = one.name, dir = one.dir, stage = part and part.stage }
  local seen = {}
  if part then
    local path = part.dir .. "/journal.jsonl"
    seen = read_end(path)
    row.step, row.loss, row.wall, row.total = seen.step, seen.loss, seen.wall, seen.total
  end
  local text
  row.recipe, text = recipe_of(one.dir)
  row.state, seen.owner = glance.state(one.dir, seen.last)
  if row.state == "finished" and row.stage and not is_last(text, row.stage) then
    row.state = "stopped"
  end
  local owner = seen.owner
  row.host = owner and owner.owned and owner.host or nil
  row.launches = owner and owner.fence > 0 and owner.fence or nil
  if part and seen.bytes > 0 and not row.total then
    row.total = total_of(part.dir)
  end
  row.age_s = row.wall and math.max(0, base.wall_s() - row.wall) or nil
  row.notes, row.note = notes.count(one.dir)
  return row
end

local RESTART_S <const> = 60 -- time for a launcher to restart the ranks

-- may the launcher of a run that has just lost a rank restart it?
local function may_restart(dir)
  local row = glance.of { name = dir, dir = dir }
  if row.state ~= "failed" and row.state ~= "dead" or (row.age_s or math.huge) > RESTART_S then
    return false
  end
  local tree = glance.settings(dir) or {}
  local ranks, restarts = tonumber(tree.nproc_per_node) or 1, tonumber(tree.restarts) or 0
  return restarts > 0 and (ranks > 1 or type(tree.hostfile) == "string")
end

--- Does a process write this run, or may its launcher restart a rank that was just lost?
---@param dir string
---@return boolean
function glance.active(dir) return glance.running(dir) or may_restart(dir) end

return glance
