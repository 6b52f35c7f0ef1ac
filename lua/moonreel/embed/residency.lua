--- Two modes for the weights of a text encoder, which give the same values: "all" keeps all weights
-- in memory; "stream" reads one part at a time from the files for each batch, if the family has
-- such parts.
-- @module moonreel.embed.residency
local residency = {}

local BYTES = { f32 = 4, bf16 = 2 }

--- The mode that fits into memory: "all" if the weights need at most half of the free memory.
---@param enc mr.Text   elements(): of its weights; streams: whether it supports "stream"; split:
---   number of ranks that share each weight
---@param free integer  free bytes
---@param dtype string
---@return string way, integer bytes  bytes of all weights of all ranks
function residency.fitting(enc, free, dtype)
  local bytes, ranks = enc:elements() * BYTES[dtype], enc.split and enc.split.ranks or 1
  return (bytes // ranks <= free // 2 or not enc.streams) and "all" or "stream", bytes
end

--- The requested mode, if the encoder supports it.
---@param enc mr.Text
---@param wish string   "auto", "all" or "stream"
---@param way string    result of fitting
---@return string
function residency.of(enc, wish, way)
  return wish == "auto" and way or enc.streams and wish or "all"
end

return residency
