--- Parts of released models that fit into the memory of a desktop, for `moonreel bench step`:
-- fields of a model, latents, and other inputs of its forward pass. A shape is {family, model,
-- latent, text}.
-- @module moonreel.bench.cuts
local T = require "moonreel.core.tensor"

local cuts = { all = {} }

--- Two pairs of blocks of STDiT3-XL/2 with 5 latent frames of 32 x 32 and two samples.
cuts.all.stdit3 = {
  family = "stdit3", latent = { 2, 4, 5, 32, 32 },
  model = { depth = 2, hidden_size = 1152, num_heads = 16, caption_channels = 512,
    model_max_length = 64 },
}

--- Two double and four single blocks of MMDiT, as in training of Open-Sora 2.0, of width 1024, with
-- latents of the same size and 512 tokens of text.
cuts.all.mmdit = {
  family = "mmdit", latent = { 2, 16, 5, 32, 32 }, text = 512,
  model = { in_channels = 64, vec_in_dim = 768, context_in_dim = 4096, hidden_size = 1024,
    mlp_ratio = 4, num_heads = 8, depth = 2, depth_single_blocks = 4, axes_dim = { 16, 56, 56 },
    theta = 10000, qkv_bias = true, guidance_embed = false, cond_embed = false, fused_qkv = false,
    use_liger_rope = true, patch_size = 2 },
}

--- Declares the model of a shape.
---@param params mr.Params
---@param shape table
---@return table net
function cuts.model(params, shape)
  return require("moonreel.models." .. shape.family).new(params, shape.model)
end

-- normally distributed numbers, the same in every run
local function normal(name, shape) return T.new("f32", shape):fill_normal(1, name) end

-- repeats a value for each sample
local function each(samples, of)
  local values = {}
  for i = 1, samples do
    values[i] = of(i)
  end
  return T.from({ samples }, values)
end

-- inputs of a family besides latents and times: tensors, and facts that are not tensors
local others = {}

function others.stdit3(shape)
  local B, c = shape.latent[1], shape.model
  return { y = normal("y", { B, c.model_max_length, c.caption_channels }),
    fps = each(B, function() return 24 end) },
    { height = 8 * shape.latent[4], width = 8 * shape.latent[5] }
end

function others.mmdit(shape)
  local B, c = shape.latent[1], shape.model
  return { y = normal("y", { B, shape.text, c.context_in_dim }),
    vector = normal("vector", { B, 1, c.vec_in_dim }) }, {}
end

--- The inputs of a training step: those of the forward pass by name, `x0`, `noise` and `weight` of
-- the loss, and facts that are not tensors.
---@param shape table
---@return table<string, mr.Tensor> set
---@return table facts
function cuts.inputs(shape)
  local set, facts = others[shape.family](shape)
  local B = shape.latent[1]
  for _, name in ipairs { "x", "x0", "noise" } do
    set[name] = normal(name, shape.latent)
  end
  set.t = each(B, function(i) return 731 * i % 1000 end)
  set.weight = each(B, function() return 1 / B end)
  return set, facts
end

return cuts
