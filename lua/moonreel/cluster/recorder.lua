--- Records the state of a host of a run repeatedly. It is a separate process, so a driver that
-- hangs does not delay steps. The newest state is in a file of the run, and the first rank copies
-- it into the journal.
-- @module moonreel.cluster.recorder
local answers = require "moonreel.cluster.answers"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local life = require "moonreel.core.life"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local recorder = {}

local LOOK_S <const> = 0.5 -- between two checks that the rank exists

--- Seconds to wait for GPUs and links.
recorder.answer_s = 20

--- The file of a host, in the folder log/ of a run.
---@param host string
---@return string
function recorder.file(host) return ("node-%s.json"):format(host) end

--- The name of this host in files and charts.
---@return string
function recorder.host()
  return ((os.getenv "MOONREEL_HOST" or answers.hostname()):gsub("[^%w.-]", "-"))
end

-- links and GPUs as `moonreel health` shows them; a child process asks, because it can be abandoned
local function health()
  local done = process.run({ process.program(), "health", "--json" }, "",
    { deadline_s = recorder.answer_s, quiet = true })
  local good, rows = pcall(json.decode, done.output)
  local answer = good and type(rows) == "table" and rows[1] and rows[1].answer
  return answer or { links = {}, gpus = {}, silent = done.timed_out }
end

-- numbers after a word in a file of /proc
local function number_in(path, pattern)
  local good, text = pcall(base.read_file, path)
  return good and tonumber(text:match(pattern)) or nil
end

local of_gpu <const> = { "power_w", "clock_mhz", "temperature_c", "busy_percent", "free_bytes",
  "memory_errors" }
local of_link <const> = { "received_bytes", "sent_bytes" }
local errors_of <const> = { "receive_errors", "send_errors", "symbol_errors", "downed" }

local function add_gpus(line, answer)
  for _, gpu in ipairs(answer.gpus) do
    for _, name in ipairs(of_gpu) do
      line.scalars[("gpu%d/%s"):format(gpu.number, name)] = gpu[name]
    end
    if gpu.fault then
      line.faults[#line.faults + 1] = ("GPU %d: %s"):format(gpu.number, gpu.fault)
    end
  end
end

-- Adds bytes per second and errors of each link since the last record; a counter that became
-- smaller was reset. Links without traffic are left out.
local function add_links(line, answer, before)
  local now = {}
  for _, link in ipairs(answer.links) do
    local was, errors = before.links and before.links[link.name], 0
    now[link.name] = link
    for _, name in ipairs(was and of_link or {}) do
      local more = (link[name] or 0) - (was[name] or 0)
      if more >= 0 and (link[name] or 0) > 0 then
        line.scalars[("%s/%s_s"):format(link.name:gsub("/", "-"), name)] = more
          / (line.now_s - before.now_s)
      end
    end
    for _, name in ipairs(was and errors_of or {}) do
      errors = errors + math.max(0, (link[name] or 0) - (was[name] or 0))
    end
    if errors > 0 then
      line.scalars[("%s/errors"):format(link.name:gsub("/", "-"))] = errors
      line.faults[#line.faults + 1] = ("link %s: %d errors"):format(link.name, errors)
    elseif was and was.state ~= link.state then
      line.faults[#line.faults + 1] = ("link %s is %s"):format(link.name, link.state)
    end
  end
  return now
end

--- The state of this host.
---@param before table  the record before this one; {} for the first
---@return table line   host, wall, scalars: numbers by name; faults: problems, nil: there are none
---@return table        argument `before` of the next call
function recorder.look(before)
  local answer = health()
  local line = { host = recorder.host(), now_s = base.now_s(), wall = base.wall_s(), faults = {},
    scalars = { load = number_in("/proc/loadavg", "^%S+"),
      free_memory_bytes = (number_in("/proc/meminfo", "MemAvailable:%s*(%d+) kB") or 0) * 1024 } }
  if answer.silent then
    line.faults[1] = ("its GPUs and links did not answer within %g s; the driver may hang"):format(
      recorder.answer_s)
  end
  add_gpus(line, answer)
  local kept = { now_s = line.now_s, links = add_links(line, answer, before) }
  line.faults, line.now_s = #line.faults > 0 and json.array(line.faults) or nil, nil
  return line, kept
end

--- Writes the state of this host into a run until its launch, or the rank that started this, ends.
---@param dir string     the run's folder, or that of the stage
---@param fence integer  of the launch
---@param every number   seconds
---@param pid integer    of the rank
---@param start integer  when it began, as the kernel counts
function recorder.run(dir, fence, every, pid, start)
  local path = ("%s/log/%s"):format(dir, recorder.file(recorder.host()))
  local kept, number, due = {}, 0, 0
  local function works()
    local good, owner = pcall(run.owner, dir)
    return life.state(pid, start) and (not good or owner.owned and owner.fence == fence)
  end
  while works() do
    if base.now_s() >= due then
      due, number = base.now_s() + every, number + 1
      local line
      line, kept = recorder.look(kept)
      line.fence, line.number = fence, number
      -- the disk may have free space again later
      if works() then
        pcall(base.replace_file, path, json.encode(line))
      end
    end
    base.sleep(math.min(LOOK_S, every / 2))
  end
  os.remove(path)
end

return recorder
