--- The watcher of a host whose ranks another launcher has started (torchrun, srun, mpirun): a
-- process that the first rank starts, and that reports hanging ranks as our own launcher does. It
-- ends with the ranks.
-- @module moonreel.life.watcher
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local joined = require "moonreel.life.joined"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local report = require "moonreel.life.report"
local watch = require "moonreel.life.watch"

local watcher = {}

-- seconds: between two looks; between two looks for ranks that have begun; for the first to begin
local LOOK_S <const>, REFRESH_S <const>, BEGIN_S <const> = 0.1, 1, 10
local KILL <const> = 9

--- From now on others see this rank, and the first rank of its host has it watched. Nothing happens
-- where our own launcher does so.
---@param here moonreel.comm.Place
---@param job string|nil   what ranks of this launch have in common; nil: our own launcher's
---@param settings table   baked: watch
function watcher.begin(here, job, settings)
  if not job then
    return
  end
  core.publish(here.rank, here.size, job)
  if here.local_rank == 0 then
    local limits = settings:plain "watch"
    process.leave { process.program(), "watcher", job, tostring(here.rank),
      json.encode(limits) }
  end
end

local function hostname()
  return base.read_file("/proc/sys/kernel/hostname"):match "%S+"
end

-- end a rank; the others find it gone
local function kill(page, event)
  local r, about = page:rank(event.rank), page:about()
  return core.signal(r.pid, r.start, about.uid, KILL)
end

--- Watch the ranks of a job on this host until all have ended.
---@param job string
---@param rank integer   that has started this; a smaller one of this host has its own watcher
---@param limits table   of the settings: seconds by phase, and patience
---@param say function   takes each line
function watcher.run(job, rank, limits, say)
  local page, host = joined.new(job, hostname()), os.getenv "MOONREEL_HOST" or hostname()
  local began, refreshed, eye = base.now_s(), nil, nil
  while not eye or page:lives() do
    if not refreshed or base.now_s() > refreshed + REFRESH_S then
      page:refresh()
      refreshed = base.now_s()
    end
    if page.list[1] and page.list[1] < rank then
      return
    end
    eye = eye or #page.list > 0 and watch.new(page, limits, page.list) or nil
    if not eye and base.now_s() > began + BEGIN_S then
      return
    end
    for _, event in ipairs(eye and eye:look() or {}) do
      page:refresh() -- a report holds all ranks, those too that have just begun
      local path = event.kind == "hang" and report.write(page, event)
      say(("host %s: %s%s"):format(host, event.text, path and "; see " .. path or ""))
    end
    local standing, times
    if eye then
      standing, times = eye:standing()
    end
    if standing and times > limits.patience then
      say(("host %s: %s; it is ended"):format(host, standing.text))
      kill(page, standing)
      eye.reported[standing.rank] = nil
    end
    base.sleep(LOOK_S)
  end
end

return watcher
