--- Finds the rank of this process, the number of ranks, and how to connect, for each launcher.
-- @module moonreel.comm.place
local base = require "moonreel.core.base"

local place = {}

local PORTS = 16 -- ports that rank 0 tries in a row, if no launcher has opened one for it
local MOST <const>, MOST_RANKS <const> = (1 << 31) - 1, 1 << 20

-- a whole number from `least` to `most` in a variable; nil: it is not set
local function number(get, name, least, most)
  local text = name and get(name)
  if not text or text == "" then
    return nil
  end
  local value = text:match("^%d+$") and math.tointeger(tonumber(text))
  if not value or value < least or value > (most or MOST) then
    base.raise("MR_E_NODE", ("%s=%s: expected a whole number from %d to %d"):format(name,
      base.printable(text):sub(1, 60), least, most or MOST))
  end
  return value
end

-- ---- rendezvous ----

-- "10.0.0.1:29500" or "[fe80::1]:29500"
local function address(text, name)
  local host, port = text:match("^%[(.+)%]:(%d+)$")
  if not host then
    host, port = text:match("^([^:]+):(%d+)$")
  end
  if not host then
    base.raise("MR_E_NODE", ("%s=%s: expected HOST:PORT"):format(name, text))
  end
  return host, math.tointeger(tonumber(port))
end

-- are messages between ranks encrypted? nil: unknown
local function encrypts(get)
  local given = number(get, "MOONREEL_ENCRYPT", 0, 1)
  return given and given == 1
end

-- ranks of several hosts that moonreel has started; nil: they share memory
local function by_moonreel(get, here)
  local master = get "MOONREEL_MASTER"
  if not master then
    return nil
  end
  local host, port = address(master, "MOONREEL_MASTER")
  here.local_size = number(get, "MOONREEL_EVEN_SIZE", 1)
  return { host = host, port = port, ports = 1, run = get "MOONREEL_RUN_ID" or "",
    fence = number(get, "MOONREEL_FENCE", 0) or 0, listener = number(get, "MOONREEL_LISTENER", 0),
    listen = get "MOONREEL_LISTEN", encrypt = encrypts(get),
    secret_fd = number(get, "MOONREEL_SECRET", 0),
    first = here.rank - here.local_rank,
    n_local = number(get, "MOONREEL_LOCAL_SIZE", 1) }
end

-- torchrun's own store may use MASTER_PORT itself
local function by_torchrun(get)
  local host, run = get "MASTER_ADDR", get "TORCHELASTIC_RUN_ID" or ""
  if not host or host == "" then
    base.raise("MR_E_NODE", "RANK and WORLD_SIZE are set, but MASTER_ADDR is not; expected the "
      .. "host of rank 0; try: torchrun, or unset RANK")
  end
  local port = number(get, "MASTER_PORT", 1) or 29500
  if get "TORCHELASTIC_USE_AGENT_STORE" == "True" then
    port = port + 1
  end
  return { host = host, port = port, ports = PORTS, run = "torchrun " .. run,
    fence = number(get, "TORCHELASTIC_RESTART_COUNT", 0) or 0, secret = get "MOONREEL_SECRET_TEXT",
    listen = get "MOONREEL_LISTEN", encrypt = encrypts(get) }
end

-- for srun without MPI: rank 0 is on the first host of the list
local function by_slurm(get)
  if get "PMIX_RANK" or get "PMI_FD" then
    return nil
  end
  local list = get "SLURM_STEP_NODELIST" or get "SLURM_JOB_NODELIST"
  local job, step = number(get, "SLURM_JOB_ID", 0) or 0, get "SLURM_STEP_ID" or "0"
  if not list and not get "MASTER_ADDR" then
    base.raise("MR_E_NODE", "SLURM_PROCID and SLURM_STEP_NUM_TASKS are set, but "
      .. "SLURM_JOB_NODELIST is not; try: srun, which sets it, or unset SLURM_PROCID")
  end
  local first = list and require("moonreel.comm.hosts").expand(list, "SLURM_JOB_NODELIST")[1]
  return { host = get "MASTER_ADDR" or first,
    port = number(get, "MASTER_PORT", 1) or 20000 + job % 20000, ports = PORTS,
    run = ("slurm %d.%s"):format(job, step), fence = number(get, "SLURM_RESTART_COUNT", 0) or 0,
    secret = get "MOONREEL_SECRET_TEXT", listen = get "MOONREEL_LISTEN", encrypt = encrypts(get) }
