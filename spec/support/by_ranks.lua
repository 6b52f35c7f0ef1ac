--- Saves a checkpoint of a run once more, as several ranks save it: each has a range or a box of
-- each tensor, in a file of its own.
local ckpt = require "moonreel.ckpt"
local run = require "moonreel.run"

local by_ranks = {}

-- fields that the saver writes itself
local own = { schema = true, kind = true, run = true, fence = true, step = true, written = true,
  world = true }

-- the part of a rank: of every other tensor with several columns a box of these, else a range
local function cut(t, number, rank, ranks)
  local size, columns = t.bytes, t.shape[#t.shape] or 0
  local n = size == 0 and 0 or 1
  for _, length in ipairs(t.shape) do
    n = n * length
  end
  size = n > 0 and size // n or 0
  local function at(of, r) return of * r * r // (ranks * ranks) end  -- parts of all sizes
  if number % 2 == 1 or #t.shape < 2 or columns < ranks * ranks then
    local from, to = at(n, rank), at(n, rank + 1)
    return { range = { from, to } }, t.data:sub(from * size + 1, to * size), to - from
  end
  local from, to, box, rows = at(columns, rank), at(columns, rank + 1), {}, {}
  for d, length in ipairs(t.shape) do
    box[d] = { 0, length }
  end
  box[#box] = { from, to }
  for i = 1, n // columns do
    local row = (i - 1) * columns
    rows[i] = t.data:sub((row + from) * size + 1, (row + to) * size)
  end
  return { box = box }, table.concat(rows), to - from
end

local function shares(tensors, rank, ranks)
  local rows = {}
  for number, t in ipairs(tensors) do
    local row, data, n = cut(t, number, rank, ranks)
    if n > 0 or (#data == 0 and t.bytes == 0 and rank == 0) then
      row.name, row.dtype, row.shape, row.ptr = t.name, t.dtype, t.shape, data
      rows[#rows + 1] = row
    end
  end
  return rows
end

--- Writes step `step` of a run again, by `ranks` ranks.
---@param run_dir string
---@param step integer
---@param ranks integer
---@return string  the checkpoint's directory
function by_ranks.rewrite(run_dir, step, ranks)
  local tensors, meta, path = {}, {}, ckpt.dir(run_dir, step)
  do
    local c <close> = ckpt.open(path)
    for i, name in ipairs(c:names()) do
      tensors[i] = c:info(name)
      tensors[i].data = c:read(name)
    end
    for key, value in pairs(c.manifest) do
      meta[key] = not own[key] and value or nil
    end
  end
  local lock <close>, savers = run.lock(run_dir), {}
  for rank = 0, ranks - 1 do
    savers[rank] = ckpt.saver(run_dir, { lock = rank == 0 and lock or nil, rank = rank,
      ranks = ranks, fence = lock:fence(), keep = -1 })
  end
  for rank = 0, ranks - 1 do
    savers[rank]:save { step = step, tensors = shares(tensors, rank, ranks),
      meta = rank == 0 and meta or nil, wait = true }
  end
  for rank = 0, ranks - 1 do
    savers[rank]:wait(60)
    savers[rank]:close()
  end
  return path
end

return by_ranks
