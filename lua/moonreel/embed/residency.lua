--- Two modes for the weights of a text encoder, with the same values: "all" of them in memory, or
-- "stream": a part at a time, read from the files for each batch, if the family has such parts.
-- @module moonreel.embed.residency
local residency = {}

local BYTES = { f32 = 4, bf16 = 2 }

--- The way that a machine has memory for: all weights where they take at most half of what is free.
---@param enc mr.Text   elements(): of its weights; streams: whether it can; split: ranks that
---   have a share of each
---@param free integer  bytes
---@param dtype string
---@return string way, integer bytes  what all weights take, of all ranks
function residency.fitting(enc, free, dtype)
  local bytes, ranks = enc:elements() * BYTES[dtype], enc.split and enc.split.ranks or 1
  return (bytes // ranks <= free // 2 or not enc.streams) and "all" or "stream", bytes
end

--- The way that is wished, as far as the encoder knows it.
---@param enc mr.Text
---@param wish string   "auto", "all" or "stream"
---@param way string    of fitting
---@return string
function residency.of(enc, wish, way)
  return wish == "auto" and way or enc.streams and wish or "all"
end

return residency
