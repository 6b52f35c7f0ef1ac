--- Reference files about weights to start from: a file of another program beside them gives every
-- tensor, and with these the model gives the other program's output.
-- @module spec.golden.runner.start
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local ckpt = require "moonreel.ckpt"
local map = require "moonreel.models.stdit3.weights"
local fill = require "moonreel.ckpt.fill"
local stdit3 = require "moonreel.models.stdit3"

local OUTPUT = 1e-5

-- the fields of the file's own words
local function config_of(f)
  local c = f:need("config")
  return {depth = c.depth, hidden_size = c.hidden, num_heads = c.heads, patch_size = {1, 2, 2},
    in_channels = 4, caption_channels = c.caption, model_max_length = c.text_len,
    input_sq_size = 512, mlp_ratio = 4, pred_sigma = true, qk_norm = c.qk_norm, compat = true}
end

-- how many tensors of the file are not in the weights as they are there
local function different(f, weights)
  local count = 0
  for _, name in ipairs(f.names) do
    local own = name:match("^weight%.(.*)")
    if own then
      local found = weights:info("state_dict." .. own) and "state_dict." .. own or own
      local same = weights:info(found) and weights:read(found) == f.source:read(name)
      count = count + (same and 0 or 1)
    end
  end
  return count
end

-- the weights beside a file that hold its tensors
local function weights_of(f)
  local dir = f.path:match("^(.*)/") or "."
  for _, name in ipairs(base.list_dir(dir)) do
    if name:find("%.pth$") then
      local weights = ckpt.open(dir .. "/" .. name)
      if different(f, weights) == 0 then
        return weights
      end
      weights:close()
    end
  end
  base.raise("MR_E_DATA", ("%s: no .pth next to it holds its tensors"):format(f.path))
end

-- values of a tensor of the file as a parameter of `count` has them: rows of the null caption are
-- cut, or continued by the last one
local function continued(f, name, count)
  local values, width = f:list(name), f.has[name].shape[#f.has[name].shape]
  local last = table.move(values, #values - width + 1, #values, 1, {})
  while name:find("y_embedding$") and #values < count do
    table.move(last, 1, width, #values + 1, values)
  end
  return name:find("y_embedding$") and table.move(values, 1, count, 1, {}) or values
end

-- what the parameter must be: the file's tensor, in the model's shape
local function compare_tensors(f, run, params, result)
  local count = 0
  for _, p in ipairs(params:list()) do
    local name = "weight." .. p.name:gsub("^spatial_blocks%.", "blocks.")
    if f.has[name] then
      count = count + 1
      result:absolute(p.name, run:param(p.frozen and "frozen" or "w", p.name):totable(),
        continued(f, name, p.count), 0)
    end
  end
  -- all but the positions, which the model computes
  local given = 0
  for _, name in ipairs(f.names) do
    given = given + (name:find("^weight%.") and name ~= "weight.pos_embed" and 1 or 0)
  end
  result:exact("tensors taken", given - count)
end

-- the output with these weights
local function compare_output(f, net, params, run, result)
  local inputs = build.inputs(f, "in.", "y", "mask")
  local g, set = G.graph(params), {x = f:tensor("in.x"), y = inputs.y, t = f:tensor("in.t"),
    fps = inputs.fps, len = inputs.len}
  local io = {height = inputs.height, width = inputs.width}
  for name, tensor in pairs(set) do
    io[name] = g:input(name, tensor.dtype, tensor.shape)
  end
  io.text_len = io.len
  g:output("out", net:forward(g, io))
  g:finish()
  local prog = run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  prog:run()
  result:scaled("out.pred", prog:get("out"), f:tensor("out.pred"), OUTPUT)
end

local function pixart_start(f, result)
  local params, config = G.params("f32"), config_of(f)
  local net = stdit3.new(params, config)
  params:seal()
  local run, weights <close> = E.new(build.device(), params, {}), weights_of(f)
  run:init(0)
  local report = fill.weights(run, params, weights, {maps = {map}})
  result:exact("missing", #report.missing)
  result:exact("unexpected", #report.unexpected)
  compare_tensors(f, run, params, result)
  -- some files have tensors alone
  if f.has["in.x"] then
    compare_output(f, net, params, run, result)
  end
end

return {{"^pixart", pixart_start}}
