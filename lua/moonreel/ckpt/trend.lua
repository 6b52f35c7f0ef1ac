--- A statistic of tensors over the checkpoints of a run.
-- @module moonreel.ckpt.trend
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local listing = require "moonreel.text.listing"
local names = require "moonreel.ckpt.names"

local quantities = { norm = names.norm }
for _, key in ipairs { "min", "max", "mean", "rms", "nonfinite", "zeros" } do
  quantities[key] = function(s) return s[key] end
end

--- A statistic of tensors over the checkpoints of a run, oldest first.
---@param run string      run directory
---@param what string     "norm", "min", "max", "mean", "rms", "nonfinite" or "zeros"
---@param pattern string  names; several tensors count as one (norm, rms: together; others: the
---   mean)
local function trend(run, what, pattern)
  if not quantities[what] then
    base.raise("MR_E_USAGE", ("trend: there is no statistic '%s'; expected norm, min, max, mean, "
      .. "rms, nonfinite or zeros"):format(tostring(what)))
  end
  local steps, rows = ckpt.steps(type(run) == "table" and run.path or run), {}
  for i = #steps, 1, -1 do
    local c <close> = ckpt.open(ckpt.dir(type(run) == "table" and run.path or run, steps[i]))
    local list, sum, n = names.matching(c:names(), pattern), 0, 0
    local joined = what == "norm" or what == "rms"
    for _, name in ipairs(list) do
      local s = c:stats(name)
      sum = sum + (joined and names.norm(s) ^ 2 or quantities[what](s))
      n = n + (joined and s.n or 1)
    end
    if #list > 0 then
      rows[#rows + 1] = { step = steps[i], value = what == "norm" and math.sqrt(sum)
        or what == "rms"
        and math.sqrt(sum / n) or sum / n, tensors = #list }
    end
  end
  if #rows == 0 then
    base.raise("MR_E_USAGE", ("trend: no checkpoint has a tensor '%s'"):format(tostring(pattern)))
  end
  return listing.new(rows, { { key = "step", right = true },
    { key = "value", title = what, right = true },
    { key = "tensors", right = true } })
end

return trend
