--- Reference files about rectified flow: times, training loss, sampling trajectories.
-- @module spec.golden.runner.flow
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local nn = require "moonreel.nn"
local rflow = require "moonreel.diffusion.rflow"
local text = require "moonreel.models.text"
local regions = require "moonreel.optim.regions"

local VALUES, GRADIENTS, TRAJECTORY, TIMES, TIMES_BF16 = 1e-5, 1e-4, 1e-4, 1e-6, 1e-5

-- ---- rflow_timesteps ----

-- rows of (height, width, num_frames, t) through the transform
local function transformed(f, options)
  local h, w, n, t = f:list("transform.height"), f:list("transform.width"),
    f:list("transform.num_frames"), f:list("transform.t")
  local out = {}
  for i = 1, #t do
    local ratio = rflow.ratio({height = h[i], width = w[i], frames = n[i]}, options)
    out[i] = rflow.transform(t[i], ratio, options.round)
  end
  return out
end

local function timesteps(f, result)
  local function mapped(name, fn)
    local out = {}
    for i, v in ipairs(f:list(name)) do
      out[i] = fn(v)
    end
    return out
  end
  if f.has["uniform.u"] then
    result:relative("uniform.t", mapped("uniform.u", rflow.uniform_t), f:list("uniform.t"), TIMES)
  end
  if f.has["logit_normal.normal"] then
    result:relative("logit_normal.t", mapped("logit_normal.normal", rflow.logit_normal_t),
      f:list("logit_normal.t"), TIMES)
  end
  for _, name in ipairs(f.names) do
    local scale = name:match("^transform%.out_scale([%d.]+)$")
    local n, frames, height, width = name:match("^schedule%.(%d+)%.(%d+)x(%d+)x(%d+)$")
    if name == "transform.out" then
      result:relative(name, transformed(f, {compat = true}), f:list(name), TIMES)
    elseif scale then
      result:relative(name, transformed(f, {compat = true, scale = tonumber(scale)}),
        f:list(name), TIMES)
    elseif name == "transform.out_bf16meta" then
      result:relative(name, transformed(f, {compat = true, round = nn.round_bf16}),
        f:list(name), TIMES_BF16)
    elseif n and tonumber(n) == f.has[name].shape[1] then
      local size = {height = tonumber(height), width = tonumber(width), frames = tonumber(frames)}
      result:relative(name, rflow.schedule(tonumber(n), rflow.ratio(size, {compat = true})),
        f:list(name), TIMES)
    end
  end
end

-- ---- rflow_train_* ----

--- Forward and backward of the training loss over inputs with a prefix; weight 1 per sample.
---@return table  prog, B; outputs loss, per_sample, x_t, pred
local function loss_program(f, prefix, m)
  local inputs = build.inputs(f, prefix, "y", "text_mask")
  local g = G.graph(m.params)
  local set = {x0 = f:tensor(prefix .. "x_start"), noise = f:tensor(prefix .. "noise"),
    t = f:tensor(prefix .. "t"),
    mask = f:find(prefix .. "mask"), y = inputs.y, text_len = inputs.len, fps = inputs.fps}
  local B = set.x0.shape[1]
  local ones = {}
  for b = 1, B do
    ones[b] = 1
  end
  set.weight = T.from({B}, ones)
  local io = {}
  for name, tensor in pairs(set) do
    io[name] = g:input(name, tensor.dtype, tensor.shape)
  end
  io.predict = function(x_t)
    return m.net:forward(g, {x = x_t, t = io.t, fps = io.fps, y = io.y, text_len = io.text_len,
      x_mask = io.mask,
      height = inputs.height, width = inputs.width})
  end
  local loss, per_sample, seen = rflow.loss(io)
  g:output("loss", loss)
  g:output("per_sample", per_sample)
  g:output("x_t", seen.x_t)
  g:output("pred", seen.pred)
  g:backward(loss, {})
  g:finish()
  local prog = m.run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  prog:run()
  return prog, B
end

