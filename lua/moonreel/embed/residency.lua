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

-- the whole network as a part, without weights so far; device: as part.new takes it
local function whole_of(s, device, dtype)
  return part.new(device, dtype, function(params) return network.new(params, s) end,
    function(g, net, io) return net:forward(g, io.x, io.len) end)
end

function residency.all(source, device, dtype)
  local self = setmetatable({ whole = whole_of(source.sizes, device, dtype) }, All)
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

-- what comes before all blocks, one block, and what comes behind them
local function parts_of(s, device, dtype)
  local function declared(layer)
    return function(params) return layer(nn.scope(params, "encoder"), s) end
  end
  return part.new(device, dtype, declared(network.bias),
      function(g, bias, io) return bias:forward(g, io.L) end),
    part.new(device, dtype,
      function(params) return network.block(nn.scope(params, "block"), s) end,
      function(g, block, io) return block:forward(g, io.x, io.bias, io.len) end),
    part.new(device, dtype, declared(network.final),
      function(g, final, io) return final(g, io.x) end)
end

function residency.stream(source, device, dtype)
  local self = setmetatable({ source = source }, Stream)
  self.bias, self.block, self.final = parts_of(source.sizes, device, dtype)
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
---@param free integer  bytes
---@return string way, integer bytes  what all weights take
function residency.fitting(s, free, dtype)
  local bytes = sizes.elements(s) * BYTES[dtype]
  return bytes <= free // 2 and "all" or "stream", bytes
end

-- ---- without weights

--- The parts of a way, without weights: what they would take.
---@param way string    "all" or "stream"
---@param s table       of moonreel.models.t5.sizes
---@param given table   options of E.plan
---@param dtype string
---@return mr.Part[]    close them
---@return fun(n: integer, L: integer): table[]  what runs for n texts of L tokens: {prog, runs}
function residency.plan(way, s, given, dtype)
  local function words(n, L) return { dtype = dtype, shape = { n, 1, L, s.d_model } } end
  local function lengths(n) return { dtype = "i32", shape = { n } } end
  if way == "all" then
    local whole = whole_of(s, given, dtype)
    return { whole }, function(n, L)
      return { { prog = whole:program { x = words(n, L), len = lengths(n) }, runs = 1 } }
    end
  end
  local bias, block, final = parts_of(s, given, dtype)
  return { bias, block, final }, function(n, L)
    local scores = { dtype = dtype, shape = { s.num_heads, L, L } }
    return { { prog = bias:program({}, { L = L }), runs = 1 },
      { prog = block:program { x = words(n, L), bias = scores, len = lengths(n) },
        runs = s.num_layers }, { prog = final:program { x = words(n, L) }, runs = 1 } }
  end
end

return residency