end

-- ranks of each host, if all have the same number
local function slurm_share(get)
  local text = get "SLURM_STEP_TASKS_PER_NODE" or get "SLURM_TASKS_PER_NODE"
  local list = text and require("moonreel.comm.hosts").tasks(text) or {}
  for _, n in ipairs(list) do
    if n ~= list[1] then
      return nil
    end
  end
  return list[1]
end

--- Variables of launchers; the first whose rank and size are both set counts. `tcp` returns the
-- options of the rendezvous; without it ranks share memory (moonreel) or use MPI. Variables of a
-- launcher with `around` are also set below other launchers that it has started: mpirun and
-- torchrun in a task of srun have their own ranks. SLURM_PROCID and SLURM_NTASKS are set in every
-- shell of a job, by sbatch and salloc; only srun, which starts ranks, sets SLURM_STEP_NUM_TASKS.
place.sources = {
  { by = "moonreel -n", rank = "MOONREEL_RANK", size = "MOONREEL_WORLD_SIZE",
    local_rank = "MOONREEL_LOCAL_RANK", local_size = "MOONREEL_WORLD_SIZE",
    segment = "MOONREEL_SEGMENT", tcp = by_moonreel },
  { by = "torchrun", rank = "RANK", size = "WORLD_SIZE", local_rank = "LOCAL_RANK",
    local_size = "LOCAL_WORLD_SIZE", tcp = by_torchrun },
  { by = "Open MPI", rank = "OMPI_COMM_WORLD_RANK", size = "OMPI_COMM_WORLD_SIZE",
    local_rank = "OMPI_COMM_WORLD_LOCAL_RANK", local_size = "OMPI_COMM_WORLD_LOCAL_SIZE" },
  { by = "PMI", rank = "PMI_RANK", size = "PMI_SIZE", local_rank = "MPI_LOCALRANKID",
    local_size = "MPI_LOCALNRANKS" },
  { by = "Slurm", rank = "SLURM_PROCID", size = "SLURM_STEP_NUM_TASKS",
    local_rank = "SLURM_LOCALID", share = slurm_share, tcp = by_slurm, around = true },
}

-- ranks per host, if all hosts seem to have the same number
local function equal_share(here, size)
  return here and size % here == 0 and here or nil
end

---@class moonreel.comm.Place
---@field rank integer        from 0
---@field size integer        ranks in the run
---@field local_rank integer  on this host, from 0
---@field local_size integer|nil  ranks on this host; nil: unknown, or different by host
---@field by string|nil       the launcher; nil: this process is alone
---@field segment integer|nil descriptor of the segment that ranks of this host share
---@field tcp table|nil       the rendezvous of ranks on several hosts: options of core.world

local function refuse(form, ...) base.raise("MR_E_NODE", form:format(...)) end

-- rank and size from a launcher's variables; nil: they are not set
local function said_by(get, source)
  local rank, size = number(get, source.rank, 0), number(get, source.size, 1, MOST_RANKS)
  if rank and size and rank >= size then
    refuse("%s=%d: expected less than %s=%d", source.rank, rank, source.size, size)
  elseif not source.around and (rank == nil) ~= (size == nil) and size ~= 1 then
    local set, missing = source.rank, source.size
    if size then
      set, missing = missing, set
    end
    refuse("%s=%d is set, but %s is not; expected both, as set by %s, or neither; try: unset %s",
      set,
      rank or size, missing, source.by, set)
  end
  return rank and size and rank, size
end

