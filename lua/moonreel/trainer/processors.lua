--- Processors of the host: their number, and the number that running processes use.
-- @module moonreel.trainer.processors
local base = require "moonreel.core.base"

local processors = {}

--- Number of processors of this host.
---@return integer
function processors.count()
  local n = 0
  for _ in ("\n" .. base.read_file "/proc/cpuinfo"):gmatch "\nprocessor%s*:" do
    n = n + 1
  end
  return math.max(1, n)
end

--- Threads of the process that renders in parallel with a run: those of its recipe, or the
-- processors that the run does not use.
---@param settings table
---@param used integer  processors that the run uses
---@return integer
function processors.spare(settings, used)
  local given = settings.sampling.threads
  return given > 0 and given or math.max(1, processors.count() - used)
end

--- Number of processes that wanted a processor, mean of the last minute.
---@return number
function processors.wanted() return tonumber(base.read_file("/proc/loadavg"):match "^%S+") or 0 end

return processors
