--- Two ways to have the weights of an encoder, with the same numbers: all of them in memory, or one
-- block at a time, read from the files for each batch.
-- @module moonreel.embed.residency
local network = require "moonreel.models.t5.network"
local nn = require "moonreel.nn"
local part = require "moonreel.embed.part"
local sizes = require "moonreel.models.t5.sizes"

local residency = {}

-- ---- all of them

local All = {}
All.__index = All

--- The whole network as a part, without weights so far.
---@param s table  of moonreel.models.t5.sizes
---@param device mr.Device|table  as part.new
function residency.whole(s, device, dtype)
  return part.new(device, dtype, function(params) return network.new(params, s) end,
    function(g, net, io) return net:forward(g, io.x, io.len) end)
end

function residency.all(source, device, dtype)
  local self = setmetatable({ whole = residency.whole(source.sizes, device, dtype) }, All)
  self.whole:load(source)
  return self
end

--- Encode groups of texts.
---@param groups table[]  {x = words [B, 1, L, D], len = i32 [B] or nil}; x is replaced
function All:run(groups)
  for _, group in ipairs(groups) do
    group.x = self.whole:run { x = group.x, len = group.len }
  end
end

function All:close() self.whole:close() end

-- ---- one block at a time

local Stream = {}
Stream.__index = Stream

function residency.stream(source, device, dtype)
  local s = source.sizes
  local function declared(layer)
    return function(params) return layer(nn.scope(params, "encoder"), s) end
  end
  local self = setmetatable({ source = source,
    bias = part.new(device, dtype, declared(network.bias),
      function(g, bias, io) return bias:forward(g, io.L) end),
    block = part.new(device, dtype,
      function(params) return network.block(nn.scope(params, "block"), s) end,
      function(g, block, io) return block:forward(g, io.x, io.bias, io.len) end),
    final = part.new(device, dtype, declared(network.final),
      function(g, final, io) return final(g, io.x) end) }, Stream)
  self.bias:load(source)
  self.final:load(source)
  return self
end

function Stream:run(groups)
  local bias = {}
  for _, group in ipairs(groups) do
    local L = group.x.shape[3]
    bias[L] = bias[L] or self.bias:run({}, { L = L })
  end
  -- every block is read once for all groups
  for i = 0, self.source.sizes.num_layers - 1 do
    self.block:load(self.source, function(name)
      return (name:gsub("^block", "encoder.block." .. i))
    end)
    for _, group in ipairs(groups) do
      group.x = self.block:run { x = group.x, bias = bias[group.x.shape[3]], len = group.len }
    end
  end
  for _, group in ipairs(groups) do
    group.x = self.final:run { x = group.x }
  end
end

function Stream:close()
  for _, one in ipairs { self.bias, self.block, self.final } do
    one:close()
  end
end

-- ---- which

local BYTES = { f32 = 4, bf16 = 2 }

--- The way that a machine has memory for: all weights where they take at most half of what is free.
---@param s table  of moonreel.models.t5.sizes
---@return string way, integer bytes  what all weights take
function residency.fitting(s, device, dtype)
  local bytes, free = sizes.elements(s) * BYTES[dtype], device:memory()
  return bytes <= free // 2 and "all" or "stream", bytes
end

return residency
