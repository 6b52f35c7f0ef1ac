--- Reference files about the update: learning rates, AdamW with clip and averages, whole training
-- steps.
-- @module spec.golden.runner.update
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local flow = require "spec.golden.runner.flow"
local optim = require "moonreel.optim"
local regions = require "moonreel.optim.regions"
local schedule = require "moonreel.optim.schedule"

local LR, ADAMW, LOSS, PARAM = 1e-5, 1e-6, 1e-4, 1e-3

local function lr_schedules(f, result)
  for name, c in pairs(f:need("configs")) do
    local config = {compat = true, kind = name:find("^onecycle") and "1cycle" or "constant"}
    for k, v in pairs(c) do
      config[k] = v
    end
    local at, want, got = schedule.new(config), f:list(name), {}
    for i = 1, #want do
      got[i] = at(i - 1)
    end
    result:relative(name, got, want, LR)
  end
end

-- a parameter table from tensors prefix .. 0, 1, ...
local function params_of(f, prefix)
  local params, n = G.params("f32"), 0
  while f.has[prefix .. n] do
    params:add{name = "p" .. n, shape = f.has[prefix .. n].shape, init = {kind = "zeros"}}
    n = n + 1
  end
  params:seal()
  return params, n
end

local function adamw_ema(f, result)
  local params, n = params_of(f, "in.param.")
  local run = E.new(build.device(), params, {regions = regions.adamw{ema = true}})
  local update = optim.new(run, params)
  for i = 0, n - 1 do
    run:set_param("master", "p" .. i, f:tensor("in.param." .. i))
    run:set_param("ema", "p" .. i, f:tensor("in.param." .. i))
  end
  local betas, norms = f:need("betas"), f:list("out.grad_norm")
  for step, lr in ipairs(f:list("in.lr")) do
    for i = 0, n - 1 do
      run:set_param("grad", "p" .. i, f:tensor(("in.grad.step%d.%d"):format(step - 1, i)))
    end
    local norm = update:step{lr = lr, beta1 = betas[1], beta2 = betas[2], eps = f:need("eps"),
      weight_decay = f:need("weight_decay"), max_norm = f:need("max_norm"),
        ema_decay = f:need("ema_decay"),
      step = step, grad_scale = 1}
    result:relative("out.grad_norm." .. step - 1, {norm}, {norms[step]}, ADAMW)
    for region, name in pairs{master = "param", ema = "ema", adam_m = "exp_avg",
        adam_v = "exp_avg_sq"} do
      for i = 0, n - 1 do
        local full = ("out.%s.step%d.%d"):format(name, step - 1, i)
        if f.has[full] then
          result:l2(full, run:param(region, "p" .. i), f:tensor(full), ADAMW)
        end
      end
    end
  end
end

-- the key half of this bias has an exactly zero gradient: a tiny eps makes full-size steps of
-- rounding noise
local function without_key_half(name, tensor)
  if name:find("cross_attn%.kv_linear%.bias$") then
    return tensor:slice(0, tensor.shape[1] // 2, tensor.shape[1])
  end
  return tensor
end

local function train_steps(f, result)
  local h = f:need("hyper")
  local m = build.load(f, {regions = regions.adamw{ema = true}}, {freeze_y_embedder = h.freeze})
  local update = optim.new(m.run, m.params)
  local frozen = {}
  for _, p in ipairs(m.params:list()) do
    frozen[p.name] = p.frozen or p.buffer
    if not frozen[p.name] then
      m.run:set_param("ema", p.name, m.weights:tensor(p.name))
    end
  end
  local lr_at = schedule.new{kind = "constant", lr = h.lr, warmup_steps = h.warm}
  local losses, norms, lrs = f:list("out.loss"), f:list("out.grad_norm"), f:list("out.lr")
  for i = 1, #losses do
    local prog, B = flow.loss_program(f, ("in.step%d."):format(i - 1), m)
    local loss = prog:get("loss"):item() / B
    local lr = lr_at(i - 1)
    local norm = update:step{lr = lr, beta1 = h.beta1 or 0.9, beta2 = h.beta2 or 0.999,
      eps = h.eps, weight_decay = h.wd,
      max_norm = h.clip, ema_decay = h.ema, step = i, grad_scale = 1 / B}
    result:relative("out.loss." .. i - 1, {loss}, {losses[i]}, LOSS)
    result:relative("out.grad_norm." .. i - 1, {norm}, {norms[i]}, LOSS)
    result:relative("out.lr." .. i - 1, {lr}, {lrs[i]}, LR)
  end
  for _, name in ipairs(f.names) do
    local kind, param = name:match("^out%.(%a+)%.(.+)$")
    if kind == "param" or kind == "ema" then
      if frozen[param] == nil then
        base.raise("MR_E_DATA", string.format("%s: no parameter '%s'", f.path, param))
      end
      local region = frozen[param] and "frozen" or (kind == "ema" and "ema" or "master")
      result:l2(name, without_key_half(param, m.run:param(region, param)),
        without_key_half(param, f:tensor(name)), PARAM)
    end
  end
end

return {{"^lr_schedules", lr_schedules}, {"^adamw_ema", adamw_ema}, {"^train_steps", train_steps}}
