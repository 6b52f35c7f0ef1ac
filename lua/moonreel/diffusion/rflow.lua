--- Rectified flow: times, their transform, the loss, and the sampling steps.
-- t runs from 0 (clean) to 1000 (noise); x_t = (1 - t/1000) x0 + (t/1000) noise; the model predicts
-- x0 - noise. Ref: Liu et al. 2022, arXiv:2209.03003; conventions of reference opensora-1.2,
-- section 2.
-- @module moonreel.diffusion.rflow
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local flow = require "moonreel.diffusion.flow"
local lengths = require "moonreel.diffusion.lengths"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"

local rflow = {}

rflow.T = flow.T

--- The name of the flow.
rflow.name = "rflow"
local TINY, NEARLY_ONE = 2.0 ^ -126, 1 - 2.0 ^ -23

-- ---- times ----

--- A time by the uniform method.
---@param u number            uniform in [0, 1)
---@param discrete boolean|nil integers 0..999
function rflow.uniform_t(u, discrete)
  if discrete then
    return math.floor(u * rflow.T)
  end
  return u * rflow.T
end

--- A time by the logit-normal method.
---@param n number  normal with the method's loc and scale
function rflow.logit_normal_t(n)
  local s = 1 / (1 + math.exp(-n))
  return rflow.T * math.min(math.max(s, TINY), NEARLY_ONE)
end

local function exact(x) return x end

local read_ratio = options.declare("rflow.ratio", {
  { "scale", "number", "factor of the transform", default = 1 },
  { "compat", "boolean", "count frames as the reference does, with 0 below 17" },
  { "round", "function", "rounds sizes and their products as the reference does: nn.round_bf16" },
})

--- The factor by which the timestep transform shifts times of one sample.
---@param size table      height, width in pixels; frames: pixel frames; latent_frames
---@param given table|nil  scale (1); compat: count frames as the reference does, with 0 below 17;
---   round: rounds sizes and their products to bf16, as the reference does (nn.round_bf16)
---@param first_frames integer|nil  pixel frames of sample 0: under compat it decides between image
---   and video for the batch
function rflow.ratio(size, given, first_frames)
  local o = read_ratio(given)
  local r, frames = o.round or exact, size.latent_frames
  if o.compat then
    frames = (first_frames or size.frames) == 1 and 1 or r(lengths.counted(r(size.frames)))
  end
  local space = r(r(r(r(size.height) * r(size.width)) / (512 * 512)) ^ 0.5)
  return r(r(space * r(frames ^ 0.5)) * o.scale)
end

--- The factor of the timestep transform for clips of one size, by the settings.
---@param settings table  scheduler, compat
---@param dtype string     compute dtype of the run: under compat a bf16 run rounds sizes
---@param size table       as in rflow.ratio
---@return number|nil ratio    nil: no transform
---@return function|nil round  for rflow.transform and rflow.schedule
function rflow.ratio_of(settings, dtype, size)
  local c, compat = settings.scheduler, settings.compat ~= nil
  if c.shift then
    return c.shift
  end
  if not c.use_timestep_transform then
    return nil
  end
  local round = compat and dtype == "bf16" and nn.round_bf16 or nil
  return rflow.ratio(size, {scale = c.transform_scale, compat = compat, round = round}), round
end

--- Shifts a time; a factor above 1 shifts it towards noise.
---@param round function|nil  as in rflow.ratio
function rflow.transform(t, ratio, round)
  local u = t / rflow.T
  return rflow.T * (ratio * u / (1 + (round or exact)(ratio - 1) * u))
end

--- Draws the training time of one sample; it is the same for every run, rank and order.
---@param config table  sample_method, loc, scale, use_discrete_timesteps
---@param seed integer
---@param key integer     sample key
---@param epoch integer
function rflow.draw_t(config, seed, key, epoch)
  if config.sample_method == "logit-normal" then
    local n = base.random_normal(seed, "t", key, epoch)
    return rflow.logit_normal_t((config.loc or 0) + (config.scale or 1) * n)
  end
  return rflow.uniform_t(base.random_uniform(seed, "t", key, epoch), config.use_discrete_timesteps)
end

