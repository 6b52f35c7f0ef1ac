--- moonreel data stats: sizes of an index, and distributions of its values.
-- @module moonreel.cli.data.stats
local longwork = require "moonreel.cli.longwork"
local size = require("moonreel.text.listing").size

local BAR = 40

local function number(x)
  return math.type(x) == "integer" and ("%d"):format(x) or ("%.6g"):format(x)
end

local function print_spread(s, rows)
  local without = s.missing > 0 and (", %d rows without"):format(s.missing) or ""
  if s.rows == 0 then
    print(("\n%s: no row has a value"):format(s.field))
    return
  end
  print(("\n%s: %s to %s, mean %.6g%s"):format(s.field, number(s.least), number(s.most), s.mean,
    without))
  for i, c in ipairs(s.classes) do
    local class = c.from == c.to and number(c.to)
      or (i > 1 and "above %s, to %s" or "%s to %s"):format(number(c.from), number(c.to))
    print(("  %30s  %9d  %5.1f %%  %s"):format(class, c.rows, 100 * c.rows / rows,
      ("#"):rep(math.ceil(BAR * c.rows / rows))))
  end
end

return {
  words = "NAME.mrx",
  summary = "rows, hours, bytes, and distributions of resolution, frames, fps, aspect and columns",
  options = { { "--field NAME", "only this column; may be given several times", many = true } },
  run = function(opts, _, path)
    local index <close> = require("moonreel.data").open(path)
    local wanted = {}
    for _, name in ipairs(opts.field or {}) do
      require("moonreel.data.row").reader(name, index.meta.columns, "data stats", true)
      wanted[name] = true
    end
    local found, code = longwork.run(function(tick)
      return require("moonreel.data.statistics").of(index, tick)
    end, "rows", "nothing is reported")
    if not found then
      return code
    end
    if opts.field then
      local chosen = require("moonreel.core.json").array()
      for _, s in ipairs(found.spreads) do
        chosen[#chosen + 1] = wanted[s.field] and s or nil
      end
      found.spreads = chosen
    end
    if opts.json then
      print(require("moonreel.core.json").encode(found, { indent = 2 }))
      return 0
    end
    print(("%s: %d rows (%d pictures), %.2f hours, %s, %d captions, %d rows without"):format(path,
      found.rows, found.images, found.hours, size(found.bytes), found.captions,
      found.without_caption))
    for _, codec in ipairs(require("moonreel.recipe.environment").sorted_keys(found.codecs)) do
      print(("  %s: %d rows"):format(codec, found.codecs[codec]))
    end
    for _, s in ipairs(found.spreads) do
      print_spread(s, found.rows)
    end
    return 0
  end,
}
