--- Reference files about MMDiT: what every block gives, the prediction, the loss and gradients.
-- @module spec.golden.runner.mmdit
local G = require "moonreel.core.graph"
local build = require "spec.golden.runner.build"
local clips = require "spec.golden.runner.clips"
local mmdit = require "moonreel.models.mmdit"
local regions = require "moonreel.optim.regions"

local VALUES, GRADIENTS = 2e-5, 1e-4

local runner = {}

--- The model of a file with its weights, which stand under a prefix.
---@param config table  fields of the model
---@return table        net, params, run
function runner.load(f, prefix, config)
  local params = G.params "f32"
  return build.filled(mmdit.new(params, config), params, f, prefix,
    { regions = regions.gradients() })
end

-- tokens [B, N, C p p] as latents [B, C, T, H, W]; the grid is that of their ids
local function latents(f, tokens, p)
  local ids = f:tensor "in.img_ids"
  local last = ids:slice(0, 0, 1):slice(1, ids.shape[2] - 1, ids.shape[2]):clone():totable()
  local frames, rows, cols = last[1] // 1 + 1 | 0, last[2] // 1 + 1 | 0, last[3] // 1 + 1 | 0
  local B, _, C = table.unpack(tokens.shape)
  return tokens:reshape { B, frames, rows, cols, C // (p * p), p, p }
    :permute { 0, 4, 1, 2, 5, 3, 6 }:clone()
    :reshape { B, C // (p * p), frames, rows * p, cols * p }
end

--- Latents [B, C, T, H, W] as tokens [B, N, C p p].
function runner.as_tokens(x, p)
  local B, C, frames, H, W = table.unpack(x.shape)
  return x:reshape { B, C, frames, H // p, p, W // p, p }:permute { 0, 2, 3, 5, 1, 4, 6 }:clone()
    :reshape { B, frames * H // p * W // p, C * p * p }
end

local function model(f, result)
  local oracle = f.has["in.loss_weight"] ~= nil
  local m = runner.load(f, oracle and "weight." or "param.", f:need "config")
  local p = m.net.config.patch_size
  local inputs = { x = latents(f, f:tensor "in.img", p), t = f:tensor "in.timesteps" * 1000,
    y = f:tensor "in.txt", vector = f:tensor "in.y_vec", guidance = f:find "in.guidance",
    target = latents(f, f:tensor(oracle and "in.loss_weight" or "in.target"), p) }
  inputs.vector = inputs.vector:reshape { inputs.vector.shape[1], 1, inputs.vector.shape[2] }
  inputs.cond = f.has["in.cond"] and latents(f, f:tensor "in.cond", p) or nil
  local taps = {}
  local prog = clips.evaluate(m, inputs, function(g, io)
    local out = m.net:forward(g, setmetatable({ tap = function(name, value)
      if f.has["act." .. name] then
        taps[#taps + 1] = name
        g:output(name, value)
      end
    end }, { __index = io }))
    local far = out - io.target
    local loss = oracle and clips.mean(out * io.target) or clips.mean(far * far)
    g:output("pred", out)
    g:output("loss", loss)
    local wanted = { io.x, io.y, io.vector, io.cond }
    local grads = g:backward(loss, wanted)
    for i, name in ipairs { "x", "y", "vector", io.cond and "cond" or nil } do
      g:output("d" .. name, grads[i])
    end
  end)
  result:scaled("out.pred", runner.as_tokens(prog:get "pred", p), f:tensor "out.pred", VALUES)
  for _, name in ipairs(taps) do
    local want = f:tensor("act." .. name)
    result:scaled("act." .. name, prog:get(name):reshape(want.shape), want, VALUES)
  end
  if f.has["out.loss"] then
    result:scaled("out.loss", prog:get "loss", f:tensor "out.loss", VALUES)
  end
  for own, name in pairs { x = "grad_in.img", y = "grad_in.txt", vector = "grad_in.y_vec",
      cond = "grad_in.cond" } do
    if f.has[name] then
      local got, want = prog:get("d" .. own), f:tensor(name)
      got = #got.shape == 5 and runner.as_tokens(got, p) or got:reshape(want.shape)
      result:scaled(name, got, want, GRADIENTS)
    end
  end
  result:weights(clips.weights(f, m, oracle and "^grad%.weight%.(.*)" or "^grad%.(.*)"), GRADIENTS)
end

runner[1] = { "^mmdit_", model }

return runner