--- Refuses a schedule of the shift with a missing or wrong field.
---@param settings table  scheduler
function rflow.check(settings)
  local c = settings.scheduler
  local from, to, steps = c.train_shift_from, c.train_shift, c.train_shift_steps
  if (from == nil) ~= (steps == nil) then
    base.raise("MR_E_RECIPE", ("scheduler.%s = %g: a shift that changes needs both "
      .. "train_shift_from and train_shift_steps; try: train_shift_from = 4, train_shift_steps = "
      .. "function(r) return r.steps // 2 end"):format(from and "train_shift_from"
      or "train_shift_steps", from or steps))
  elseif from and (from == 0 or to == 0) then
    base.raise("MR_E_RECIPE", ("scheduler.%s = 0: a shift that changes has to be above 0 at both "
      .. "ends; try: 0.5"):format(from == 0 and "train_shift_from" or "train_shift"))
  end
end

-- the shift after `step` steps; `to`: at the end of its schedule
local function ratio_at(c, step, to)
  local part = c.train_shift_from and math.min(step / c.train_shift_steps, 1) or 1
  return part < 1 and c.train_shift_from ^ (1 - part) * (to or 1) ^ part or to
end

--- Draws the training time of one sample, shifted by the settings.
---@param settings table  scheduler, compat
---@param pipe mr.Pipeline
---@param size table       height, width, frames: in pixels; latent: {C, T, H, W}
---@param seed integer
---@param key integer      sample key
---@param epoch integer
---@param step integer     number of steps that the run has made
---@return number t        0..1000
---@return number|nil ratio  the factor of the shift, if it changes with the steps
function rflow.draw(settings, pipe, size, seed, key, epoch, step)
  local c = settings.scheduler
  local ratio, round = c.train_shift, nil
  if not ratio then
    ratio, round = rflow.ratio_of(settings, pipe.dtype, {height = size.height, width = size.width,
      frames = size.frames, latent_frames = size.latent[2]})
  end
  ratio = ratio_at(c, step, ratio)
  local t = rflow.draw_t(c, seed, key, epoch)
  return ratio and rflow.transform(t, ratio, round) or t, c.train_shift_from and (ratio or 1) or nil
end

--- The times of a sampling run, from noise down: n values of 0 < t <= 1000.
---@param n integer
---@param ratio number|nil   factor of the timestep transform; nil: no transform
---@param round function|nil  as in rflow.ratio
function rflow.schedule(n, ratio, round)
  local t = {}
  for i = 0, n - 1 do
    local v = (1 - i / n) * rflow.T
    t[i + 1] = ratio and rflow.transform(v, ratio, round) or v
  end
  return t
end

--- The times of a rendering, from noise down, shifted by the settings.
---@param settings table  scheduler, compat
---@param pipe mr.Pipeline
---@param size table       height, width, frames: in pixels; latent: {C, T, H, W}
---@param request table    steps
---@return number[]        0 < t <= 1000, one for each step
function rflow.times(settings, pipe, size, request)
  local ratio, round = rflow.ratio_of(settings, pipe.dtype, {height = size.height,
    width = size.width, frames = size.frames, latent_frames = size.latent[2]})
  return rflow.schedule(request.steps, ratio, round)
end

-- ---- training ----

--- Adds the loss of a batch.
---@param io table   x0, noise: f32 [B, C, T, H, W]; t, weight: f32 [B]; mask: bool [B, T] or nil,
---   true for a noised frame; predict(x_t): the model
---@return mr.Value loss         f32 [], sum of weight x per-sample loss
---@return mr.Value per_sample   f32 [B]
---@return table                 x_t, pred
function rflow.loss(io)
  local mask = io.mask or false
  local x_t = (ops.flow_mix(io.x0, io.noise, io.t, mask))
  local pred = io.predict(x_t)
  local loss, per_sample = ops.flow_loss(pred, io.x0, io.noise, io.weight, mask)
  return loss, per_sample, {x_t = x_t, pred = pred}
end

-- ---- sampling ----

local read_step = options.declare("rflow.step", {
  { "dims", "table", "{B, C, T, H, W}; required" },
  { "guidance", "number", "1: only the half with text; required" },
  { "masked", "boolean", "there is a frame mask" },
  { "predict", "function", "(z, t, x_mask, copies): the model; required" },
})

