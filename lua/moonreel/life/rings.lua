--- Compares the last operations between ranks, from their rings: finds the first operation that
-- differs, and the ranks that differ there.
-- @module moonreel.life.rings
local rings = {}

-- what all ranks of a group must have alike of a call; counts that differ by rank are given as 0
local function signature(op)
  return ("%s %d %s"):format(op.kind, op.count, op.dtype or "")
end

--- An operation as people read it: "all_reduce 7 (64 f32)".
---@param op table  as of mr.Life
---@return string
function rings.text(op)
  local text = ("%s %d"):format(op.kind, op.seq)
  return op.count > 0 and ("%s (%d %s)"):format(text, op.count, op.dtype) or text
end

-- calls of all ranks: list of {group, seq, by = {rank = op}}, in the order in which they began
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

-- ranks that take part in a group: who ever made a call of it
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

-- the ranks of `call` that are not like most of them: {rank = true}, and the signature of most
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

-- the newest operation that a rank has begun
local function newest(log)
  return log[#log]
end

--- The first call that ranks did not make alike: one made another one in its place, or has not
-- come to it though others wait there.
---@param logs table  rank -> operations, oldest first (mr.Life:ops)
---@return table|nil  {rank, op = what it did last or instead, expected = what the others did,
--   late: it has not come to it}
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
    -- a ring forgets: only what somebody waits in counts as missing elsewhere
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

--- The same in words: "rank 2 makes barrier 7, where the others make all_reduce 7 (64 f32)".
---@param found table  as of first_difference
---@return string
function rings.story(found)
  local at = found.op and (found.op.where and " at " .. found.op.where or "") or ""
  if found.late then
    return ("rank %d has not reached %s, in which other ranks wait; its last call was %s%s"):format(
      found.rank, rings.text(found.expected), found.op and rings.text(found.op) or "none", at)
  end
  return ("rank %d makes %s%s, where others make %s"):format(found.rank, rings.text(found.op), at,
    rings.text(found.expected))
end

return rings
