--- moonreel health: links of hosts with their traffic and losses, GPUs and what slows them down.
-- @module moonreel.cli.health
local survey = require "moonreel.cluster.survey"

local command = {
  name = "health",
  summary = "show links and GPUs of hosts with their errors, and what slows them down",
  usage = "health [--hostfile FILE] [--json]",
  most = 0,
  options = survey.options,
  details = "Counters start with the host; values that a driver does not report are absent. The "
    .. "score of a host is\nthe share of its links and GPUs without errors and slowdown. Hosts of "
    .. "a file are measured against each other:\nsend and receive rates, and the round trip of a "
    .. "message. Exit 0 only if every host\nhas answered.",
}

-- the fault of a link or a GPU; nil if it has none
local function link_fault(link)
  local errors = (link.receive_errors or 0) + (link.send_errors or 0) + (link.symbol_errors or 0)
  return errors > 0 and ("%d errors"):format(errors)
    or (link.downed or 0) > 0 and ("went down %d times"):format(link.downed) or nil
end
local function gpu_fault(gpu)
  return gpu.lost or (gpu.memory_errors or 0) > 0 and ("%d memory errors"):format(gpu.memory_errors)
    or #(gpu.slow or {}) > 0 and "slowed down: " .. table.concat(gpu.slow, ", ") or nil
end

local function judge(found)
  local good, all = 0, 0
  for _, link in ipairs(found.links) do
    link.fault = link_fault(link)
    if link.state ~= "down" then
      good, all = good + (link.fault and 0 or 1), all + 1
    end
  end
  for _, gpu in ipairs(found.gpus) do
    gpu.fault = gpu_fault(gpu)
    good, all = good + (gpu.fault and 0 or 1), all + 1
  end
  if found.between then
    good, all = good + (found.between.fault and 0 or 1), all + 1
  end
  found.score = all > 0 and good / all or nil
end

local function lines(row)
  local list, size = {}, require("moonreel.trainer.progress").bytes
  for _, link in ipairs(row.answer.links) do
    list[#list + 1] = { what = link.name, state = link.state, speed = link.speed_mbit
      and link.speed_mbit .. " Mbit/s", carried = link.received_bytes and ("%s in, %s out"):format(
        size(link.received_bytes), size(link.sent_bytes or 0)), fault = link.fault }
  end
  for _, gpu in ipairs(row.answer.gpus) do
    list[#list + 1] = { what = "GPU " .. gpu.number, state = gpu.lost and "lost" or "up",
      carried = gpu.power_w and ("%.0f W"):format(gpu.power_w), fault = gpu.fault }
  end
  local between = row.answer.between
  if between then
    local text = require("moonreel.comm.links").text
    list[#list + 1] = { what = "to other hosts", state = between.sends and "up" or "down",
      speed = between.way_s and ("%.2f ms"):format(between.way_s * 1e3),
      carried = between.sends and ("%s in, %s out"):format(text(between.receives),
        text(between.sends)), fault = between.fault }
  end
  list[#list + 1] = { what = "score", state = row.answer.score
    and ("%.0f %%"):format(row.answer.score * 100) }
  return list
end

-- adds the measured rates between the hosts of a file to their answers
local function add_links(rows, opts)
  if not opts.hostfile or #rows < 2 then
    return
  end
  local found, problem = require("moonreel.cluster.links").measure(opts)
  local measured = found and require("moonreel.comm.links").judge(found) or {}
  for i, row in ipairs(rows) do
    if row.answer then
      row.answer.between = measured[i] or { fault = problem }
      row.answer.between.host = nil
    end
  end
end

---@param args string[]
function command.run(args)
  return survey.run(command, args, "health", judge, { { key = "what" }, { key = "state" },
    { key = "speed", right = true }, { key = "carried" }, { key = "fault" } }, lines, add_links)
end

return command
