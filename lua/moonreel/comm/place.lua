--- Which rank this process is, of how many: by whoever started it.
-- @module moonreel.comm.place
local base = require "moonreel.core.base"

local place = {}

--- Variables of those who start ranks; the first whose rank and size are both set counts.
place.sources = {
  { by = "moonreel -n", rank = "MOONREEL_RANK", size = "MOONREEL_WORLD_SIZE",
    local_rank = "MOONREEL_LOCAL_RANK", local_size = "MOONREEL_WORLD_SIZE",
    meeting = "MOONREEL_MEETING" },
  { by = "torchrun", rank = "RANK", size = "WORLD_SIZE", local_rank = "LOCAL_RANK",
    local_size = "LOCAL_WORLD_SIZE" },
  { by = "Open MPI", rank = "OMPI_COMM_WORLD_RANK", size = "OMPI_COMM_WORLD_SIZE",
    local_rank = "OMPI_COMM_WORLD_LOCAL_RANK", local_size = "OMPI_COMM_WORLD_LOCAL_SIZE" },
  { by = "PMI", rank = "PMI_RANK", size = "PMI_SIZE", local_rank = "MPI_LOCALRANKID",
    local_size = "MPI_LOCALNRANKS" },
  { by = "Slurm", rank = "SLURM_PROCID", size = "SLURM_NTASKS", local_rank = "SLURM_LOCALID" },
}

-- a whole number from `least` on that a variable holds; nil: it is not set
local function number(get, name, least)
  local text = name and get(name)
  if not text or text == "" then
    return nil
  end
  local value = text:match("^%d+$") and math.tointeger(tonumber(text))
  if not value or value < least then
    base.raise("MR_E_NODE", ("%s=%s: expected a whole number from %d on"):format(name, text, least))
  end
  return value
end

-- hosts with as many ranks each, as far as one of them can tell
local function equal_share(here, size)
  return here and size % here == 0 and here or nil
end

---@class moonreel.comm.Place
---@field rank integer        from 0
---@field size integer        ranks of the run
---@field local_rank integer  on this host, from 0
---@field local_size integer|nil  ranks of this host; nil: nobody says, or hosts differ
---@field by string|nil       who said so; nil: nobody, this process is alone
---@field meeting integer|nil descriptor of the memory that ranks of this host share

--- This process's place.
---@param get (fun(name: string): string|nil)|nil  variables (default: the environment's)
---@return moonreel.comm.Place
function place.find(get)
  get = get or os.getenv
  for _, source in ipairs(place.sources) do
    local rank, size = number(get, source.rank, 0), number(get, source.size, 1)
    if rank and size then
      if rank >= size then
        base.raise("MR_E_NODE", ("%s=%d: expected less than %s=%d"):format(source.rank, rank,
          source.size, size))
      end
      return { rank = rank, size = size, by = source.by,
        local_rank = number(get, source.local_rank, 0) or 0,
        local_size = equal_share(number(get, source.local_size, 1), size),
        meeting = number(get, source.meeting, 0) }
    end
  end
  return { rank = 0, size = 1, local_rank = 0 }
end

--- What stands before messages of this process: "rank 2: ", or nothing when it is alone.
---@return string
function place.label()
  local good, here = pcall(place.find)
  return good and here.size > 1 and ("rank %d: "):format(here.rank) or ""
end

return place
