--- The flow of Open-Sora 2.0: the model predicts noise - x0, and the more cells a clip has, the
-- more its times shift towards noise. t runs from 0 (clean) to 1000 (noise); with u = t / 1000, x_t
-- = (1 - u) x0 + (u + sigma_min (1 - u)) noise, whose derivative by u is (1 - sigma_min) noise -
-- x0. Ref: opensora-2.0.md 2.2, 2.3; Lipman et al. 2023, arXiv:2210.02747.
-- @module moonreel.diffusion.shifted
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local flow = require "moonreel.diffusion.flow"
local guide = require "moonreel.diffusion.guide"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local shift = require "moonreel.diffusion.shift"

local shifted = {}

--- The name of the flow.
shifted.name = "shifted"

-- the reference trains as if a token had 2 x 2 cells, whatever its patch size
local CELLS_THEN <const> = 4

-- the defaults of fields of scheduler
local PLAIN <const> = {use_timestep_transform = false, sample_method = "uniform",
  use_discrete_timesteps = false, loc = 0, scale = 1, transform_scale = 1}

--- Refuses fields of another flow's times.
---@param settings table  scheduler
function shifted.check(settings)
  local c = settings.scheduler
  local function refuse(name)
    base.raise("MR_E_RECIPE", ("scheduler.%s is %s: model.type = %s does not use it and draws "
      .. "its times from a logistic normal that shifts with the number of tokens; try: leave it "
      .. "out"):format(name,
      tostring(c[name]), settings.model.type))
  end
  for name, plain in pairs(PLAIN) do
    if c[name] ~= nil and c[name] ~= plain then
      refuse(name)
    end
  end
  for _, name in ipairs {"shift", "train_shift", "train_shift_from", "train_shift_steps"} do
    if c[name] then
      refuse(name)
    end
  end
end

-- cells of a token
local function cells_of(pipe) return pipe.model.config.patch_size ^ 2 | 0 end

-- the factor of the shift for a size
local function alpha_of(size, cells) return shift.alpha({table.unpack(size.latent, 2)}, cells) end

--- Draws the training time of one sample. A run in bf16 rounds it to bf16.
---@param settings table  compat; train_times: "uniform", otherwise by the size
---@param pipe mr.Pipeline
---@param size table       latent: {C, T, H, W}
---@param seed integer
---@param key integer      sample key
---@param epoch integer
---@return number t        0..1000
function shifted.draw(settings, pipe, size, seed, key, epoch)
  local t
  if settings.train_times == "uniform" then
    t = base.random_uniform(seed, "t", key, epoch)
  else
    local alpha = alpha_of(size, settings.compat and CELLS_THEN or cells_of(pipe))
    t = shift.logit_normal(base.random_normal(seed, "t", key, epoch), alpha)
  end
  return flow.T * (pipe.dtype == "bf16" and nn.round_bf16(t) or t)
end

--- Adds the loss of a batch: the mean square of the model's error.
---@param io table   x0, noise: f32 [B, C, T, H, W]; t, weight: f32 [B]; mask: bool [B, T] or nil,
---   true for a frame that counts; sigma_min: share of noise that a clean clip keeps; predict(x_t):
---   the model
---@return mr.Value per_sample   f32 [B]
---@return table                 x_t, pred
function shifted.loss(io)
  local noise, kept = io.noise, ops.affine(io.noise, {scale = io.sigma_min})
  local x_t = (ops.flow_mix(io.x0 + kept, noise, io.t, false))
  local pred = io.predict(x_t)
  local loss, per_sample = ops.flow_loss(pred, noise - kept, io.x0, io.weight, io.mask or false)
  return loss, per_sample, {x_t = x_t, pred = pred}
end

-- ---- sampling ----

--- The times of a rendering, from noise down to 0: one more than there are steps.
---@param pipe mr.Pipeline
---@param size table     latent: {C, T, H, W}
---@param request table  steps; shift: shift times; flow_shift: by this factor; nil: by that of the
---   size
---@return number[]      0..1000
function shifted.times(_, pipe, size, request)
  local alpha = request.flow_shift or alpha_of(size, cells_of(pipe))
  local times = shift.schedule(request.steps, request.shift and alpha or nil)
  for i, t in ipairs(times) do
    times[i] = flow.T * t
  end
  return times
end

--- Adds one Euler step. It declares the inputs z f32 [B, C, T, H, W]; t f32 [B]; dt f32 [1]; with
-- two copies text f32 [1], with three also image f32 [T]: scales of moonreel.diffusion.guide. It
-- declares the outputs pred, the predictions for all copies, and z.
---@param g mr.Graph
---@param given table  dims: {B, C, T, H, W}; copies: 1: no guidance; 2: guidance by text: the
---   prompts, then the negative ones; 3: also by a condition: then also the negative ones without
---   it; predict(z, t): the model on copies x B samples
function shifted.step(g, given)
  local dims, copies = given.dims, given.copies
  local B = dims[1]
  local z, t = g:input("z", "f32", dims), g:input("t", "f32", {B})
  local dt = g:input("dt", "f32", {1})
  local function all(value)
    local list = {}
    for i = 1, copies do
      list[i] = value
    end
    return copies == 1 and value or (G.concat(list, 0))
  end
  local v = nn.cast(given.predict(all(z), all(t)), "f32")
  g:output("pred", v)
  if copies > 1 then
    v = guide.mix(v, g:input("text", "f32", {1}),
      copies == 3 and g:input("image", "f32", {dims[3]}) or nil)
  end
  g:output("z", z + v * dt:reshape {1, 1, 1, 1, 1}:expand(dims))
end

--- Runs the steps of a compiled sampling graph.
---@param prog mr.Program  of a graph from shifted.step, with its other inputs set
---@param io table         z: tensor [B, ...]; times: from shifted.times; copies: as in the step;
---   guided: scales for moonreel.diffusion.guide; kind: the condition; takes_guidance: the model
---   has an input `guidance` for that of text; watch(step, prog, z): called after each step
---@return mr.Tensor z
function shifted.run(prog, io)
  local z, steps, copies = io.z, #io.times - 1, io.copies
  local B, frames = z.shape[1], z.shape[3]
  for i = 0, steps - 1 do
    local t, text = io.times[i + 1], (guide.scales(io.guided, i))
    prog:set("z", z)
    prog:set("t", T.new("f32", {B}) + t)
    prog:set("dt", T.from({1}, {(io.times[i + 2] - t) / flow.T}))
    if io.takes_guidance then
      prog:set("guidance", T.new("f32", {copies * B}) + text)
    end
    if copies > 1 then
      prog:set("text", T.from({1}, {text}))
    end
    if copies > 2 then
      prog:set("image", T.from({frames}, guide.image(io.guided, io.kind, i, steps, frames)))
    end
    prog:run()
    z = prog:get("z")
    if io.watch then
      io.watch(i + 1, prog, z)
    end
  end
  return z
end

return shifted
