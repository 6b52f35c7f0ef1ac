--- Reports of a run's hosts in its journal: the first rank of each host starts a process that
-- writes the host's state (moonreel.cluster.recorder), the first rank of all copies it into the
-- journal.
-- @module moonreel.trainer.hosts
local base = require "moonreel.core.base"
local comm_place = require "moonreel.comm.place"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local hosts = {}

local LOOK_S <const> = 20 -- between two looks for new reports

-- the start time of a process, in the kernel's units
local function start_of(pid)
  local fields = base.read_file(("/proc/%d/stat"):format(pid)):match ".*%) (.*)"
  local n = 0
  for field in fields:gmatch "%S+" do
    n = n + 1
    if n == 20 then
      return field
    end
  end
end

-- starts the process on this host; without resources for it the host is not recorded
local function begin(r)
  if comm_place.find().local_rank ~= 0 then
    return
  end
  local pid = base.pid()
  local good, why = pcall(function()
    process.leave { process.program(), "recorder", r.dir, tostring(r.fence),
      tostring(r.settings.hosts.every), tostring(pid), start_of(pid) }
  end)
  if not good and r.team.leads then
    r.progress:say("hosts are not recorded: " .. tostring(type(why) == "table" and why.message
      or why))
  end
end

-- the newest report of a host; nil if there is no new one, or another launch has written it
local function read(r, name)
  local good, line = pcall(function()
    return json.decode(base.read_file(("%s/log/%s"):format(r.dir, name)))
  end)
  if good and type(line) == "table" and line.fence == r.fence and type(line.host) == "string"
      and type(line.scalars) == "table" and r.hosts.seen[name] ~= line.number then
    r.hosts.seen[name] = line.number
    return line
  end
end

-- prints the faults of a host when they change
local function tell(r, line)
  local text = type(line.faults) == "table" and table.concat(line.faults, "; ") or nil
  if text ~= r.hosts.faults[line.host] then
    r.progress:say(("host %s: %s"):format(line.host, text or "all faults are gone"))
    r.hosts.faults[line.host] = text
  end
end

local function take(r)
  local good, names = pcall(base.list_dir, r.dir .. "/log")
  for _, name in ipairs(good and names or {}) do
    local line = name:find "^node%-.*%.json$" and read(r, name)
    if line then
      local scalars = {}
      for what, x in pairs(line.scalars) do
        scalars[("node/%s/%s"):format(line.host, what)] = x
      end
      r.journal:append { kind = "node", host = line.host, step = r.step, scalars = scalars,
        faults = line.faults, wall = line.wall }
      tell(r, line)
    end
  end
end

--- Reads new reports of hosts, if it is time. A run that ends within hosts.every starts no process.
---@param r mr.Run
function hosts.look(r)
  local every, now = r.settings.hosts.every, base.now_s()
  r.hosts = r.hosts or { at = now + every, seen = {}, faults = {} }
  if every == 0 or now < r.hosts.at then
    return
  end
  r.hosts.at = now + math.min(every, LOOK_S)
  if not r.hosts.begun then
    r.hosts.begun = true
    begin(r)
  end
  if r.team.leads then
    take(r)
  end
end

return hosts
