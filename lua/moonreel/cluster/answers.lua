--- The questions that a host's helper answers, by name. Each answer is plain data.
-- @module moonreel.cluster.answers
local base = require "moonreel.core.base"

local answers = {}

local SERVICES = { { "chrony", "/run/chrony/chronyd.pid" },
  { "timesyncd", "/run/systemd/timesync/synchronized" }, { "ntpd", "/run/ntpd.pid" },
  { "ntpsec", "/run/ntpsec/ntpd.pid" }, { "phc2sys", "/run/phc2sys.pid" } }

-- the text of a small file; nil: it cannot be read
local function read(path)
  local good, text = pcall(base.read_file, path)
  return good and text or nil
end

local function list(path)
  local good, names = pcall(base.list_dir, path)
  return good and names or {}
end

--- The name of this host.
---@return string
function answers.hostname()
  return (read "/proc/sys/kernel/hostname" or "this host"):match("%S*")
end

--- Compares the wall clock with the monotonic clock, and says which service adjusts the wall clock.
function answers.time()
  local service
  for _, row in ipairs(SERVICES) do
    service = service or base.exists(row[2]) and row[1] or nil
  end
  return { wall_s = base.wall_s(), now_s = base.now_s(), service = service }
end

-- the user of a process, as far as this process may see it
local function owner_of(pid)
  local status = read(("/proc/%d/status"):format(pid)) or ""
  local environment = read(("/proc/%d/environ"):format(pid)) or ""
  local uid, users = status:match("\nUid:%s*(%d+)"), read "/etc/passwd" or ""
  return { pid = pid, program = status:match("^Name:%s*(%C*)"), uid = math.tointeger(tonumber(uid)),
    user = uid and ("\n" .. users):match("\n([^:\n]+):[^:\n]*:" .. uid .. ":") or uid,
    run = ("\0" .. environment):match("%zMOONREEL_RUN_ID=(%x+)") }
end

--- The GPUs and who uses them; `absent` says why there are no GPUs.
function answers.gpus()
  local opened, all = pcall(require("moonreel.core.gpu").open)
  local found = { gpus = {} }
  if not opened then
    found.absent, found.broken = all.message, all.code ~= "MR_E_UNSUPPORTED"
    return found
  end
  for i = 0, all:count() - 1 do
    local good, gpu = pcall(all.read, all, i)
    gpu = good and gpu or { lost = gpu.message }
    for n, user in ipairs(gpu.processes or {}) do
      gpu.processes[n] = owner_of(user.pid)
    end
    gpu.number = i
    found.gpus[i + 1] = gpu
  end
  all:close()
  return found
end

-- reads numbers from the files of a folder, one number per file
local function counters(folder, names)
  local found = {}
  for name, file in pairs(names) do
    found[name] = math.tointeger(tonumber((read(folder .. "/" .. file) or ""):match("^%s*(%d+)")))
  end
  return found
end