-- Which of two launchers, one within the other, counts, if they give this process different ranks?
local function refuse_another(get, here, source, found)
  local rank, size = said_by(get, source)
  local beneath = source.around or source.by == "PMI" and get "SLURM_PROCID"
  -- below Slurm, a daemon of mpirun is alone on its host and starts its own ranks
  local doubled = source.around and found.by == "Open MPI" and number(get, source.local_rank, 0)
  if rank and (not beneath and (rank ~= here.rank or size ~= here.size) or (doubled or 0) > 0) then
    refuse("%s=%d of %s=%d (%s), but %s=%d of %s=%d (%s): two launchers give this process "
      .. "different ranks; try: only one of them, or unset the variables of the other", found.rank,
      here.rank,
      found.size, here.size, found.by, source.rank, rank, source.size, size, source.by)
  end
end

local function place_by(get, source, rank, size)
  local here = { rank = rank, size = size, by = source.by,
    local_rank = number(get, source.local_rank, 0) or 0,
    local_size = number(get, source.local_size, 1, MOST_RANKS),
    segment = number(get, source.segment, 0) }
  local function expect(name, most, of, limit)
    if (here[name] or 0) > most then
      refuse("%s=%d: expected at most %d, of %s=%d", source[name], here[name], most, of, limit)
    end
  end
  expect("local_size", size, source.size, size)
  local near = here.local_size and "local_size" or "size"
  expect("local_rank", here[near] - 1, source[near], here[near])
  if source.share then
    here.local_size = source.share(get)
  end
  here.tcp = size > 1 and source.tcp and source.tcp(get, here) or nil
  here.local_size = equal_share(here.local_size, size)
  return here
end

--- The place of this process.
---@param get (fun(name: string): string|nil)|nil  variables (default: the environment's)
---@return moonreel.comm.Place
function place.find(get)
  get = get or os.getenv
  local here, found
  for _, source in ipairs(place.sources) do
    if found then
      refuse_another(get, here, source, found)
    else
      local rank, size = said_by(get, source)
      if rank then
        here, found = place_by(get, source, rank, size), source
        -- the launcher of moonreel's own launcher does not count
        if source.segment then
          return here
        end
      end
    end
  end
  return here or { rank = 0, size = 1, local_rank = 0 }
end

-- variables that distinguish jobs of MPI on a host
local JOBS = { "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID" }

--- A text that is the same for all ranks of a job on this host, and different for other jobs there;
-- nil: this process is alone, or moonreel has started it.
---@param here moonreel.comm.Place
---@param get (fun(name: string): string|nil)|nil  variables (default: the environment's)
---@return string|nil
function place.job(here, get)
  if here.size == 1 or here.by == place.sources[1].by then
    return nil
  elseif here.tcp then
    return ("%s %s:%d %d"):format(here.tcp.run, here.tcp.host, here.tcp.port, here.tcp.fence)
  end
  for _, name in ipairs(JOBS) do
    local text = (get or os.getenv)(name)
    if text and text ~= "" then
      return ("%s %s"):format(here.by, text)
    end
  end
  -- one process of the launcher has started all of them
  return ("%s %s"):format(here.by, base.read_file("/proc/self/status"):match("PPid:%s*(%d+)"))
end

--- The launcher that has started this process as one of several ranks; nil: there is none.
---@param get (fun(name: string): string|nil)|nil  variables (default: the environment's)
---@return string|nil by
---@return integer|nil rank
---@return integer|nil size
function place.of_several(get)
  for _, source in ipairs(place.sources) do
    local good, rank, size = pcall(said_by, get or os.getenv, source)
    if good and rank and size > 1 then
      return source.by, rank, size
    end
  end
end

--- The prefix of messages of this process: "rank 2: ", or nothing if it is alone.
---@return string
function place.label()
  local good, here = pcall(place.find)
  return good and here.size > 1 and ("rank %d: "):format(here.rank) or ""
end

--- The device of this rank. Each rank of a host has its own GPU: the one that its launcher makes
-- visible, or the one with its local rank.
---@param name string  as in a recipe
---@return string
function place.device(name)
  local seen = os.getenv "CUDA_VISIBLE_DEVICES"
  local only = seen and seen ~= "" and not seen:find(",", 1, true)
  return name == "cuda" and not only and "cuda:" .. place.find().local_rank or name
end

return place
