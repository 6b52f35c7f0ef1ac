--- Waiting time of ranks in a step, for their data and for each other, and that of each host.
-- @module moonreel.trainer.waits
local json = require "moonreel.core.json"

local waits = {}

--- Adds the waiting times of ranks after a communication of all ranks.
---@param before table[]  {data_s, others_s} of each rank in this step so far; changed
---@param data_s number[]  how long each rank has waited for its data in this step
---@param busy_s number[]  seconds since each rank left the last such communication, or began the
---   step: the first ranks wait for the last one
function waits.count(before, data_s, busy_s)
  local longest = math.max(table.unpack(busy_s))
  for rank, s in ipairs(busy_s) do
    local was = before[rank]
    before[rank] = { data_s = data_s[rank], others_s = (was and was.others_s or 0) + longest - s }
  end
end

--- The longest wait for data of a rank.
---@param list table[]  from waits.count
---@return number
function waits.longest(list)
  local longest = 0
  for _, one in ipairs(list) do
    longest = math.max(longest, one.data_s)
  end
  return longest
end

--- The hosts of the ranks, in the order of their first ranks.
---@param names string[]  the host of each rank
---@return table           {name, ranks} of each host; `of`: the number of the host of each rank
function waits.hosts(names)
  local hosts, numbers = { of = {} }, {}
  for rank, name in ipairs(names) do
    if not numbers[name] then
      hosts[#hosts + 1] = { name = name, ranks = 0 }
      numbers[name] = #hosts
    end
    local host = hosts[numbers[name]]
    host.ranks, hosts.of[rank] = host.ranks + 1, numbers[name]
  end
  return hosts
end

-- digits beyond these are not worth their bytes in each line of a step
local function rounded(seconds) return tonumber(("%.4f"):format(seconds)) end

--- The mean waiting times of the ranks of each host, for the journal.
---@param hosts table     from waits.hosts
---@param list table[]    from waits.count
---@return table          data_s, others_s: lists by host
function waits.by_host(hosts, list)
  local sums = { data_s = json.array(), others_s = json.array() }
  for what, of_hosts in pairs(sums) do
    for i, host in ipairs(hosts) do
      local sum = 0
      for rank, one in ipairs(list) do
        sum = sum + (hosts.of[rank] == i and one[what] or 0)
      end
      of_hosts[i] = rounded(sum / host.ranks)
    end
  end
  return sums
end

return waits
