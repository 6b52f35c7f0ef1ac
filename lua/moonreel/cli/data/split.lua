--- moonreel data split: several indexes by the quantiles of a column, smallest values first.
-- @module moonreel.cli.data.split
local base = require "moonreel.core.base"
local derive = require "moonreel.data.derive"
local derived = require "moonreel.cli.derived"
local exact = require "moonreel.text.exact"
local longwork = require "moonreel.cli.longwork"

local part = {
  words = "NAME.mrx --by FIELD --quantiles N -o PREFIX",
  summary = "split by the quantiles of a column: PREFIX-1.mrx has the smallest values",
  output = true,
  options = {
    { "-o, --output PREFIX", "PREFIX-1.mrx to PREFIX-N.mrx are written" },
    { "--by FIELD", "a column of the index, or num_frames, resolution, fps, seconds, bytes, ..." },
    { "--quantiles N", "number of parts of equal size (default: 2)", least = 2 },
    { "--trim-top SHARE", "leave out this share of the largest values (default: 0.0001)" },
  },
}

-- Sorts rows by their values, as {value, i}, and returns rows without a value apart. Rows of equal
-- value keep their order.
local function sorted(index, read, tick)
  local list, without = {}, 0
  for i = 1, #index do
    local value = read(index:row(i))
    if value then
      list[#list + 1] = { value, i }
    else
      without = without + 1
    end
    if i % 1000 == 0 then
      tick(i, #index)
    end
  end
  table.sort(list, function(a, b)
    if a[1] ~= b[1] then
      return a[1] < b[1]
    end
    return a[2] < b[2]
  end)
  return list, without
end

-- Which part gets each row: a list by row; 0: trimmed; nil: the row has no value.
local function deal(list, parts, trim)
  local of, kept = {}, #list - math.floor(#list * trim + 0.5)
  local bounds = {}
  for place, entry in ipairs(list) do
    local p = place <= kept and (place - 1) * parts // kept + 1 or 0
    of[entry[2]] = p
    if p > 0 then
      bounds[p] = bounds[p] or { from = entry[1] }
      bounds[p].to = entry[1]
    end
  end
  return of, bounds
end

function part.run(opts, _, path)
  local trim = tonumber(opts.trim_top or 0.0001)
  if not opts.by or not trim or trim < 0 or trim >= 1 then
    base.raise("MR_E_USAGE", not opts.by and "data split: needs --by FIELD; try: --by fps"
      or ("data split: --trim-top: expected a share from 0 to below 1, got '%s'"):format(
        opts.trim_top))
  end
  local index = derived.open({ path })[1]
  local read = require("moonreel.data.row").reader(opts.by, index.meta.columns, "data split", true)
  local parts, prefix = opts.quantiles or 2, opts.output:gsub("%.mrx/*$", "")
  local reports, code = longwork.run(function(tick)
    local list, without = sorted(index, read, tick)
    local of, bounds = deal(list, parts, trim)
    if #bounds < parts then
      base.raise("MR_E_DATA", ("%s: %d rows have a value of %s; expected at least %d for as many "
        .. "parts; try: fewer parts"):format(path, #list, opts.by, parts))
    end
    local made = {}
    for p = 1, parts do
      made[p] = derive.run { output = ("%s-%d.mrx"):format(prefix, p), from = { index },
        made = "split", by = ("%s, part %d of %d, %s to %s"):format(opts.by, p, parts,
          exact(bounds[p].from), exact(bounds[p].to)),
        choose = function(_, _, i)
          local why = of[i] == 0 and "trimmed" or of[i] and "in another part"
            or "no value of " .. opts.by
          return of[i] == p, why
        end, tick = tick }
      made[p].from, made[p].to = bounds[p].from, bounds[p].to
    end
    return made, without
  end, "rows", "parts that are complete stay")
  if not reports then
    return code
  end
  derived.tell(opts, reports)
  return 0
end

return part
