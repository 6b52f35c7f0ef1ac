--- Rewrites a checkpoint directory of one rank as moonreel wrote it under schema 1: the same shard,
-- and a manifest of whole tensors. spec/core/ckpt/schema1 holds a recorded one.
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

local schema1 = {}

local BLOCK = 1 << 20

--- The manifest of a directory, of either schema, in the form of schema 1.
---@return table
function schema1.manifest(dir)
  local m = json.decode(base.read_file(dir .. "/MANIFEST.json"))
  local shard = base.read_file(dir .. "/" .. m.files[1].name)
  local blocks = json.array()
  for at = 1, #shard, BLOCK do
    blocks[#blocks + 1] = base.hash128(shard:sub(at, at + BLOCK - 1))
  end
  m.files = json.array { { name = m.files[1].name, bytes = #shard, block_bytes = BLOCK,
    xxh3_128 = base.hash128(shard), blocks = blocks } }
  for i, t in ipairs(m.tensors) do
    local box, offset = json.array(), t.offset or t.ranges[1][2]
    for d, n in ipairs(t.shape) do
      box[d] = json.array { 0, n }
    end
    m.tensors[i] = { name = t.name, dtype = t.dtype, shape = json.array(t.shape), box = box,
      file = 0, offset = offset }
  end
  m.tensors = json.array(m.tensors)
  m.schema, m.world, m.self = 1, { ranks = 1, layout = "whole" }, nil
  return m
end

--- Replaces the manifest by that one.
function schema1.rewrite(dir)
  local body = json.encode(schema1.manifest(dir), { indent = 1 }):gsub("%s*}%s*$", "")
  local file <close> = assert(io.open(dir .. "/MANIFEST.json", "wb"))
  file:write(body, ',\n "self": "', base.hash128(body), '"\n}\n')
end

return schema1
