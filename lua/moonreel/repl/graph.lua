--- Small graphs at the prompt: builds a graph from a function, runs it and reads gradients; also
-- runs one block of a model.
-- @module moonreel.repl.graph
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"

local graph = {}

local Graph = { __name = "moonreel.SmallGraph" }
Graph.__index = Graph

--- Makes a graph from a function of its inputs. The inputs have the names of the parameters.
---@param f function  of values; returns one value or several
---@return moonreel.SmallGraph
function graph.new(f)
  local names = {}
  for i = 1, debug.getinfo(f, "u").nparams do
    names[i] = debug.getlocal(f, i)
  end
  if #names == 0 then
    base.raise("MR_E_USAGE", "graph: expected a function with inputs; try: graph(function(x) "
      .. "return ops.silu(x) end)")
  end
  return setmetatable({ f = f, names = names }, Graph)
end

function Graph:__tostring()
  return ("graph of %s%s"):format(table.concat(self.names, ", "), self.text and "\n" .. self.text
    or "; g:run{" .. self.names[1] .. " = tensor}")
end

local function key_of(inputs, names)
  local parts = {}
  for i, name in ipairs(names) do
    local t = inputs[name]
    if t == nil then
      base.raise("MR_E_USAGE", ("graph: the input '%s' is missing; expected %s"):format(name,
        table.concat(names, ", ")))
    end
    parts[i] = t.dtype .. ":" .. table.concat(t.shape, ",")
  end
  return table.concat(parts, " ")
end

-- builds the graph for these shapes, and optionally the gradients of the sum of the first output
local function build(self, inputs, gradients)
  local g, values, wanted, list = G.graph(), {}, {}, {}
  for i, name in ipairs(self.names) do
    values[i] = g:input(name, inputs[name].dtype, inputs[name].shape)
    if inputs[name].dtype == "f32" or inputs[name].dtype == "bf16" then
      wanted[#wanted + 1], list[#list + 1] = name, values[i]
    end
  end
  local outs = table.pack(self.f(table.unpack(values)))
  if outs.n == 0 or type(outs[1]) ~= "userdata" then
    base.raise("MR_E_USAGE", "graph: the function returns no value; try: return ops.silu(x)")
  end
  for i = 1, outs.n do
    g:output("y" .. i, outs[i])
  end
  if gradients and #wanted > 0 then
    local loss, axes = outs[1], {}
    for i = 1, #loss.shape do
      axes[i] = i - 1
    end
    if loss.dtype == "bf16" then
      loss = (ops.cast(loss, { dtype = "f32" }))
    end
    if #axes > 0 then
      loss = (ops.sum(loss, { axes = axes }))
    end
    for i, grad in ipairs(g:backward(loss, list)) do
      if grad then
        g:output("d" .. wanted[i], grad)
      end
    end
  end
  g:finish()
  return g, outs.n
end

local function compile(self, inputs)
  -- an op without a gradient can still run forward
  local ok, g, n = pcall(build, self, inputs, true)
  self.no_grad = not ok and tostring(g) or nil
  if not ok then
    g, n = build(self, inputs, false)
  end
  self.graph, self.outs, self.text = g, n, g:print()
  self.exec = self.exec or E.new(E.device(), nil, {})
  return self.exec:compile(g)
end

--- Runs the graph. It is compiled again when a shape or dtype changes.
---@param inputs table  name = tensor
---@return mr.Tensor ...
function Graph:run(inputs)
  local key = key_of(inputs, self.names)
  if key ~= self.key then
    self.program, self.key = compile(self, inputs), key
  end
  for _, name in ipairs(self.names) do
    self.program:set(name, inputs[name])
  end
  self.program:run()
  local out = {}
  for i = 1, self.outs do
    out[i] = self.program:get("y" .. i)
  end
  return table.unpack(out)
end

--- The gradient of the sum of the first output with respect to an input, at the inputs of the last
-- run.
---@param name string
---@return mr.Tensor
function Graph:grad(name)
  if not self.program then
    base.raise("MR_E_USAGE", "grad: nothing has run yet; try: g:run{...} first")
  end
  if self.no_grad then
    base.raise("MR_E_USAGE", "grad: " .. self.no_grad)
  end
  for _, known in ipairs(self.graph:outputs()) do
    if known == "d" .. name then
      return self.program:get(known)
    end
  end
  base.raise("MR_E_USAGE",
    ("grad: the output does not depend on '%s'; inputs are %s"):format(tostring(name),
    table.concat(self.names, ", ")))
end

local read_inputs = options.declare("block", {
  { "x", "mr.Tensor", "f32 [B, T, S, D]; absent: random normal" },
  { "t_mlp", "mr.Tensor", "f32 [B, 6, D]; absent: random normal" },
  { "y", "mr.Tensor", "f32 [B, L, D]; absent: random normal" },
  { "recipe", "text|mr.Settings", "recipe of the model; absent: the one that the checkpoint's "
    .. "run stored" },
  { "device", "text", "device to compute on" },
})

--- Runs one block of the diffusion model with the weights of a checkpoint.
---@param ckpt mr.Checkpoint
---@param name string          "spatial_blocks.0", "temporal_blocks.3"
---@param inputs table|nil     x [B, T, S, D], t_mlp [B, 6, D], y [B, L, D]: f32, absent: random
---   normal; recipe: a name or settings (default: what the checkpoint's run stored); device
---@return mr.Tensor           the output of the block, f32 [B, T, S, D]
function graph.block(ckpt, name, inputs)
  local nn, T = require "moonreel.nn", require "moonreel.core.tensor"
  inputs = read_inputs(inputs)
  local settings = inputs.recipe or ckpt.settings
  if type(settings) == "string" then
    settings = require("moonreel.settings").bake(settings)
  end
  if not settings then
    base.raise("MR_E_USAGE", ("block: no recipe is stored with %s; try: block(ckpt, name, "
      .. "{recipe = \"NAME\"})"):format(ckpt.path))
  end
  local device = E.device(inputs.device or settings.device)
  local pipeline = require "moonreel.models.pipeline"
  local dtype = pipeline.dtype(settings, device)
  local pipe = pipeline.of(settings, dtype)
  local chosen, known = nil, {}
  for _, one in ipairs(pipe.model.blocks) do
    known[#known + 1] = one.name
    if one.name == name then
      chosen = one
    end
  end
  if not chosen then
    base.raise("MR_E_USAGE", ("block: there is no '%s'; the model has %s"):format(tostring(name),
      table.concat(known, ", ")))
  end
  local exec <close> = E.new(device, pipe.params, {})
  require("moonreel.ckpt.fill").weights(exec, pipe.params, ckpt, { maps = pipe.maps })
  local D, g, given = chosen.width, G.graph(pipe.params), {}
  local function input(key, shape)
    given[key] = inputs[key] or T.new("f32", shape):fill_normal(0, key)
    return nn.cast(g:input(key, given[key].dtype, given[key].shape), dtype)
  end
  local x = input("x", { 1, 4, 16, D })
  local B, frames = x.shape[1], x.shape[2]
  local out = chosen:forward(g, x, { tap = function()
  end, t_mlp = input("t_mlp", { B, 6, D }), y = input("y", { B, 8, D }),
    rope = pipe.model:rope(g, frames) })
  g:output("out", nn.cast(out, "f32"))
  g:finish()
  local program = exec:compile(g)
  for key, t in pairs(given) do
    program:set(key, t)
  end
  program:run()
  return program:get("out")
end

return graph
