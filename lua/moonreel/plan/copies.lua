--- Times of copies of block inputs to host memory and back. Simulates the steps of a program,
-- started as early as its schedule permits on a machine, and finds steps for which a copy is late.
-- Ref: reference parallelism 13.
-- @module moonreel.plan.copies
local listing = require "moonreel.text.listing"
local shares = require "moonreel.plan.shares"
local work = require "moonreel.plan.work"

local copies = {}

local AWAY <const> = { d2h = true, h2d = true }

local function is_copy(row) return row.op == "copy" and AWAY[row.queue] ~= nil end

-- seconds of a step: of a copy by the link to the host, of an exchange by the link between ranks
local function seconds_of(m, row, dtype)
  if is_copy(row) then
    return shares.bytes_of(row) / m.host.pcie
  elseif shares.exchanges(row) then
    return shares.sent { row } / m.node.link
  end
  return (work.seconds(m, row, dtype))
end

-- start and end of each step; for steps of other queues how long they wait for a copy
local function played(m, rows, dtype)
  local idle, times = {}, {}
  for i, row in ipairs(rows) do
    local begins, late = idle[row.queue] or 0, nil
    for _, k in ipairs(row.after) do
      begins = not is_copy(rows[k]) and math.max(begins, times[k].ends) or begins
    end
    local wait = 0
    for _, k in ipairs(row.after) do
      local more = is_copy(rows[k]) and times[k].ends - begins or 0
      if more > wait then
        wait, late = more, k
      end
    end
    times[i] = { begins = begins + wait, wait = wait, late = late }
    times[i].ends = times[i].begins + seconds_of(m, row, dtype)
    idle[row.queue] = times[i].ends
  end
  return times
end

-- the block to whose input a copy belongs: for copies back, the last of this shape without one
local function blocks_of(rows)
  local out, blocks = {}, {}
  for i, row in ipairs(rows) do
    if is_copy(row) and row.queue == "d2h" then
      out[row.shapes] = out[row.shapes] or {}
      table.insert(out[row.shapes], i)
    elseif is_copy(row) then
      blocks[i] = row.block
      blocks[table.remove(out[row.shapes])] = row.block
    end
  end
  return blocks
end

-- rows of the device's own queue, in the order in which they start
local function computed(rows)
  local list = {}
  for i, row in ipairs(rows) do
    list[#list + 1] = row.queue == "compute" and i or nil
  end
  return list
end

-- the block that is computed at a time: that of the last row that has started by then
local function at_work(rows, times, own, at)
  local low, high = 0, #own
  while low < high do
    local middle = (low + high + 1) // 2
    if times[own[middle]].begins <= at then
      low = middle
    else
      high = middle - 1
    end
  end
  local i = own[low]
  local block = i and times[i].ends > at and rows[i].block or ""
  return block ~= "" and block or "operations outside blocks"
end

--- The copies of a micro-step.
---@param m table        machine
---@param rows table[]   from mr.Program times()
---@param dtype string   compute dtype
---@return table[] list  {begins, ends (seconds from the start of the step), stream: d2h or h2d,
---   bytes, block: the block of the input, during: the block that is computed when the copy starts,
---   waits: seconds that a step waits for it}
---@return number waits  sum of these
function copies.of(m, rows, dtype)
  local times, blocks, own = played(m, rows, dtype), blocks_of(rows), computed(rows)
  local list, at, sum = {}, {}, 0
  for i, row in ipairs(rows) do
    if is_copy(row) then
      list[#list + 1] = { begins = times[i].begins, ends = times[i].ends, stream = row.queue,
        bytes = shares.bytes_of(row), block = blocks[i],
        during = at_work(rows, times, own, times[i].begins), waits = 0 }
      at[i] = list[#list]
    elseif times[i].late then
      at[times[i].late].waits = at[times[i].late].waits + times[i].wait
      sum = sum + times[i].wait
    end
  end
  return list, sum
end

--- The summary below the list.
---@param list table[]   from copies.of
---@param waits number
---@param most integer|nil  bytes that grad_ckpt_buffer_size allows
---@param seconds fun(s: number): string
---@return string
function copies.summary(list, waits, most, seconds)
  local bytes, late = 0, {}
  for _, row in ipairs(list) do
    bytes = bytes + (row.stream == "d2h" and row.bytes or 0)
    late[#late + 1] = row.waits > 0 and ("%s %s"):format(row.block, seconds(row.waits)) or nil
  end
  return ("%s go to host memory and come back, grad_ckpt_buffer_size is %s; %s"):format(
    listing.size(bytes), listing.size(most), #late == 0 and "no block waits for a copy"
    or ("blocks wait %s for copies: %s"):format(seconds(waits), table.concat(late, ", ")))
end

return copies
