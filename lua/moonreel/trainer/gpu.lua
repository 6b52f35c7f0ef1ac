--- State of a run's GPU for the journal: power, clocks, free memory, reasons for low clocks; and
-- the error text for a lost GPU.
-- @module moonreel.trainer.gpu
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local team = require "moonreel.comm.team"

local gpu = {}

local EVERY_S = 1 -- a query takes the driver some milliseconds

-- the folder in which the kernel describes the devices of the bus
gpu.sysfs = "/sys/bus/pci/devices/"

--- The memory node (NUMA) near a device, from 1; nil if the device is no GPU, or the host has no
-- memory nodes.
---@param device mr.Device
---@return integer|nil
function gpu.node(device)
  local bus = device:bus()
  local file = bus and gpu.sysfs .. bus:lower() .. "/numa_node"
  local node = file and base.exists(file) and tonumber(base.read_file(file))
  return node and node >= 0 and math.tointeger(node) + 1 or nil
end

--- Calls f with a run. If its GPU is lost meanwhile, the error says which line chose that GPU and
-- which checkpoint can be continued.
---@param r mr.Run
---@param f function  of r
---@return any  result of f
function gpu.reported(r, f)
  local good, result = xpcall(f, team.traced, r)
  if good then
    return result
  end
  if type(result) == "table" and result.code == "MR_E_NODE"
      and result.message:find "%(CUDA error %d+%)" then
    local step = r.saver:status().last_commit
    result.message = ("%s: %s\n  %s"):format(blame.place(r.settings, "device"), result.message,
      step and ("step %d is saved in %s"):format(step, r.dir)
      or "no step was saved since the run began; earlier checkpoints are unchanged")
  end
  error(result, 0)
end

local Watch = {}
Watch.__index = Watch

--- Watches a device; nil if it is no GPU or its driver does not report its state.
---@param device mr.Device
---@return table|nil watch  with close
function gpu.watch(device)
  local bus = device:bus()
  if not bus then
    return nil
  end
  local opened, gpus = pcall(require("moonreel.core.gpu").open)
  if not opened then
    return nil
  end
  local number = gpus:find(bus)
  if not number then
    gpus:close()
    return nil
  end
  return setmetatable({ gpus = gpus, number = number, why = "", at = -math.huge }, Watch)
end

--- The state of the GPU for the journal, at most once a second, and a line for people when it
-- begins or stops to run below its clocks. Values that the driver does not report are absent; nil:
-- not queried now.
---@param now number|nil  seconds, from base.now_s()
---@return table|nil state  {power_w, clock_mhz, temperature_c, free_bytes, slow}
---@return string|nil line
function Watch:look(now)
  now = now or base.now_s()
  if now - self.at < EVERY_S then
    return nil
  end
  self.at = now
  local reported, s = pcall(self.gpus.read, self.gpus, self.number)
  if not reported then
    return nil
  end
  local why = table.concat(s.slow, ", ")
  local state = { power_w = s.power_w, clock_mhz = s.clock_mhz, temperature_c = s.temperature_c,
    free_bytes = s.free_bytes, slow = why ~= "" and why or nil }
  local line
  if why ~= self.why then
    line = why == "" and "the GPU runs at its clocks again"
      or ("the GPU runs slower (%s): %s MHz of %s, %s C"):format(why, s.clock_mhz or "?",
        s.most_mhz or "?", s.temperature_c or "?")
    self.why = why
  end
  return state, line
end

function Watch:close()
  self.gpus:close()
end
Watch.__close = Watch.close

return gpu