--- Adds one Euler step with guidance: the graph of a sampling run. It declares the inputs z, noise
-- (only with a mask) f32 [B, C, T, H, W]; t, dt f32 [B]; add, active bool [B, T] (only with a
-- mask): frames that get noise now, frames that move. It declares the outputs z, pred (first C
-- channels for [cond; null]), z_start (the input of the model).
---@param g mr.Graph
---@param given table  dims {B, C, T, H, W}, guidance (1: only the half with text), masked,
---   predict(z, t, x_mask, copies): the model on [copies x B, ...] samples
function rflow.step(g, given)
  local o = read_step(given)
  local dims, cfg = o.dims, o.guidance
  local B, C, frames = dims[1], dims[2], dims[3]
  local copies = cfg == 1 and 1 or 2
  local z, t, dt = g:input("z", "f32", dims), g:input("t", "f32", {B}), g:input("dt", "f32", {B})
  local start, active, x_mask = z, nil, nil
  local function twice(v) return copies == 1 and v or G.concat({v, v}, 0) end
  if o.masked then
    active = g:input("active", "bool", {B, frames})
    start = (ops.flow_mix(z, g:input("noise", "f32", dims), t, g:input("add", "bool", {B, frames})))
    x_mask = twice(active)
  end
  local pred = o.predict(twice(start), twice(t), x_mask, copies)
  local v = nn.cast(pred:slice(1, 0, C), "f32")
  g:output("pred", v)
  if copies == 2 then
    local cond, null = v:slice(0, 0, B), v:slice(0, B, 2 * B)
    v = null + (cond - null) * cfg
  end
  local moved = start + v * nn.spread(dt, {0}, dims)
  if active then
    moved = (ops.where(nn.spread(active, {0, 2}, dims), moved, z))
  end
  g:output("z_start", start)
  g:output("z", moved)
end

--- Which frames get noise and which move at time t, with a frame mask of the sampler: a frame of 1
-- is generated, a frame of 0 is kept, a frame in between does not change until t falls to mask x
-- 1000.
---@param mask table     rows of numbers [B][T]
---@param t table        [B]
---@param noised table    rows of booleans, updated in place; start with rflow.noised(mask)
---@return table add, table active   flat lists of 0 and 1, [B x T]
function rflow.frame_state(mask, t, noised)
  local add, active = {}, {}
  for b, row in ipairs(mask) do
    for f, m in ipairs(row) do
      local on = m * rflow.T >= t[b]
      add[#add + 1] = (on and not noised[b][f]) and 1 or 0
      active[#active + 1] = on and 1 or 0
      noised[b][f] = on
    end
  end
  return add, active
end

--- The frames that start as pure noise.
function rflow.noised(mask)
  local out = {}
  for b, row in ipairs(mask) do
    out[b] = {}
    for f, m in ipairs(row) do
      out[b][f] = m == 1
    end
  end
  return out
end

--- Runs the steps of a compiled sampling graph.
---@param prog mr.Program     of a graph from rflow.step, with its other inputs set
---@param io table            z: tensor [B, ...]; times: list of steps, each a list [B]; mask: rows
---   or nil; noise(step): a tensor of new noise, only with a mask; watch(step, prog, z): called
---   after each step
---@return mr.Tensor z
function rflow.run(prog, io)
  local T = require "moonreel.core.tensor"
  local z, n, B = io.z, #io.times, #io.times[1]
  local noised = io.mask and rflow.noised(io.mask)
  for i, t in ipairs(io.times) do
    local dt = {}
    for b = 1, B do
      dt[b] = (t[b] - (i < n and io.times[i + 1][b] or 0)) / rflow.T
    end
    prog:set("z", z)
    prog:set("t", T.from({B}, t))
    prog:set("dt", T.from({B}, dt))
    if io.mask then
      local add, active = rflow.frame_state(io.mask, t, noised)
      local dims = {B, #io.mask[1]}
      prog:set("add", T.from(dims, add, "bool"))
      prog:set("active", T.from(dims, active, "bool"))
      prog:set("noise", io.noise(i))
    end
    prog:run()
    z = prog:get("z")
    if io.watch then
      io.watch(i, prog, z)
    end
  end
  return z
end

return rflow
