--- Reference files about the model: forward and backward, position tables, dropped captions.
-- @module spec.golden.runner.model
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local check = require "spec.golden.runner.check"
local ops = require "moonreel.core.op"
local positions = require "moonreel.models.stdit3.positions"
local text = require "moonreel.models.text"
local regions = require "moonreel.optim.regions"

local VALUES, GRADIENTS = 1e-5, 1e-4

-- an intermediate as the reference lays it out
local function arrange(name, value, order)
  if name:find("^temporal_blocks%.%d+%.attn$") then
    return value:permute{0, 2, 1, 3}
  end
  if name == "y_embedder" then
    return text.unpack(value, order)
  end
  return value
end

-- graph of a forward and backward pass with everything the file asks for as outputs
local function build_graph(f, m, inputs)
  local g = G.graph(m.params)
  local set = {x = f:tensor("in.x"), y = inputs.y, fps = inputs.fps, t = f:tensor("in.timestep"),
    loss_weight = f:tensor("in.loss_weight"), len = inputs.len, x_mask = f:find("in.x_mask")}
  local io = {height = inputs.height, width = inputs.width}
  for name, tensor in pairs(set) do
    io[name] = g:input(name, tensor.dtype, tensor.shape)
  end
  io.text_len = io.len
  local seen = {}
  io.tap = function(name, value)
    if f.has["inter." .. name] then
      seen[name] = true
      g:output("inter." .. name, value)
    end
  end
  local out = m.net:forward(g, io)
  local total = ops.sum(out * io.loss_weight, {axes = {0, 1, 2, 3, 4}})
  local loss = ops.affine(total, {scale = 1 / T.count(out.shape)})
  g:output("out", out)
  g:output("loss", loss)
  local grads = g:backward(loss, {io.x, io.y})
  g:output("grad.x", grads[1])
  g:output("grad.y", grads[2])
  g:finish()
  return g, set, seen
end

local function forward_backward(f, result)
  local m = build.load(f, {regions = regions.gradients()})
  local inputs = build.inputs(f, "in.", "y", "mask")
  local g, set, seen = build_graph(f, m, inputs)
  local prog = m.run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  prog:run()

  local want, weight = f:tensor("out"), set.loss_weight
  result:l2("out", prog:get("out"), want, VALUES)
  -- the loss is a sum with both signs: its error counts against the size of what was summed
  local size = check.norm(want) * check.norm(weight) / T.count(want.shape)
  result:add("loss", math.abs(prog:get("loss"):item() - f:tensor("loss"):item()) / size, VALUES)
  local rows = {}
  for _, name in ipairs(f.names) do
    local inter, grad = name:match("^inter%.(.+)"), name:match("^grad%.(.+)")
    if inter then
      if not seen[inter] then
        base.raise("MR_E_DATA", string.format("%s: the model has no value '%s'", f.path, inter))
      end
      result:l2(name, arrange(inter, prog:get(name), inputs.order), f:tensor(name), VALUES)
    elseif grad then
      local got
      if grad == "x" then
        got = prog:get(name)
      elseif grad == "y" then
        got = text.unpack(prog:get(name), inputs.order)
      else
        got = m.run:param("grad", grad)
      end
      rows[#rows + 1] = {name, got, f:tensor(name)}
    end
  end
  result:gradients(rows, GRADIENTS)
end

-- run a graph of constants and inputs; returns a function name -> tensor
local function evaluate(params_run, g, set)
  g:finish()
  local prog = params_run:compile(g)
  for name, tensor in pairs(set or {}) do
    prog:set(name, tensor)
  end
  prog:run()
  return function(name) return prog:get(name) end
end

local function embeddings(f, result)
  local run, D = E.new(build.device(), nil, {}), f:need("hidden_size")
  for _, name in ipairs(f.names) do
    if name:find("^pos%.%d+$") then
      local args, shape = f:list(name .. ".args"), f.has[name].shape
      if args[1] * args[2] * D ~= T.count(shape) then
        base.raise("MR_E_DATA", string.format("%s: %s is [%s], a grid of %d x %d has other sizes",
          f.path, name,
          table.concat(shape, ", "), args[1], args[2]))
      end
      local g = G.graph()
      g:output("pos", positions.table(g, args[1], args[2], f:list(name .. ".scale")[1],
        args[5], D))
      result:absolute(name, evaluate(run, g)("pos"):totable(), f:list(name), VALUES)
    end
  end
  if f.has["timestep.in"] then
    local g, t = G.graph(), f:tensor("timestep.in")
    g:output("wave", (ops.sincos(g:input("t", "f32", t.shape), {dim = 256})))
    result:absolute("timestep.embedding", evaluate(run, g, {t = t})("wave"):totable(),
      f:list("timestep.embedding"), VALUES)
  end
end

local function caption_drop(f, result)
  local m = build.load(f, {})
  local y = f:tensor("in.caption")
  local B, L, C = y.shape[1], y.shape[#y.shape - 1], y.shape[#y.shape]
  local g = G.graph(m.params)
  local drop = {}
  for i, id in ipairs(f:list("in.drop_ids")) do
    drop[i] = id == 1 and 1 or 0
  end
  local kept = m.net:drop_caption(g, g:input("y", "f32", {B, L, C}), g:input("drop", "bool", {B}))
  g:output("dropped", kept)
  g:output("projected", m.net.y_proj(g, kept))
  local get = evaluate(m.run, g, {y = y:reshape{B, L, C}, drop = T.from({B}, drop, "bool")})
  result:l2("out.dropped", get("dropped"), f:tensor("out.dropped"), VALUES)
  result:l2("out.projected", get("projected"), f:tensor("out.projected"), VALUES)
end

return {{"^stdit3_", forward_backward}, {"^embeddings", embeddings},
  {"^caption_drop", caption_drop}}
