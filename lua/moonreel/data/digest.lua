--- A digest of the samples of a step, which journals record and audits compute again.
-- @module moonreel.data.digest
local base = require "moonreel.core.base"

local digest = {}

--- The digest of micro-batches: the sum of the mixed keys of their samples, modulo 2^64. It does
-- not depend on the order of the samples in the step, so it is equal for any number of ranks that
-- share the same micro-batches.
---@param batches table[]  {keys = lower halves of sample keys, n = the number of samples in them;
---   nil: all}
---@return string          16 hexadecimal digits
function digest.of(batches)
  local sum = 0
  for _, batch in ipairs(batches) do
    for i = 1, batch.n or #batch.keys do
      sum = sum + base.mix(batch.keys[i])
    end
  end
  return ("%016x"):format(sum)
end

return digest
