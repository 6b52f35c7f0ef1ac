--- The watcher of a host whose ranks another launcher started (torchrun, srun, mpirun). It is a
-- process that the first rank of the host starts; it reports hanging ranks as moonreel's own
-- launcher does, and ends when the ranks end.
-- @module moonreel.life.watcher
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local joined = require "moonreel.life.joined"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local report = require "moonreel.life.report"
local watch = require "moonreel.life.watch"

local watcher = {}

-- seconds: between two checks; between two searches for started ranks; for the first rank to start
local LOOK_S <const>, REFRESH_S <const>, BEGIN_S <const> = 0.1, 1, 10
local KILL <const> = 9

--- Publishes the state of this rank; the first rank of its host also starts the watcher. Does
-- nothing under moonreel's own launcher, which watches ranks itself.
---@param here moonreel.comm.Place
---@param job string|nil   id that ranks of this launch have in common; nil: moonreel's own launcher
---@param settings table   baked; field watch is read
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

-- kills a rank; the other ranks notice that it is gone
local function kill(page, event)
  local r, about = page:rank(event.rank), page:about()
  return core.signal(r.pid, r.start, about.uid, KILL)
end

--- Watches the ranks of a job on this host until all have ended.
---@param job string
---@param rank integer   the rank that started this process; it ends if a smaller rank of this host
---   has started, which has its own watcher
---@param limits table   from the settings: seconds by phase, and patience
---@param say function   called with each line
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
      page:refresh() -- the report also contains ranks that have just started
      local path = event.kind == "hang" and report.write(page, event)
      say(("host %s: %s%s"):format(host, event.text, path and "; see " .. path or ""))
    end
    local standing, times
    if eye then
      standing, times = eye:standing()
    end
    if standing and times > limits.patience then
      say(("host %s: %s; moonreel ends it"):format(host, standing.text))
      kill(page, standing)
      eye.reported[standing.rank] = nil
    end
    base.sleep(LOOK_S)
  end
end

return watcher
