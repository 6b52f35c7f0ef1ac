--- A run on several hosts: one helper per host, ranks as the host file says, and one common end.
-- @module moonreel.cluster.launch
local base = require "moonreel.core.base"
local comm = require "moonreel.comm.launch"
local hosts = require "moonreel.comm.hosts"
local remote = require "moonreel.cluster.remote"
local output = require "moonreel.text.output"
local signal = require "moonreel.core.signal"

local launch = {}

local MEET_S = 30 -- for the first host to report the port of rank 0

-- variables that are passed to ranks; secrets and settings of this host are not
local NAMES = { LANG = true, LC_ALL = true, TZ = true, NO_COLOR = true, CUDA_VISIBLE_DEVICES = true,
  CUDA_DEVICE_MAX_CONNECTIONS = true }
local PREFIXES = { "NCCL_", "OMP_", "GOMP_", "MOONREEL_", "UCX_" }
local OWN = { MOONREEL_OWN = true, MOONREEL_RSH = true }

--- The variables of this process that are passed to ranks, as "NAME=value".
---@param environment string  of /proc/self/environ
---@return string[]
function launch.variables(environment)
  local list = {}
  for one in environment:gmatch("[^%z]+") do
    local name = one:match("^([^=]+)=")
    local handed = name and NAMES[name]
    for _, prefix in ipairs(PREFIXES) do
      handed = handed or name and name:sub(1, #prefix) == prefix
    end
    if handed and not OWN[name] and not name:match("SECRET") then
      list[#list + 1] = one
    end
  end
  table.sort(list)
  return list
end

-- the number of ranks of each host, and the number of its first rank
local function share(list, ranks)
  local shares, world, even = {}, 0, true
  for i, host in ipairs(list) do
    local n = ranks or host.slots or 1
    if n > (host.max_slots or math.huge) then
      base.raise("MR_E_USAGE", ("host %s: %d ranks, max_slots=%d in the host file"):format(
        host.name, n, host.max_slots))
    end
    shares[i] = { first = world, ranks = n }
    world, even = world + n, even and n == shares[1].ranks
  end
  return shares, world, even and shares[1].ranks or nil
end

-- reports all hosts that cannot be reached or have another program, in the order of the list
local function expect_all(cluster)
  local faults = {}
  for _, link in ipairs(cluster.links) do
    local fault = link.gone or remote.other_build(link)
    faults[#faults + 1] = fault and ("host %s: %s"):format(link.host.name, fault)
  end
  if #faults > 0 then
    base.raise("MR_E_NODE", table.concat(faults, "\n  ") .. ("\n  %d of %d hosts cannot run; try: "
      .. "moonreel doctor --hostfile FILE, or --exclude"):format(#faults, #cluster.links))
  end
end

-- asks for the rendezvous: the first host reserves a port for rank 0
local function ask_port(cluster)
  local first, ends = cluster.links[1], base.now_s() + MEET_S
  cluster:tell({ kind = "listen", at = os.getenv "MOONREEL_LISTEN", addr = first.host.addr }, first)
  while base.now_s() < ends do
    for _, event in ipairs(cluster:turn(50)) do
      if event.kind == "port" then
        return event.port
      elseif event.link == first or event.kind == "gone" then
        base.raise("MR_E_NODE", ("host %s: %s"):format(event.link.host.name,
          event.text or event.link.gone))
      end
    end
  end
  base.raise("MR_E_NODE", ("host %s: it did not report a port for rank 0 within %d s; try: "
    .. "moonreel doctor --hostfile FILE"):format(first.host.name, MEET_S))
end

local function address(host, port)
  local name = host.addr or host.name
  return (name:find(":", 1, true) and "[%s]:%s" or "%s:%s"):format(name, port)
end

local function random_text()
  local file <close> = assert(io.open("/dev/urandom", "rb"))
  return (file:read(16):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

-- tells each host which ranks it runs
local function start(cluster, words, o, shares, world, even)
  local port, secret, run = ask_port(cluster), random_text(), random_text()
  local dir = require("moonreel.core.process").real_path "."
  local master = address(cluster.links[1].host, port)
  for i, link in ipairs(cluster.links) do
    local env = launch.variables(base.read_file "/proc/self/environ")
    local function set(name, value) env[#env + 1] = name .. "=" .. value end
    set("MOONREEL_MASTER", master)
    set("MOONREEL_RUN_ID", run)
    set("MOONREEL_HOST", link.host.name)
    if o.settings then
      set("MOONREEL_SETTINGS", o.settings)
    end
    if even then
      set("MOONREEL_EVEN_SIZE", tostring(even))
    end
    if link.host.devices then
      set("CUDA_VISIBLE_DEVICES", table.concat(link.host.devices, ","))
    end
    cluster:tell({ kind = "start", words = { "moonreel", table.unpack(words) }, env = env,
      dir = dir, secret = secret, first = shares[i].first, ranks = shares[i].ranks,
      world = world, watch = o.watch and require("moonreel.core.json").encode(o.watch),
      patience = o.patience or 3 }, link)
  end
end

-- ---- until all have ended ----

-- exit code of a rank that failed because another rank did
local NODE_FAILED <const> = 6

local Watch = {}
Watch.__index = Watch

-- Records the first failure. A failure that is a consequence of another one is replaced by its
-- cause: a lost host, or a rank that failed by itself or hung.
function Watch:note(event, text, exit)
  local own = exit ~= NODE_FAILED or event.kind == "gone" or event.named
  if exit ~= 0 and (not self.cause or own and not self.cause.own) then
    self.cause = { host = event.link.host.name, text = text, exit = exit, rank = event.rank,
      own = own }
  end
  if exit ~= 0 and not self.reported then
    self.reported = true
    self.cluster:tell { kind = "stop", text = ("host %s: %s"):format(event.link.host.name, text) }
  end
end

-- Passes on whole lines, so that lines of two hosts do not mix. When their reader closes the pipe,
-- ranks find out at their next write.
function Watch:pass_on(event, file)
  local rest = event.link.rest or {}
  local text = (rest[event.kind] or "") .. event.text
  local lines, tail = text:match("^(.*\n)(.*)$")
  rest[event.kind], event.link.rest = tail or text, rest
  if not output.write(file, lines or "") then
    self.cluster:tell { kind = "drop", what = event.kind }
  end
  -- errors of ranks are printed again at the end
  for line in (lines or ""):gmatch("[^\n]+") do
    self.said[line:match("^moonreel: rank (%d+): ") or ""] = line
  end
end

local acts = {}

function acts.out(self, event) self:pass_on(event, self.stdout) end

function acts.err(self, event) self:pass_on(event, io.stderr) end

function acts.rank(self, event)
  self:note(event, event.text, math.tointeger(tonumber(event.exit)))
end

-- a host has ended its work
local function close(self, event, text, exit)
  if event.link.ended then
    return
  end
  self.open, event.link.ended = self.open - 1, true
  for kind, tail in pairs(event.link.rest or {}) do
    output.write(kind == "out" and self.stdout or io.stderr, tail)
  end
  self:note(event, text, exit)
end

function acts.ended(self, event)
  self.dir = event.run or self.dir
  self.step = math.max(self.step, math.tointeger(tonumber(event.step)) or 0)
  self.met = self.met or event.met == "yes"
  close(self, event, event.text, math.tointeger(tonumber(event.exit)))
end

-- the host could not do what was asked
function acts.failed(self, event) close(self, event, event.text, NODE_FAILED) end

function acts.gone(self, event)
  close(self, event, "is lost: " .. event.link.gone, NODE_FAILED)
end

-- a signal to this process is passed on to all ranks
local function hand_on(self)
  local number = signal.take()
  if number then
    self.cluster:tell { kind = "signal", number = number }
    self.asked = number
  end
end

local function wait_for_all(cluster, world, stdout)
  local self = setmetatable({ cluster = cluster, open = #cluster.links, said = {}, step = 0,
    world = world, stdout = stdout or io.stdout }, Watch)
  signal.catch()
  while self.open > 0 do
    for _, event in ipairs(cluster:turn(100)) do
      (acts[event.kind] or function() end)(self, event)
    end
    hand_on(self)
  end
  signal.release()
  return self
end

-- the name of the host that runs a rank; nil: there is no such rank
local function host_of(rank, list, shares)
  for i, host in ipairs(list) do
    local first = shares[i].first
    if rank >= first and rank < first + shares[i].ranks then
      return host.name
    end
  end
end

-- The rank that most other ranks report as not answering, and one of these reports. If two are
-- reported equally often, it is the one that the first failed rank reports. nil: no rank.
local function silent_rank(watch)
  local times, lines, most = {}, {}, nil
  local function count(speaker)
    local line = watch.said[tostring(math.tointeger(speaker))] or ""
    local rank = not line:find("gave up: ", 1, true)
      and line:match ": rank (%d+) at %S+[ port%d]* does not answer: "
    if rank then
      times[rank], lines[rank] = (times[rank] or 0) + 1, lines[rank] or line
      most = most and times[rank] <= times[most] and most or rank
    end
  end
  local ended = tonumber(watch.cause.rank)
  count(ended)
  for speaker = 0, watch.world - 1 do
    if speaker ~= ended then
      count(speaker)
    end
  end
  return most, lines[most]
end

-- The last line that the failed rank printed. If this line says that another rank gave up or does
-- not answer, the failure is attributed to that other rank.
local function origin(watch, list, shares)
  local cause = watch.cause
  local line = cause.rank and watch.said[cause.rank]
  if not line or cause.own then
    return line
  end
  local silent, reported = silent_rank(watch)
  local first = silent or line:match ".*rank (%d+) gave up: "
  local host = first and host_of(tonumber(first), list, shares)
  if host then
    cause.host, cause.text = host, ("rank %s ended with exit code %d"):format(first, cause.exit)
    line = reported or watch.said[first] or line
  end
  return line
end

-- If a line reports a broken link, describes it with the hosts of both ends; nil: it does not.
local function broken_link(line, list, shares)
  local from, to, how = line:match("rank (%d+) on %S+ cannot reach rank (%d+) (.-); try: ")
  local what = "cannot reach"
  if not from then
    what, from, to, how = "hears nothing of",
      line:match("^moonreel: rank (%d+): .*: rank (%d+) at .- does not answer(: .-); try: ")
  end
  local here = from and host_of(tonumber(from), list, shares)
  local there = from and host_of(tonumber(to), list, shares)
  return here and there and ("the link from host %s to host %s fails: rank %s %s rank %s%s"):format(
    here, there, from, what, to, how:gsub("^[^:]", " %0"))
end

-- runs one launch; moonreel.comm.launch asks how it ended
local function once(words, o)
  local list = hosts.filter(hosts.read(o.hostfile), o.include, o.exclude)
  local shares, world, even = share(list, o.ranks)
  local cluster <close> = remote.open(list)
  expect_all(cluster)
  start(cluster, words, o, shares, world, even)
  local watch = wait_for_all(cluster, world, o.stdout)
  local cause = watch.cause
  if not cause then
    return { exit = 0 }
  end
  output.write(io.stdout)
  -- the error of the rank that failed first is printed last
  local line = origin(watch, list, shares)
  if line then
    output.write(io.stderr, line, "\n")
  end
  local link = line and broken_link(line, list, shares)
  return { exit = cause.exit, asked = watch.asked, dir = watch.dir, step = watch.step,
    host = cause.host, hosts = #list, met = watch.met or false,
    text = ("host %s: %s; all %d ranks of %d hosts have ended"):format(cause.host,
      link or cause.text, world, #list) }
end

local function say(line) output.write(io.stderr, "moonreel: ", line, "\n") end

--- Runs these words with ranks on several hosts.
---@param words string[]
---@param o table  hostfile, include, exclude; ranks: of each host, nil: as its slots
---   say; settings: hash that the recipe must have everywhere; stdout: a file for what ranks print
---   watch, patience, restarts, restart_steps, restart_pause, again, without: as of
---   moonreel.comm.launch
---@return integer exit code  of the rank that failed first
---@return string|nil text    how it failed
function launch.run(words, o)
  o = setmetatable({ say = say }, { __index = o })
  local exit, text = comm.insist(function(next_words) return once(next_words, o) end, words, o)
  if text then
    say(text)
  end
  return exit, text
end

return launch
