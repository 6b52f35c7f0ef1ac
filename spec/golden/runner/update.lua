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
local matrices = require "moonreel.optim.matrices"
local ops = require "moonreel.core.op"
local schedule = require "moonreel.optim.schedule"
local T = require "moonreel.core.tensor"

local LR, ADAMW, LOSS, PARAM = 1e-5, 1e-6, 1e-4, 1e-3
-- of the learning rate; codes that are off by one; of a scale: 1 - beta2 is of a beta2 in f32,
-- which alone is 1.3e-5
local ADAM8, CODES8, SCALE8 = 0.01, 1e-3, 2e-5
-- of the largest weight; MUON_BF16: where the file's rounds were of bf16
local MUON, MUON_BF16 = 1e-4, 1.4e-3

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

-- torch.optim.Muon, each parameter one block
local function muon(f, result)
  local h, params, list = f:need "defaults", G.params "f32", {}
  if h.ns_steps ~= 5 or table.concat(h.ns_coefficients, " ") ~= "3.4445 -4.775 2.0315" then
    base.raise("MR_E_DATA", f.path .. ": other rounds of Newton-Schulz than five of the published "
      .. "coefficients")
  end
  local scale = h.adjust_lr_fn == "match_rms_adamw" and "match_rms" or "original"
  while f.has["in.p" .. #list] do
    local name = "p" .. #list
    params:add{name = name, shape = f.has["in." .. name].shape, init = {kind = "zeros"}}
    list[#list + 1] = name
  end
  params:seal()
  local run = E.new(build.device(), params, {regions = {{name = "grad", dtype = "f32"},
    {name = "m", dtype = "f32"}}})
  local g = G.graph(params)
  local hyper, sumsq = g:input("hyper", "f64", {12}), g:input("sumsq", "f64", {1})
  for _, p in ipairs(params:list()) do
    local rows, cols = p.shape[1], p.shape[2]
    local function region(name) return g:region(name, "f32", p.offset, {p.count}) end
    ops.muon(region "w", region "grad", region "m", false, false, hyper, sumsq, {rows = rows,
      cols = cols, scale = matrices.scale(scale, rows, cols), nesterov = h.nesterov})
    run:set_param("w", p.name, f:tensor("in." .. p.name))
  end
  local prog, steps = run:compile(g:finish()), {}
  for _, n in ipairs(f:need "steps") do
    steps[n] = true
  end
  prog:set("sumsq", T.from({1}, {0}, "f64"))
  prog:set("hyper", T.from({12}, {h.lr, h.momentum, 0, h.eps, h.weight_decay, 0, 0, 1, 1, 0, 0, 0},
    "f64"))
  for step = 1, f.has["in.grad.p0"].shape[1] do
    for _, name in ipairs(list) do
      run:set_param("grad", name, f:tensor("in.grad." .. name):slice(0, step - 1, step)
        :reshape(f.has["in." .. name].shape))
    end
    prog:run()
    for _, name in ipairs(steps[step] and list or {}) do
      local got = run:param("w", name)
      for kind, most in pairs {out32 = MUON, out = MUON_BF16} do
        local full = ("%s.%d.%s"):format(kind, step, name)
        result:scaled(full, got, f:tensor(full), most)
      end
    end
  end
end

-- gradient of a step, as the file's metadata says it
local function gradient(scale, step)
  local list = {}
  for i = 0, #scale - 1 do
    local at = (7919 * i + 104729 * step + 31 * i * step) % 1010
    list[i + 1] = scale[i + 1] * string.unpack("<f", string.pack("<f", (at + 0.5) / 505 - 1))
  end
  return T.from({#list}, list)
end

-- codes off by one share of `most`, none by more
local function same_codes(result, name, got, want, most)
  local other, n = 0, #want
  for i, code in ipairs(want) do
    if math.abs(code - got[i]) > 1 then
      result:exact(name, 1)
    end
    other = other + (code ~= got[i] and 1 or 0)
  end
  result:add(name, other / n, most)
end

-- AdamW with moments of 8 bits; the tensors of the file lie in blocks of their own
local function adam8(f, result)
  local h = f:need "config"
  local function map(has_sign)
    local codes = {}
    for i = 1, 256 do
      codes[i] = i - 1
    end
    return ops.decode_dynamic8(T.from({256}, codes, "u8"), T.from({1}, {1}),
      {signed = has_sign, block = 256}):totable()
  end
  result:absolute("map.signed", map(true), f:list "map.signed", 1e-6)
  result:absolute("map.unsigned", map(false), f:list "map.unsigned", 1e-6)
  local sumsq, n = T.from({1}, {0}, "f64"), 0
  while f.has[("in.%d.param"):format(n)] do
    local start = f:tensor(("in.%d.param"):format(n))
    local count, scale = T.count(start.shape), f:list(("in.%d.scale"):format(n))
    local blocks, p = (count + h.block - 1) // h.block, start:reshape{count}
    local states = {}
    for i = 1, 2 do
      states[i] = {how = {signed = i == 1, block = h.block}, codes = T.new("u8", {count}),
        scale = T.new("f32", {blocks}), numbers = T.new("f32", {count})}
    end
    for step = 1, h.steps do
      local _, m, v
      p, _, m, v = ops.adamw(p, gradient(scale, step), states[1].numbers, states[2].numbers, false,
        false, T.from({12}, {h.lr, h.betas[1], h.betas[2], h.eps, h.weight_decay, 0, 0, step, 1, 0,
        0, 0}, "f64"), sumsq, {})
      for i, numbers in ipairs{m, v} do
        local s = states[i]
        s.numbers = numbers
        if count >= h.min_8bit_size then
          s.codes, s.scale = ops.encode_dynamic8(numbers, s.codes, s.scale, s.how)
          s.numbers = ops.decode_dynamic8(s.codes, s.scale, s.how)
        end
      end
      local at = ("out.%d.%d."):format(step, n)
      if f.has[at .. "param"] then
        result:absolute(at .. "param", p:totable(), f:list(at .. "param"), ADAM8 * h.lr)
      end
      for i, s in ipairs(f.has[at .. "state1"] and states or {}) do
        same_codes(result, at .. "state" .. i, s.codes:totable(),
          f:list(at .. "state" .. i), CODES8)
        result:relative(at .. "absmax" .. i, s.scale:totable(),
          f:list(at .. "absmax" .. i), SCALE8)
      end
    end
    n = n + 1
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
    frozen[p.name] = p.frozen
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

return {{"^lr_schedules", lr_schedules}, {"^adamw_ema", adamw_ema}, {"^train_steps", train_steps},
  {"^muon", muon}, {"^adam8", adam8}}
