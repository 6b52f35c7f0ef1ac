--- Makes new indexes from old ones. Filter, join, merge, split and similar commands all write in
-- this way. Rows keep their keys and their order. The new index is sealed, has its own fingerprints
-- and records its sources.
-- @module moonreel.data.derive
local base = require "moonreel.core.base"
local core = require "moonreel.core.index"
local examine = require "moonreel.data.examine"
local json = require "moonreel.core.json"
local options = require "moonreel.text.options"

local derive = {}

local TICK = 1000
-- parts take blocks of this many rows in turn, like the parts of an ingest
local PART_ROWS = 64

local read_options = options.declare("data.derive", {
  { "output", "text", "NAME.mrx, replaced only when the new one is sealed; required" },
  { "from", "table", "indexes, whose rows follow one another; required" },
  { "made", "text", "a word for the operation: \"filter\"; required" },
  { "by", "text", "details of the operation, as text" },
  { "columns", "table", "names of columns that changes add" },
  { "kinds", "table", "types of those, by name: \"whole\" or \"real\" (default)" },
  { "look", "table",
    "examine the files first, as options of examine.sweep; choose gets the result" },
  { "choose", "function", "(row, index, i, seen) -> keep? or changes {captions, columns, keys}, or "
    .. "{parts = {{first, frames}, ...}}, a row each; why not; absent: keep every row" },
  { "part", "integer", "only rows of this part, from 1" },
  { "parts", "integer", "number of parts" },
  { "tick", "function", "(done, total), called from time to time" },
})

-- the origin of an index, as its own sources describe it
local function origin_of(index)
  local meta = index.meta
  return { path = meta.path, rows = meta.rows, fp_order = meta.fp_order, fp_set = meta.fp_set,
    sources = json.decode(meta.sources, meta.path) }
end

local function begin(builder, o)
  builder:like(o.from[1].core)
  for _, index in ipairs(o.from) do
    for _, name in ipairs(index.meta.columns) do
      builder:column(name, index.meta.kinds[name])
    end
  end
  for _, name in ipairs(o.columns or {}) do
    builder:column(name, o.kinds and o.kinds[name])
  end
end

-- Writes the result for row i; returns the number of rows written.
local function put(builder, index, i, keep)
  if type(keep) ~= "table" or not keep.parts then
    builder:copy(index.core, i, keep ~= true and keep or nil)
    return 1
  end
  for _, part in ipairs(keep.parts) do
    builder:copy(index.core, i, { part = part })
  end
  return #keep.parts
end

local function total_rows(indexes)
  local total = 0
  for _, index in ipairs(indexes) do
    total = total + #index
  end
  return total
end

-- does row i, from 1, belong to another part?
local function is_elsewhere(i, part, parts)
  return parts ~= nil and (i - 1) // PART_ROWS % parts ~= part - 1
end

--- The rows of one part, or all.
---@param index moonreel.Index
---@param parts integer|nil  nil: all rows are one part
---@param parts integer|nil  nil: there is one
---@return integer[]
function derive.rows(index, part, parts)
  local rows = {}
  for i = 1, #index do
    if not is_elsewhere(i, part, parts) then
      rows[#rows + 1] = i
    end
  end
  return rows
end

-- a function that returns the examination of the next row
local function looker(o, index)
  return o.look and examine.sweep(index, derive.rows(index, o.part, o.parts), o.look, o.tick)
    or function() end
end

--- Refuses indexes that are not all parts of one whole, each once.
---@param indexes moonreel.Index[]
function derive.check_parts(indexes)
  local has, first = {}, nil
  for _, index in ipairs(indexes) do
    local made = json.decode(index.meta.sources, index.meta.path)[1]
    local function refuse(form, ...)
      base.raise("MR_E_DATA", ("%s: " .. form):format(index.meta.path, ...))
    end
    if not made.parts then
      refuse("was not made with --part, so it is a whole index; try: merge without --parts")
    end
    -- the values that parts have in common: an input, or an index and the operation
    local from = made.from and made.from[1].fp_order
    local whole = table.concat({ made.made or "ingest", tostring(made.by or made.source),
      from or made.path, made.root or "", tostring(made.all_rows or ""), made.parts }, "\n")
    first = first or { whole = whole, path = index.meta.path, parts = made.parts }
    if whole ~= first.whole then
      refuse("was made from another input than %s, so the two are not parts of one index",
        first.path)
    elseif has[made.part] then
      refuse("is part %d, but so is %s", made.part, has[made.part])
    end
    has[made.part] = index.meta.path
  end
  local missing = {}
  for i = 1, first.parts do
    missing[#missing + 1] = not has[i] and tostring(i) or nil
  end
  if #missing > 0 then
    base.raise("MR_E_DATA", ("of %d parts these are missing: %s; try: merge with them, or "
      .. "without --parts"):format(first.parts, table.concat(missing, ", ")))
  end
end

--- Writes a new index.
---@param given table  declared above; help(data.derive) lists it
---@return table report  {index, rows_in, rows_out, left_out = {why = rows}, fp_order, fp_set}.
---   Raises MR_E_DATA if no row remains, or two rows are the same sample; then no index is written
function derive.run(given)
  local o = read_options(given)
  local builder <close> = core.builder(o.output)
  local report = { index = o.output, rows_in = 0, rows_out = 0, left_out = {} }
  local total, from = total_rows(o.from), json.array()
  begin(builder, o)
  for n, index in ipairs(o.from) do
    from[n] = origin_of(index)
    local look = looker(o, index)
    for i = 1, #index do
      local keep, why = true, nil
      if is_elsewhere(i, o.part, o.parts) then
        keep, why = false, "in another part"
      elseif o.choose then
        keep, why = o.choose(index:row(i), index, i, look())
      end
      if keep then
        report.rows_out = report.rows_out + put(builder, index, i, keep)
      else
        why = why or "left out"
        report.left_out[why] = (report.left_out[why] or 0) + 1
      end
      report.rows_in = report.rows_in + 1
      if o.tick and not o.look and report.rows_in % TICK == 0 then
        o.tick(report.rows_in, total)
      end
    end
  end
  if report.rows_out == 0 then
    base.raise("MR_E_DATA", ("%s: no row remains of %d; nothing was written; try: moonreel data "
      .. "stats, which prints the ranges of all columns"):format(o.output, report.rows_in))
  end
  builder:meta("sources", json.encode(json.array { { made = o.made, by = o.by,
    part = o.part, parts = o.parts, rows_in = report.rows_in, rows_out = report.rows_out,
    from = from } }))
  builder:finish()
  local made <close> = core.open(o.output)
  local facts = made:facts()
  report.fp_order, report.fp_set = facts.fp_order, facts.fp_set
  return report
end

return derive
