--- A part of the network with weights of its own: all of it, or one block at a time. Graphs are
-- built per shape; the last few stay compiled.
-- @module moonreel.embed.part
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local compiled = require "moonreel.nn.compiled"

local part = {}

local Part = {}
Part.__index = Part

local KEPT = 8  -- compiled shapes

--- Declare a part.
---@param device mr.Device|table  or options of E.plan
---@param dtype string
---@param declare fun(params: mr.Params): any   the layers
---@param nodes fun(g: mr.Graph, layers: any, inputs: table): mr.Value  what it puts out
function part.new(device, dtype, declare, nodes)
  local params = G.params(dtype)
  local layers = declare(params)
  params:seal()
  -- what is no device are options of E.plan: then there are no weights, and nothing runs
  local exec = type(device) == "table" and E.plan(params, device) or E.new(device, params, {})
  return setmetatable({ params = params, layers = layers, nodes = nodes, dtype = dtype,
    exec = exec, compiled = compiled.new(params, exec, KEPT) }, Part)
end

--- Give it weights.
---@param source mr.T5Source
---@param name_of nil|fun(name: string): string  of a tensor, where its parameter has another name
function Part:load(source, name_of)
  for _, p in ipairs(self.params:list()) do
    local tensor <close> = source:read(name_of and name_of(p.name) or p.name)
    self.exec:set_param("w", p.name, tensor)
  end
end

--- The program for inputs of some shapes, valid until the next call.
---@param given table       tensors by name, or what has their dtype and shape
---@param facts table|nil   integers that the nodes depend on beside the shapes
---@return mr.Program
function Part:program(given, facts)
  local key = {}
  for name, tensor in pairs(given) do
    key[#key + 1] = ("%s %s"):format(name, table.concat(tensor.shape, "x"))
  end
  for name, value in pairs(facts or {}) do
    key[#key + 1] = ("%s %d"):format(name, value)
  end
  table.sort(key)
  key = table.concat(key, ", ")
  return self.compiled:get(key, function(g)
    local inputs = setmetatable({}, { __index = facts })
    for name, tensor in pairs(given) do
      inputs[name] = g:input(name, tensor.dtype, tensor.shape)
    end
    return self.nodes(g, self.layers, inputs)
  end)
end

--- Run it.
---@param given table       tensors by name
---@param facts table|nil   as of program
---@return mr.Tensor
function Part:run(given, facts)
  local prog = self:program(given, facts)
  for name, tensor in pairs(given) do
    prog:set(name, tensor)
  end
  prog:run()
  return prog:get("out")
end

function Part:close() self.exec:close() end

return part
