--- Compares the last operations of ranks, which their rings record. It finds the first operation
-- that differs, and the ranks where it differs.
-- @module moonreel.life.rings
local rings = {}

-- what a call must have in common on all ranks of a group; counts that may differ by rank are 0
local function signature(op)
  return ("%s %d %s"):format(op.kind, op.count, op.dtype or "")
end

--- An operation as text: "all_reduce 7 (64 f32)".
---@param op table  as mr.Life returns it
---@return string
function rings.text(op)
  local text = ("%s %d"):format(op.kind, op.seq)
  return op.count > 0 and ("%s (%d %s)"):format(text, op.count, op.dtype) or text
end

-- the calls of all ranks: list of {group, seq, by = {rank = op}}, in the order of their start
local function merged(logs)
  local calls, found = {}, {}
  for rank, log in pairs(logs) do
    for _, op in ipairs(log) do
      local key = op.group << 32 | op.seq
      local call = found[key]
      if not call then
        call = { group = op.group, seq = op.seq, began_s = op.began_s, by = {} }
        found[key], calls[#calls + 1] = call, call
      end
      call.by[rank], call.began_s = op, math.min(call.began_s, op.began_s)
    end
  end
  table.sort(calls, function(a, b) return a.began_s < b.began_s end)
  return calls
end

-- the members of a group: all ranks that ever made a call in it
local function members(logs)
  local groups = {}
  for rank, log in pairs(logs) do
    for _, op in ipairs(log) do
      groups[op.group] = groups[op.group] or {}
      groups[op.group][rank] = true
    end
  end
  return groups
end

-- the ranks of `call` that differ from the majority: {rank = true}, and the majority's signature
local function odd_ones(call)
  local votes, most = {}, nil
  for _, op in pairs(call.by) do
    local s = signature(op)
    votes[s] = (votes[s] or 0) + 1
  end
  for s, n in pairs(votes) do
    if not most or n > votes[most] or n == votes[most] and s < most then
      most = s
    end
  end
  local odd = {}
  for rank, op in pairs(call.by) do
    odd[rank] = signature(op) ~= most or nil
  end
  return odd, most
end

-- the smallest rank of a set
local function first_of(set)
  local first
  for rank in pairs(set) do
    first = first and math.min(first, rank) or rank
  end
  return first
end

-- the newest operation that a rank has started
local function newest(log)
  return log[#log]
end

--- Finds the first call that ranks did not make alike: a rank made another call instead, or has not
-- reached this call while others wait in it.
---@param logs table  rank -> operations, oldest first (mr.Life:ops)
---@return table|nil  {rank, op = its last or different call, expected = the call of the others,
---   late: it has not reached the call}
function rings.first_difference(logs)
  local groups = members(logs)
  for _, call in ipairs(merged(logs)) do
    local odd, usual = odd_ones(call)
    local rank, expected = first_of(odd), nil
    for _, op in pairs(call.by) do
      expected = signature(op) == usual and op or expected
    end
    if rank then
      return { rank = rank, op = call.by[rank], expected = expected }
    end
    -- a ring keeps only the newest calls: a call counts as missing only if another rank waits in it
    local waits = false
    for _, op in pairs(call.by) do
      waits = waits or not op.ended_s
    end
    local absent = {}
    for member in pairs(groups[call.group]) do
      absent[member] = not call.by[member] or nil
    end
    rank = waits and first_of(absent)
    if rank then
      return { rank = rank, op = newest(logs[rank]), expected = expected, late = true }
    end
  end
end

--- Describes it: "rank 2 makes barrier 7, where the others make all_reduce 7 (64 f32)".
---@param found table  result of first_difference
---@return string
function rings.describe(found)
  local at = found.op and (found.op.where and " at " .. found.op.where or "") or ""
  if found.late then
    return ("rank %d has not reached %s, in which other ranks wait; its last call was %s%s"):format(
      found.rank, rings.text(found.expected), found.op and rings.text(found.op) or "none", at)
  end
  return ("rank %d makes %s%s, where others make %s"):format(found.rank, rings.text(found.op), at,
    rings.text(found.expected))
end

return rings
