--- Copies the contents of a checkpoint from and to an executor. Weights have the released names.
-- Other values of an optimizer have the prefix of their region and that name
-- (moonreel.optim.regions; reference reliability, section 3.1).
-- @module moonreel.trainer.state
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local coded = require "moonreel.ckpt.coded"
local cut = require "moonreel.ckpt.cut"
local fill = require "moonreel.ckpt.fill"
local regions = require "moonreel.optim.regions"
local spikes = require "moonreel.trainer.spikes"

local state = {}

-- bytes that are read at once, from a checkpoint or a device
local BATCH_BYTES <const> = 64 << 20

-- elements of the frozen range that a checkpoint contains; tensors with files of their own come
-- last
local function frozen_kept(params)
  for _, p in ipairs(params:list()) do
    if p.outside then
      return p.offset
    end
  end
  return params:elements(true)
end

-- the largest number of moments with one common scale; nil: moments have 32 bits
local function block_of(settings)
  local most
  for _, moment in ipairs(settings.optim.moment_bits == 8 and regions.moments or {}) do
    most = math.max(most or 0, regions.coded[moment.name].how.block)
  end
  return most
end

-- the first parameter of which n ranks would have parts of blocks, with the number of elements in
-- its rows
local function torn(params, n, block)
  for _, p in ipairs(n > 1 and params:list() or {}) do
    local last = #p.shape
    for _, part in ipairs(p.cut and not p.frozen and p.cut.parts or {}) do
      local wide = p.cut.axis == last - 1 and part // n or p.shape[last]
      if wide % block ~= 0 then
        return p, wide
      end
    end
  end
end

--- Refuses ranks that would have parts of a block with a common scale. Blocks are those of whole
-- parameters, so that moments of 8 bits have the same values for any number of ranks.
---@param settings table
---@param params mr.Params
---@param n integer  ranks that share each layer, for which params are sliced
function state.check_scales(settings, params, n)
  local block = block_of(settings)
  local p, wide
  if block then
    p, wide = torn(params, n, block)
  end
  if p then
    local fewer = n - 1
    while n % fewer ~= 0 or torn(params, fewer, block) do
      fewer = fewer - 1
    end
    blame.raise(settings, "optim.moment_bits", "MR_E_RECIPE", "optim.moment_bits = 8: %d numbers "
      .. "of a row have one scale, and with plugin_config.tp_size = %d a rank has rows of %d of "
      .. "'%s'; try: plugin_config.tp_size = %d, or optim.moment_bits = 32", block, n, wide, p.name,
      fewer)
  end
end