--- The links with their traffic and errors, and the GPUs with their throttling and memory errors.
-- MOONREEL_SYSFS replaces /sys.
function answers.health()
  local root, links = os.getenv "MOONREEL_SYSFS" or "/sys", {}
  for _, name in ipairs(list(root .. "/class/net")) do
    local at = root .. "/class/net/" .. name
    local link = counters(at .. "/statistics", { received_bytes = "rx_bytes",
      sent_bytes = "tx_bytes", receive_errors = "rx_errors", send_errors = "tx_errors" })
    link.name, link.state = name, (read(at .. "/operstate") or "unknown"):match("%S*")
    link.speed_mbit = counters(at, { speed = "speed" }).speed
    links[#links + 1] = name ~= "lo" and link or nil
  end
  for _, device in ipairs(list(root .. "/class/infiniband")) do
    for _, port in ipairs(list(("%s/class/infiniband/%s/ports"):format(root, device))) do
      local at = ("%s/class/infiniband/%s/ports/%s"):format(root, device, port)
      local link = counters(at .. "/counters", { received_bytes = "port_rcv_data",
        sent_bytes = "port_xmit_data", receive_errors = "port_rcv_errors",
        symbol_errors = "symbol_error", downed = "link_downed" })
      -- InfiniBand counts these in words of four bytes
      link.received_bytes = link.received_bytes and link.received_bytes * 4
      link.sent_bytes = link.sent_bytes and link.sent_bytes * 4
      link.name = device .. "/" .. port
      link.state = ((read(at .. "/state") or "unknown"):match("(%a+)%s*$") or ""):lower()
      links[#links + 1] = link
    end
  end
  return { links = links, gpus = answers.gpus().gpus }
end

--- The hash of a recipe on this host.
---@param order table  recipe, overrides, dir
function answers.recipe(order)
  require("moonreel.core.process").enter(order.dir)
  return { hash = require("moonreel.settings").bake(order.recipe, order.overrides or {}).hash }
end

-- launches of a run on this host
local function launches_of(order)
  local life = require "moonreel.life"
  return order.launch and life.of_launch(tonumber(order.launch)) or life.of_run(order.dir)
end

--- Stops a run on this host.
---@param order table  dir: of the run, or launch: the number of a process; save_s, end_s: as
---   moonreel.life.stop takes them
---@param pause function|nil  called while it waits, so that the caller can serve others
---@return table row   of moonreel.life.stop
function answers.stop(order, pause)
  local ckpt = require "moonreel.ckpt"
  local o = { save_s = tonumber(order.save_s), end_s = tonumber(order.end_s),
    pause = pause or base.sleep }
  return require("moonreel.life.stop").run(launches_of(order), o,
    function(path) return path and ckpt.steps(path)[1] end)
end

--- Tells where the ranks of a run on this host are.
---@param order table  dir: of the run, or launch: the number of a process
---@return table groups  of moonreel.life.stacks
function answers.stacks(order)
  local launches = launches_of(order)
  local groups = require("moonreel.life.stacks").groups(launches)
  for _, launch in ipairs(launches) do
    launch.page:close()
  end
  return { groups = groups }
end

--- Is a file that the launcher wrote visible on this host?
---@param order table  path, text
function answers.store(order)
  return { shared = read(order.path) == order.text }
end

-- the checkpoint that was last asked for stays open, because the run may remove it meanwhile
local held = {}

-- opens a checkpoint of a run on this host
local function checkpoint(order)
  local path = require("moonreel.ckpt").dir(order.dir, math.tointeger(tonumber(order.step)))
  if held.path ~= path then
    held.source, held.path = require("moonreel.ckpt").open(path), path
  end
  return held.source
end

--- The checkpoints of a run, and whether it has ended.
---@param order table  run: a folder, or the name or number of a run in outputs/
---@return table       {dir, steps, ended}
function answers.checkpoints(order)
  local dir = require("moonreel.runs.find").one(order.run, "watch")
  if base.exists(dir .. "/stages/.") then
    base.raise("MR_E_USAGE", ("%s has stages; try: %s/stages/NAME"):format(dir, order.run))
  end
  local ended = not require("moonreel.runs.glance").active(dir)
  return { dir = dir, steps = require("moonreel.core.json").array(
    require("moonreel.ckpt").steps(dir)), ended = ended }
end

--- What a checkpoint contains, without the state of its optimizer.
---@param order table  dir: of checkpoints(), step
---@return table       {manifest, tensors = {{name, dtype, shape, bytes}, ...}}
function answers.checkpoint(order)
  held = {}
  local source, tensors = checkpoint(order), {}
  for _, name in ipairs(source:names()) do
    local kind = require("moonreel.ckpt.names").kind(name)
    tensors[#tensors + 1] = (kind == "weights" or kind == "ema") and source:info(name) or nil
  end
  return { manifest = source.manifest, tensors = tensors }
end

--- Reads bytes of a tensor of that checkpoint and compares them with their hashes.
---@param order table  dir, step, name, offset, count
---@return table       {}
---@return string      the bytes
function answers.tensor(order)
  return {}, checkpoint(order):read(order.name, math.tointeger(tonumber(order.offset)),
    math.tointeger(tonumber(order.count)))
end

return answers
