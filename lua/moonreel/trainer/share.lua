--- The part of a shared batch that each rank computes.
-- @module moonreel.trainer.share
local T = require "moonreel.core.tensor"
local sequence = require "moonreel.nn.sequence"

local share = {}

--- The samples [first, last] of B that this rank encodes for the ranks that share the batch.
---@param group mr.Group|false|nil  absent: this rank has the batch alone
---@param B integer
---@return integer first       from 1
---@return integer last
---@return integer[]|nil rows  number of samples of each rank; nil: this rank is alone
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

--- Pixels and weights of a batch that one of the ranks which share it has decoded.
---@param group mr.Group|nil  nil: this rank has decoded it
---@param batch table         from the loader
---@param shape table         batch, frames, height, width
---@return mr.Tensor          u8 [B, T, 3, H, W]
---@return number[]
function share.decoded(group, batch, shape)
  local size = {shape.batch, shape.frames, 3, shape.height, shape.width}
  local pointer, bytes = batch:pixels()
  local pixels = T.wrap(pointer, bytes, "u8", size, batch)
  if not group then
    return pixels, batch.weights
  end
  -- the other ranks only have memory without contents
  local weights = group:broadcast(T.from({shape.batch}, batch.weights, "f64"))
  return group:broadcast(pixels), weights:totable()
end

return share
