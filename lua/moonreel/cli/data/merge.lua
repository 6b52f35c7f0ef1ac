--- moonreel data merge: one index of the rows of several.
-- @module moonreel.cli.data.merge
local base = require "moonreel.core.base"
local derived = require "moonreel.cli.derived"

-- is this row in one of the earlier indexes, too?
local function is_known(row, index, indexes)
  for _, other in ipairs(indexes) do
    if other == index then
      return false
    end
    if other.core:find(row.key) then
      return true
    end
  end
end

-- Refuses samples that two indexes share. Each run of the command checks this.
local function refuse_common(indexes)
  for i = 2, #indexes do
    for j = 1, i - 1 do
      local one, other = indexes[j], indexes[i]
      local both = one.core:common(other.core).both
      for row = 1, both > 0 and #other or 0 do
        local sample = other:row(row)
        local at = one.core:find(sample.key)
        if at then
          base.raise("MR_E_DATA", ("%s and %s have %d samples in common, the first is %s (row %d "
            .. "and row %d); try: --duplicates first, which keeps those of %s"):format(
            one.meta.path, other.meta.path, both, sample.path, at, row, one.meta.path))
        end
      end
    end
  end
end

return {
  words = "A.mrx B.mrx ... -o NEW.mrx",
  summary = "make one index of the rows of several, one after another",
  output = true,
  options = { derived.output,
    { "--duplicates first|refuse", "samples that occur twice: keep the first one, or write nothing "
      .. "(default: refuse)" },
    { "--parts", "the inputs must be all parts of one whole, each once; otherwise nothing is "
      .. "written" } },
  run = function(opts, parsed)
    local way = opts.duplicates or "refuse"
    if way ~= "first" and way ~= "refuse" then
      base.raise("MR_E_USAGE", ("data merge: --duplicates: expected first or refuse, got '%s'")
        :format(way))
    end
    local indexes = derived.open(parsed.positional)
    if opts.parts then
      require("moonreel.data.derive").check_parts(indexes)
    end
    if way == "refuse" then
      refuse_common(indexes)
    end
    return derived.run(opts, { from = indexes, made = "merge",
      choose = way == "first" and function(row, index)
        return not is_known(row, index, indexes), "in an earlier index, too"
      end or nil })
  end,
}
