--- Reference files about whole training steps of Open-Sora 2.0: conditions, times, dropped
-- captions, the path and its loss, clip, AdamW, rates and averages, from recorded draws.
-- @module spec.golden.runner.train20
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local condition = require "moonreel.diffusion.condition"
local conditions = require "moonreel.trainer.conditions"
local mmdit = require "moonreel.models.mmdit"
local optim = require "moonreel.optim"
local regions = require "moonreel.optim.regions"
local schedule = require "moonreel.optim.schedule"
local shift = require "moonreel.diffusion.shift"
local shifted = require "moonreel.diffusion.shifted"
local stand_in = require "spec.golden.runner.stand_in"
local tokens = require("spec.golden.runner.mmdit").as_tokens

local LOSS, LR, VALUES, GRADIENTS, PARAM = 1e-5, 1e-6, 2e-5, 1e-4, 1e-3
-- the autoencoder that stands in: pixels of a cell, frames of a latent frame; cells of a token
local SIDE, STEP, CELLS = 8, 4, 4

-- the model with the weights that a file starts from
local function load(f)
  local params = G.params "f32"
  return build.filled(mmdit.new(params, f:need "model"), params, f, "param0.",
    { regions = regions.adamw { ema = true } })
end

-- tokens [B, N, C p p] of a latent of this shape as latents
local function latents(x, shape, p)
  local B, C, frames, H, W = table.unpack(shape)
  return x:reshape { B, frames, H // p, W // p, C, p, p }:permute { 0, 4, 1, 2, 5, 3, 6 }:clone()
    :reshape(shape)
end

-- clean latents of a step's clips, and what a condition gives of them: frames, and latents at their
-- places
local function encoded(f, at)
  local video, W, b = f:tensor(at .. "video"), f:tensor "ae_W", f:tensor "ae_b"
  local function encode(clip) return stand_in.encode(clip, SIDE, STEP, f:need "is_causal", W, b) end
  local text, x0, rows = f.source.metadata.condition_config, {}, {}
  local weights, frames = stand_in.weights('"c": ' .. text, "c"), video.shape[3]
  local draws = f.has[at .. "rand.cond_choice"] and f:list(at .. "rand.cond_choice")
  for i = 0, video.shape[1] - 1 do
    local clip = video:slice(0, i, i + 1):clone()
    x0[i + 1] = encode(clip)
    local latent = x0[1].shape[3]
    local name = draws and condition.draw(condition.fitting(weights, latent, STEP, true),
      draws[i + 1]) or "t2v"
    for _, part in ipairs(condition.parts(name, latent, frames, STEP, true)) do
      rows[#rows + 1] = { b = i, at = part.at, n = part.n,
        z = encode(clip:slice(2, part.first, part.first + part.frames):clone()) }
    end
  end
  x0 = G.concat(x0, 0)
  local z, mask = stand_in.laid(x0.shape, rows)
  return x0, z, mask:slice(3, 0, 1):slice(4, 0, 1):clone():reshape { x0.shape[1], x0.shape[3] }
end

-- captions [B, ...] with the null one in the place of those that are dropped
local function left(f, at, name, of)
  local all, null, share = f:tensor(name):clone(), f:tensor("null_" .. name),
    f:need("dropout_ratio")[of]
  for b, u in ipairs(f:list(at .. "rand.drop_" .. of)) do
    if u < share then
      local row = all:slice(0, b - 1, b)
      row:copy_from(null:reshape(row.shape))
    end
  end
  return all
end

-- inputs of one micro-step, compared with what the reference computed
local function inputs_of(f, result, at, p)
  local x0, z, given = encoded(f, at)
  local alpha, t = shift.alpha({ table.unpack(x0.shape, 3) }, CELLS), {}
  for b, n in ipairs(f:list(at .. "rand.t_normal")) do
    t[b] = shift.logit_normal(n, alpha)
  end
  local B = x0.shape[1]
  local set = { x0 = x0, noise = latents(f:tensor(at .. "rand.noise"), x0.shape, p),
    t = T.from({ B }, t) * 1000, weight = T.new("f32", { B }) + 1, y = left(f, at, "txt", "t5"),
    vector = left(f, at, "vec", "clip") }
  result:absolute(at .. "inp.timesteps", t, f:list(at .. "inp.timesteps"), LR)
  for name, own in pairs { ["x_0"] = tokens(x0, p), ["inp.txt"] = set.y,
      ["inp.y_vec"] = set.vector } do
    result:scaled(at .. name, own, f:tensor(at .. name), VALUES)
  end
  set.vector = set.vector:reshape { B, 1, set.vector.shape[2] }
  return set, given, z
end

-- a program of the loss with its gradients, run over one micro-step
local function run_step(f, result, at, m)
  local c = m.net.config
  local set, given, z = inputs_of(f, result, at, c.patch_size)
  set.guidance = c.guidance_embed and f:tensor(at .. "inp.guidance") or nil
  local g, io = G.graph(m.params), {}
  for name, tensor in pairs(set) do
    io[name] = g:input(name, tensor.dtype, tensor.shape)
  end
  io.cond = c.cond_embed and conditions.nodes(g, { apart = true }, io.x0) or nil
  io.sigma_min = f:need "sigma_min"
  function io.predict(x_t)
    return m.net:forward(g, { x = x_t, t = io.t, y = io.y, vector = io.vector, cond = io.cond,
      guidance = io.guidance })
  end
  local loss, _, seen = shifted.loss(io)
  g:output("loss", loss)
  g:output("x_t", seen.x_t)
  if io.cond then
    g:output("cond", io.cond)
  end
  g:backward(loss, {})
  g:finish()
  local prog <close> = m.run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  if io.cond then
    conditions.set(prog, { given = given, apart = given:to "bool", z = z })
  end
  prog:run()
  for name, at_file in pairs { x_t = "inp.img", cond = io.cond and "inp.cond" } do
    result:scaled(at .. at_file, tokens(prog:get(name), c.patch_size), f:tensor(at .. at_file),
      VALUES)
  end
  return prog:get("loss"):item() / set.x0.shape[1]
end

-- gradients of the first backward pass, which the reference divides by its passes of an update
local function compare_gradients(f, result, m, scale)
  local rows = {}
  for _, name in ipairs(f.names) do
    local own = name:match "^grad_step0%.(.+)"
    rows[#rows + 1] = own and { name, m.run:param("grad", own) * scale, f:tensor(name) } or nil
  end
  result:weights(rows, GRADIENTS)
end

local function compare_state(f, result, m)
  for _, name in ipairs(f.names) do
    local kind, own = name:match "^(%a+)_end%.(.+)$"
    local region = kind == "param" and "master" or kind == "ema" and "ema"
    if region then
      result:l2(name, m.run:param(region, own), f:tensor(name), PARAM)
    end
  end
end

local function train(f, result)
  local m, adam, passes = load(f), f:need "adam", f:need "accumulation_steps"
  for _, p in ipairs(m.params:list()) do
    m.run:set_param("ema", p.name, f:tensor("param0." .. p.name))
  end
  local update = optim.new(m.run, m.params)
  local lr_at = schedule.new { lr = f:need "lr", warmup_steps = f:need "warmup_steps",
    initial_lr = tonumber(f:need "initial_lr") }
  local losses, norms, rates, B = f:list "loss", f:list "grad_norm_before_clip", f:list "lr_used",
    f:need "B"
  for i = 1, #losses do
    local loss = run_step(f, result, ("step%d."):format(i - 1), m)
    result:relative("loss." .. i - 1, { loss }, { losses[i] }, LOSS)
    if i == 1 then
      compare_gradients(f, result, m, 1 / (B * passes))
    end
    result:relative("lr_used." .. i - 1, { lr_at(i - 1) }, { rates[i] }, LR)
    if i % passes == 0 then
      local k = i // passes
      local norm = update:step { lr = lr_at(i - 1), beta1 = adam.betas[1], beta2 = adam.betas[2],
        eps = adam.eps, weight_decay = adam.weight_decay, max_norm = f:need "grad_clip",
        ema_decay = f:need "ema_decay", step = k, grad_scale = 1 / (B * passes) }
      result:relative("grad_norm_before_clip." .. k - 1, { norm }, { norms[k] }, LOSS)
    end
  end
  if #losses % passes ~= 0 then
    base.raise("MR_E_DATA", ("%s: %d steps are no whole updates of %d"):format(f.path, #losses,
      passes))
  end
  compare_state(f, result, m)
end

return { { "^train_i2v", train }, { "^train_image", train } }
