--- What each of the ranks that share a batch does of it.
-- @module moonreel.trainer.share
local sequence = require "moonreel.nn.sequence"

local share = {}

--- The samples [first, last] of B that this rank encodes for those that share the batch.
---@param group mr.Group|nil  nil: it is alone
---@param B integer
---@return integer first       from 1
---@return integer last
---@return integer[]|nil rows  how many each of the ranks does; nil: it is alone
function share.of(group, B)
  if not group then
    return 1, B
  end
  local rows = {}
  for rank = 0, group:size() - 1 do
    local start, stop = sequence.part(B, group:size(), rank)
    rows[rank + 1] = stop - start
  end
  local start, stop = sequence.part(B, group:size(), group:rank())
  return start + 1, stop, rows
end

return share
