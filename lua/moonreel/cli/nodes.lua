--- moonreel nodes: the GPUs of hosts, who uses them, and whether a run can begin.
-- @module moonreel.cli.nodes
local survey = require "moonreel.cluster.survey"

local command = {
  name = "nodes",
  summary = "show the GPUs of hosts: memory, power, who uses them, ready or not",
  usage = "nodes [--hostfile FILE] [--json]",
  most = 0,
  options = survey.options,
  details = "Exit 0 only if every host has answered; a host that has not is shown with the reason.",
}

local IDLE_BYTES = 1 << 30 -- the most that a driver alone may use

-- who uses a GPU, as "anna 4242 python3, run 01ab"
local function owners(gpu)
  local texts = {}
  for i, user in ipairs(gpu.processes or {}) do
    texts[i] = ("%s %d %s%s"):format(user.user or "?", user.pid, user.program or "?",
      user.run and ", run " .. user.run:sub(1, 8) or "")
  end
  return table.concat(texts, "; ")
end

-- why a run cannot use a GPU; nil if it can
local function hindrance(gpu)
  if gpu.lost then
    return gpu.lost
  elseif (gpu.memory_errors or 0) > 0 then
    return ("%d uncorrected memory errors"):format(gpu.memory_errors)
  elseif #(gpu.processes or {}) > 0 then
    return "in use"
  elseif gpu.memory_bytes and gpu.memory_bytes - gpu.free_bytes > IDLE_BYTES then
    return "memory is in use by a process that this user cannot see"
  end
end

local function watts(list)
  local least, most, sum, n = math.huge, 0, 0, 0
  for _, gpu in ipairs(list) do
    if gpu.power_w then
      least, most = math.min(least, gpu.power_w), math.max(most, gpu.power_w)
      sum, n = sum + gpu.power_w, n + 1
    end
  end
  return n > 0 and { min_w = least, mean_w = sum / n, max_w = most } or nil
end

-- a host is ready when all of its GPUs are
local function judge(found)
  found.power, found.ready = watts(found.gpus), #found.gpus > 0
  for _, gpu in ipairs(found.gpus) do
    gpu.hindrance = hindrance(gpu)
    found.ready = found.ready and not gpu.hindrance
  end
end

local function lines(row)
  local list, size = {}, require("moonreel.trainer.progress").bytes
  for i, gpu in ipairs(row.answer.gpus) do
    list[i] = { gpu = tostring(gpu.number), name = gpu.name,
      busy = gpu.busy_percent and gpu.busy_percent .. " %",
      memory = gpu.memory_bytes and ("%s of %s"):format(size(gpu.memory_bytes - gpu.free_bytes),
        size(gpu.memory_bytes)), power = gpu.power_w and ("%.0f W"):format(gpu.power_w),
      temperature = gpu.temperature_c and gpu.temperature_c .. " C", owner = owners(gpu),
      verdict = gpu.hindrance and "not ready: " .. gpu.hindrance or "ready" }
  end
  return #list > 0 and list or { { gpu = "none", verdict = "not ready: "
    .. (row.answer.absent or "no GPU") } }
end

---@param args string[]
function command.run(args)
  return survey.run(command, args, "gpus", judge, { { key = "gpu" }, { key = "name" },
    { key = "busy", right = true }, { key = "memory", right = true },
    { key = "power", right = true }, { key = "temperature", right = true }, { key = "owner" },
    { key = "verdict" } }, lines)
end

return command