local function train(f, result)
  local m = build.load(f, {regions = regions.gradients()})
  local prog, B = loss_program(f, "in.", m)
  result:relative("out.loss", {prog:get("loss"):item() / B}, {f:tensor("out.loss"):item()}, VALUES)
  result:l2("out.loss_per_sample", prog:get("per_sample"), f:tensor("out.loss_per_sample"), VALUES)
  result:l2("out.model_out", prog:get("pred"), f:tensor("out.model_out"), VALUES)
  result:l2("out.x_t", prog:get("x_t"), f:tensor("out.x_t"), VALUES)
  local rows = {}
  for _, name in ipairs(f.names) do
    local param = name:match("^grad%.(.+)")
    -- the reference's loss is the mean over the batch, ours the sum: the update divides
    if param then
      rows[#rows + 1] = {name, m.run:param("grad", param) * (1 / B), f:tensor(name)}
    end
  end
  result:gradients(rows, GRADIENTS)
end

-- ---- rflow_sample_* ----

-- [cond; null] text with the mask of the conditional prompts
local function double_text(f, m)
  local y, mask = f:tensor("in.y_cond"), f:tensor("in.text_mask")
  local B, L, C = y.shape[1], y.shape[#y.shape - 1], y.shape[#y.shape]
  local both, null = y:totable(), m.weights:list("y_embedder.y_embedding")
  for _ = 1, B do
    table.move(null, 1, L * C, #both + 1, both)
  end
  return text.pack(T.from({2 * B, L, C}, both), mask)
end

local function repeat_list(list)
  return table.move(list, 1, #list, #list + 1, table.move(list, 1, #list, 1, {}))
end

local function sample(f, result)
  local m = build.load(f, {})
  local z = f:tensor("in.z")
  local B, steps = z.shape[1], f:need("steps")
  local recorded = f.has["out.t_per_step"]
  if not recorded or recorded.shape[1] ~= steps then
    base.raise("MR_E_DATA",
      string.format("%s: steps = %s, but out.t_per_step does not hold as many",
      f.path, tostring(steps)))
  end
  local y, len = double_text(f, m)
  local heights, widths, frames = f:list("in.height"), f:list("in.width"), f:list("in.num_frames")
  local fps = T.from({2 * B}, repeat_list(f:list("in.fps")))

  local g = G.graph(m.params)
  rflow.step(g, {dims = z.shape, guidance = f:need("cfg_scale"),
    masked = f.has["in.mask"] ~= nil,
    predict = function(x, t, x_mask)
      return m.net:forward(g, {x = x, t = t, x_mask = x_mask, fps = g:input("fps", "f32", {2 * B}),
        y = g:input("y", "f32", y.shape), text_len = g:input("len", "i32", {2 * B}),
        height = heights[1], width = widths[1]})
    end})
  g:finish()
  local prog = m.run:compile(g)
  prog:set("fps", fps)
  prog:set("y", y)
  prog:set("len", len)

  -- times per step and sample
  local times = {}
  for b = 1, B do
    local ratio = f.meta.use_timestep_transform
      and rflow.ratio({height = heights[b], width = widths[b], frames = frames[b]},
        {compat = true}, frames[1]) or nil
    for i, t in ipairs(rflow.schedule(steps, ratio)) do
      times[i] = times[i] or {}
      times[i][b] = t
    end
  end
  local flat = {}
  for i = 1, steps do
    table.move(times[i], 1, B, #flat + 1, flat)
  end
  result:relative("out.t_per_step", flat, f:list("out.t_per_step"), TIMES)

  -- frame mask and recorded noise
  local mask
  if f.has["in.mask"] then
    mask = {}
    local values, n = f:list("in.mask"), f:tensor("in.mask").shape[2]
    for b = 1, B do
      mask[b] = table.move(values, (b - 1) * n + 1, b * n, 1, {})
    end
  end
  local noise = mask and f:tensor("in.noise_per_step")
  local function step_of(tensor, i) return tensor:slice(0, i - 1, i) end
  local want_pred, want_z = f:find("out.pred_per_step"), f:find("out.z_in_per_step")
  local out = rflow.run(prog, {z = z, times = times, mask = mask,
    noise = function(i) return step_of(noise, i):reshape(z.shape) end,
    watch = function(i)
      if want_pred then
        result:l2("out.pred_per_step." .. i - 1, prog:get("pred"), step_of(want_pred, i),
          TRAJECTORY)
      end
      if want_z then
        result:l2("out.z_in_per_step." .. i - 1, prog:get("z_start"), step_of(want_z, i),
          TRAJECTORY)
      end
    end})
  result:l2("out.z", out, f:tensor("out.z"), TRAJECTORY)
end

return {{"^rflow_timesteps", timesteps}, {"^rflow_train", train}, {"^rflow_sample", sample},
  loss_program = loss_program}
