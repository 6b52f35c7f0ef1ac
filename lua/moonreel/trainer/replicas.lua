--- Compares state that several ranks store: otherwise a flipped bit in memory or on a link of one
-- rank would go unnoticed into training. Ref: reference reliability, P9.
-- @module moonreel.trainer.replicas
local replicas = {}

--- Number of updates between two comparisons.
replicas.every = 100

-- The ranges of a run's state that several ranks store, as {region, start, stop, owner, sliced}:
-- chunks of buckets, and everything that does not train, which has no owner. sliced: only ranks
-- with the same slices of layers store the range.
local function ranges(r)
  local list, all, split = {}, r.pipe.params:elements(), r.pipe.params:split()
  local sliced = r.split.ranks > 1
  for _, row in ipairs(r.exec:regions()) do
    local whole = row.start == 0 and row.stop == all and row.name ~= "grad" and not row.shared
    if row.role == "frozen" and row.bytes > 0 then
      list[#list + 1] = { region = row.name, per = 1, start = 0, stop = row.stop, sliced = sliced }
    elseif whole then
      for i, bucket in ipairs(r.ranks.buckets) do
        for chunk = 0, r.ranks.size - 1 do
          local start = bucket.start + chunk * bucket.chunk
          list[#list + 1] = { region = row.name, bucket = i, per = row.per, start = start,
            stop = start + bucket.chunk, owner = r.ranks:owner_of(chunk) * r.split.ranks,
            sliced = sliced and start >= split }
        end
      end
    end
  end
  return list
end

-- The hash that most ranks have. In a tie it is that of the owner or of the first rank. Also
-- whether this hash is known to be right.
local function right(hashes, owner)
  local count, first = {}, hashes[(owner or 0) + 1]
  for _, hash in ipairs(hashes) do
    count[hash] = (count[hash] or 0) + 1
  end
  local best = first
  for _, hash in ipairs(hashes) do
    best = count[hash] > count[best] and hash or best
  end
  return best, owner ~= nil or best ~= first or 2 * count[best] > #hashes
end

-- the parameters in a range
local function names_in(r, range)
  local first, last
  for _, p in ipairs(r.pipe.params:list()) do
    if p.frozen == (range.bucket == nil) and p.offset < range.stop
        and range.start < p.offset + p.count then
      first, last = first or p.name, p.name
    end
  end
  return first == last and (first or "a gap") or first .. " to " .. last
end

--- Finds ranks whose state differs: {rank, region, bucket, names, sure}, with the first place of
-- each such rank. Every rank gets the same list.
---@param r mr.Run  of several ranks, between two steps
---@return table[]
function replicas.differences(r)
  local list, own = ranges(r), {}
  for i, range in ipairs(list) do
    own[i] = string.pack("<i8", r.exec:hash(range.region, range.start // range.per,
      (range.stop - range.start) // range.per))
  end
  local texts, found, seen = r.team:texts(table.concat(own)), {}, {}
  -- compares every `step`-th rank, from the rank `first` on
  local function compare(i, range, first, step)
    local hashes = {}
    for rank = first, #texts, step do
      hashes[#hashes + 1] = texts[rank]:sub(8 * i - 7, 8 * i)
    end
    local wanted, sure = right(hashes, range.owner and range.owner // step)
    for k, hash in ipairs(hashes) do
      local rank = first + (k - 1) * step
      if hash ~= wanted and not seen[rank] then
        seen[rank] = true
        found[#found + 1] = { rank = rank - 1, region = range.region, bucket = range.bucket,
          sure = sure, names = names_in(r, range) }
      end
    end
  end
  for i, range in ipairs(list) do
    local groups = range.sliced and r.split.ranks or 1
    for first = 1, groups do
      compare(i, range, first, groups)
    end
  end
  return found
end

--- Compares, if it is time. A rank that differs ends the run, and nothing is saved.
---@param r mr.Run
function replicas.check(r)
  if r.team.size == 1 or r.updates == 0 or r.updates % replicas.every ~= 0
      or r.compared == r.updates then
    return
  end
  local lines = {}
  for i, one in ipairs(replicas.differences(r)) do
    lines[i] = ("rank %d has other bits of '%s'%s than %s: %s"):format(one.rank, one.region,
      one.bucket and " in bucket " .. one.bucket or "", one.sure and "the others"
      or "rank 0, and one of the two is right", one.names)
  end
  if #lines == 0 then
    r.compared = r.updates
    return
  end
  r.journal:append { kind = "replicas", step = r.step, text = table.concat(lines, "; "),
    compared = r.compared or 0, wall = require("moonreel.core.base").wall_s() }
  r.team:raise("MR_E_NODE", ("step %d: %s\n  they were last equal after update %d; try: load a "
    .. "checkpoint from that time or earlier, and test that rank's host"):format(r.step,
    table.concat(lines, "\n  "), r.compared or 0))
end

return replicas