-- the regions that a checkpoint contains, up to the length that it contains
local function saved(run, params)
  local list, kept = {}, frozen_kept(params)
  for _, r in ipairs(run:regions()) do
    if r.role == "frozen" and kept < r.stop then
      r.bytes = r.bytes // (r.stop - r.start) * (kept - r.start)
      r.stop = kept
    end
    if r.prefix and not r.shared and r.bytes > 0 then
      list[#list + 1] = r
    end
  end
  return list
end

--- The part of a checkpoint that one of several ranks writes: of weights that train the part that
-- it owns, of other weights an equal part.
---@param params mr.Params
---@param team mr.Ranks
---@return table share   for state.with_rows
function state.share(params, team)
  local frozen, rank, ranks = frozen_kept(params), team.rank, team.size
  return {[false] = team:owned(), slices = not team.counts,
    [true] = {{start = frozen * rank // ranks, stop = frozen * (rank + 1) // ranks}}}
end

-- the elements of a region that this rank writes
local function written(r, share)
  local list = {}
  for _, mine in ipairs(share and share[r.role == "frozen"]
      or {{start = 0, stop = math.maxinteger}}) do
    if mine.start < r.stop and r.start < mine.stop then
      list[#list + 1] = mine
    end
  end
  return list
end

-- Calls f with each parameter and the part of it, in a region, that this rank writes: {shape, from,
-- to, at, pieces}. If several ranks have a parameter that is not sliced, only one writes it.
local function each_written(r, params, share, f)
  local mines = written(r, share)
  for _, p in ipairs(params:list()) do
    for _, mine in ipairs((p.cut or not (share and share.slices)) and mines or {}) do
      local has = fill.part(r, p, mine)
      if has then
        f(p, has)
      end
    end
  end
end

-- n a / b, rounded down; n a itself overflows for a model with 10^9 parameters
local function scaled(n, a, b)
  local x, y = a, b
  while y > 0 do
    x, y = y, x % y
  end
  return n * (a // x) // (b // x)
end

--- Bytes of a checkpoint that this rank writes.
---@param run mr.Exec
---@param params mr.Params
---@param share table|nil  from state.share
---@return integer
function state.saved_bytes(run, params, share)
  local bytes = 0
  for _, r in ipairs(saved(run, params)) do
    if share and share.slices then
      each_written(r, params, share, function(_, has)
        bytes = bytes + scaled(has.to - has.from, r.bytes, (r.stop - r.start) // r.per)
      end)
    end
    for _, mine in ipairs(share and share.slices and {} or written(r, share)) do
      local n = math.min(mine.stop, r.stop) - math.max(mine.start, r.start)
      bytes = bytes + scaled(n, r.bytes, r.stop - r.start)
    end
  end
  return bytes
end

--- Rows for the saver: one for each tensor, or part of one, in a region. A row points to the data,
-- or names their place if the device stores them elsewhere.
---@param run mr.Exec
---@param list table[]     from run:regions(); the tensors of a region without a prefix begin with
---   its name
---@param params mr.Params
---@param share table|nil  from state.share, if ranks write a checkpoint together
---@return table[] rows
function state.rows_of(run, list, params, share)
  local rows = {}
  for _, r in ipairs(list) do
    local n = (r.stop - r.start) // r.per
    local bytes = r.bytes // n -- of an element
    local host, size
    if not r.transient then
      host, size = run:host(r.name)
    end
    local prefix = r.prefix or regions.kind(r.name) .. "."
    local all = host and T.wrap(host, size, r.dtype, {n}, run)
    each_written(r, params, share, function(p, has)
      local at = has.at
      for _, piece in ipairs(has.pieces) do
        local row = {name = prefix .. p.name, dtype = r.dtype, shape = has.shape,
          range = piece.range, box = piece.box, bytes = piece.n * bytes, n = piece.n}
        if all then
          row.ptr = all:slice(0, at, at + piece.n):ptr()
        else
          row.exec, row.region, row.at = run, r.name, at * bytes
        end
        rows[#rows + 1], at = row, at + piece.n
      end
    end)
  end
  return rows
end

--- Rows for all regions that a checkpoint contains.
---@param run mr.Exec
---@param params mr.Params
---@param share table|nil  from state.share
---@return table[] rows
function state.rows(run, params, share)
  return state.rows_of(run, saved(run, params), params, share)
end

--- The number of non-finite values in a row.
---@param row table  from state.rows
---@return integer
function state.nonfinite(row)
  if row.ptr then
    return T.nonfinite(row.ptr, row.bytes, row.dtype)
  end
  local found, size = 0, row.bytes // row.n
  local most = BATCH_BYTES // size
  for from = 0, row.n - 1, most do
    local piece <close> = row.exec:read(row.region, row.dtype, row.at // size + from,
      {math.min(most, row.n - from)})
    local ptr, bytes = piece:ptr()
    found = found + T.nonfinite(ptr, bytes, row.dtype)
  end
  return found
end

local function same_shape(a, b)
  return table.concat(a, ",") == table.concat(b, ",")
end

local second = regions.moments[2]
local second_rows = {[second.prefix] = true, [regions.coded[second.name].codes.prefix] = true,
  [regions.coded[second.name].scale.prefix] = true}

-- The rows that a run needs from a checkpoint: {region, part, name, info, bytes}, in the order of
-- the file; rows {region, part} of second moments that it lacks; and {region, part, param} of
-- moments that it has with other bits.
local function wanted(run, params, source)
  local place, rows, zeros, others = {}, {}, {}, {}
  for i, name in ipairs(source:names()) do
    place[name] = i
  end
  local function want(region, has, p)
    local shape, name = has.shape, region.prefix .. p.name
    local info = source:info(name)
    if coded.other(source, region, p.name) then
      others[#others + 1] = {region = region, part = has, param = p}
      return
    elseif not info and second_rows[region.prefix] then
      zeros[#zeros + 1] = {region = region, part = has}
      return
    elseif not info then
      base.raise("MR_E_CKPT",
        ("%s: there is no tensor '%s', which the model of this recipe needs; try: --ckpt-path "
          .. "for weights alone"):format(source.path, name))
    end
    -- scales of a matrix have one axis or two
    if not same_shape(info.shape, shape) and (region.per == 1
        or T.count(info.shape) ~= T.count(shape)) then
      base.raise("MR_E_CKPT",
        ("%s: '%s' is [%s], but the model of this recipe needs [%s]"):format(source.path, name,
        table.concat(info.shape, ", "), table.concat(shape, ", ")))
    end
    rows[#rows + 1] = {region = region, part = has, name = name, info = info,
      bytes = info.bytes // T.count(shape) * (has.to - has.from)}
  end
  local regions_of = saved(run, params)
  for _, p in ipairs(params:list()) do
    for _, r in ipairs(regions_of) do
      local has = fill.part(r, p)
      if has then
        want(r, has, p)
      end
    end
  end
  table.sort(rows, function(a, b) return place[a.name] < place[b.name] end)
  return rows, zeros, others
end

--- The parameters whose second moment did not begin with the first update: matrices that Muon
-- updated until a checkpoint, and AdamW updates from there on. Their bias correction counts from
-- there.
---@param params mr.Params
---@param source mr.Checkpoint  of a run
---@return table<string, integer> since  updates made before, by name
---@return table counts  fresh: those that begin with this checkpoint; left: matrices whose second
---   moment it has, but Muon does not use
function state.second_moments(params, source)
  local m, since, counts = source.manifest.run_state, {}, {fresh = 0, left = 0}
  for _, p in ipairs(params:list()) do
    local has = coded.has(source, second, p.name)
    if p.block > 0 then
      counts.left = counts.left + (has and 1 or 0)
    elseif not (p.frozen or p.buffer or has) then
      since[p.name], counts.fresh = m.updates, counts.fresh + 1
    else
      since[p.name] = m.second_moment_since and m.second_moment_since[p.name]
    end
  end
  return since, counts
end

--- The counters of the loop and its statistics, for a manifest.
---@param r mr.Run
---@return table run_state
function state.counts(r)
  return {step = r.step, updates = r.updates, step_ranks = r.step_ranks, bad = r.bad,
    rolled_back_at = r.rolled_back_at, spikes = r.spikes:state(),
    recompute = r.programs:record(), bucket_size = r.bucket_size
      and {elements = r.bucket_size.elements, ranks = r.bucket_size.ranks},
    second_moment_since = r.since and next(r.since) and r.since or nil}
end

--- Restores them.
---@param r mr.Run
---@param was table  run_state of a manifest, or only its step and updates
function state.set_counts(r, was)
  r.step, r.updates, r.bad = was.step, was.updates, was.bad or 0
  r.rolled_back_at, r.spikes = was.rolled_back_at, spikes.new(r.settings.spike, was.spikes)
  r.recent = {}
end

-- adds what is read of a tensor to the slices of a row
local function add_slices(slices, row)
  local at = 0
  local pieces = row.part.pieces
  if #row.info.shape < #row.part.shape then
    pieces = cut.ranges(pieces, row.part.shape)
  end
  for _, piece in ipairs(pieces) do
    local ptr, bytes = row.tensor:slice(0, at, at + piece.n):ptr()
    slices[#slices + 1] = {name = row.name, range = piece.range, box = piece.box, ptr = ptr,
      bytes = bytes}
    at = at + piece.n
  end
end

--- Loads a whole checkpoint. Everything must be there with the right shape, except second moments,
-- which begin at zero if it lacks them (state.second_moments). Moments with other bits are
-- converted to those of the run. The file is read in its own order, so that no block of it is read
-- again for each of its small tensors.
---@param source mr.Checkpoint
function state.load(run, params, source)
  local rows, zeros, others = wanted(run, params, source)
  for _, row in ipairs(zeros) do
    fill.write(run, row.region, row.part, T.new(row.region.dtype, {row.part.to - row.part.from}))
  end
  for _, row in ipairs(others) do
    local made <close> = coded.made(source, row.region, row.param, row.part)
    fill.write(run, row.region, row.part, made)
  end
  local first = 1
  while first <= #rows do
    local slices, bytes, last = {}, 0, first - 1
    while last < #rows and (last < first or bytes + rows[last + 1].bytes <= BATCH_BYTES) do
      last = last + 1
      local row = rows[last]
      row.tensor = T.new(row.info.dtype, {row.part.to - row.part.from})
      add_slices(slices, row)
      bytes = bytes + row.bytes
    end
    source:read_slices(slices)
    for i = first, last do
      local tensor <close> = rows[i].tensor
      fill.write(run, rows[i].region, rows[i].part, tensor)
    end
    first = last + 1
  end
end

return state
