--- Reference files about an autoencoder and a discriminator that train against each other, step
-- after step: losses, the adaptive weight, gradients, and all parameters at the end.
-- @module spec.golden.runner.adversary
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local build = require "spec.golden.runner.build"
local clips = require "spec.golden.runner.clips"
local families = require "moonreel.recipe.families"
local file = require "spec.golden.runner.file"
local hunyuan = require "moonreel.models.hunyuan_vae"
local lpips = require "spec.golden.runner.losses"
local losses = require "moonreel.losses"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local optim = require "moonreel.optim"
local regions = require "moonreel.optim.regions"

local SERIES, FIRST, GRADIENTS = 1e-4, 2e-5, 2e-4
local END = 0.05 -- of the learning rate

-- the autoencoder, its losses and both networks with the weights of a file
local function opened(f, c, files)
  local fields = nn.merged(families.of("vae", "hunyuan_vae"):defaults(),
    { block_out_channels = c.channels, layers_per_block = c.layers, latent_channels = c.latent,
      norm_num_groups = c.groups, piece_size = 0 })
  local params = G.params "f32"
  local auto = hunyuan.trained(params, fields, { dtype = "f32" })
  local own = losses.new(params, { perceptual_loss_weight = c.perceptual_weight,
    kl_loss_weight = c.kl_weight, perceptual_network = files.network,
    perceptual_linear = files.linear, adversary = {
      discriminator = { ndf = c.disc_width, n_layers = c.disc_layers, dropout = 0 },
      gen = { gen_start = c.gen_start, disc_weight = c.disc_weight },
      disc = { disc_start = c.disc_start, disc_loss_type = c.disc_loss } } },
    { kl = 0, adversary = true })
  params:seal()
  local run = E.new(build.device(), params, { regions = regions.of(
    { optim = { ema_decay = c.ema } }, nil, "f32", false, params) })
  run:init(0)
  for _, p in ipairs(params:list()) do
    local disc = p.name:match "^discriminator%.(.*)"
    if not p.outside then
      run:set_param(p.frozen and "frozen" or "w", p.name,
        f:tensor("weight." .. (disc and "disc." .. disc or "vae." .. p.name)):to "f32")
      if not (p.frozen or disc) then
        run:set_param("ema", p.name, f:tensor("weight.vae." .. p.name):to "f32")
      end
    end
  end
  own:load(run, params)
  return { auto = auto, losses = own, params = params, run = run }
end

-- the program of a micro-step
local function program(m, f)
  local x, z = f.has["in.x_u8"].shape, f.has["in.noise"].shape
  local g = G.graph(m.params)
  local io = { weight = g:input("weight", "f32", { x[2] }) }
  local pixels = clips.last(g:input("x", "f32", { table.unpack(x, 2) }))
  local y, normal = m.auto:reconstruct(g, pixels,
    clips.last(g:input("noise", "f32", { table.unpack(z, 2) })))
  local all = m.losses:of(g, losses.of_clips(pixels, y, "decoder.conv_out.conv.weight", normal),
    io)
  for name, term in pairs(all.terms) do
    g:output(name, (ops.mean(term)))
  end
  g:output("total", (ops.mean(all.per_sample)))
  g:output("y", clips.first(y))
  g:output("moments", (G.concat(all.moments, 0)))
  g:backward(all.train, {})
  return m.run:compile(g:finish())
end

local LOGS <const> = { reconstruction = "nll_rec", perceptual = "nll_per", generator = "gen",
  generator_weight = "gen_w", discriminator = "disc", total = "total", kl = "kl" }

-- gradients of one model before an update, by the names that a file has for it
local function gradients(f, result, m, at, disc)
  local under = disc and "discriminator." or ""
  local named = setmetatable({ run = { param = function(_, region, name)
    return m.run:param(region, under .. name)
  end } }, { __index = m })
  local own = setmetatable({ names = {}, tensor = function(_, name)
    return f:tensor(at .. (disc and name:gsub("^grad", "disc_grad") or name))
  end }, { __index = f })
  for _, name in ipairs(f.names) do
    local short = name:sub(1, #at) == at and name:sub(#at + 1)
    if short and (short:match "^disc_grad" ~= nil) == disc then
      own.names[#own.names + 1] = short:gsub("^disc_", "")
    end
  end
  result:weights(clips.sums(own, named), GRADIENTS)
end

local function at_end(f, result, m, c)
  for _, p in ipairs(m.params:list()) do
    local disc = p.name:match "^discriminator%.(.*)"
    local name = "end." .. (disc and "disc." .. disc or "vae." .. p.name)
    if not (p.frozen or p.outside) and not name:find "to_k%.bias$" and f.has[name] then
      local rate = disc and c.optim.disc_lr or c.optim.lr
      local apart = m.run:param("w", p.name) - f:tensor(name)
      result:add(name, math.max(apart:max(), -apart:min()) / rate, END)
    end
    name = "end.ema." .. p.name
    if not name:find "to_k%.bias$" and f.has[name] then
      local apart = m.run:param("ema", p.name) - f:tensor(name)
      result:add(name, math.max(apart:max(), -apart:min()) / c.optim.lr, END)
    end
  end
  lpips.running(f, result, m.run, m.params, "end.disc.", SERIES)
end

local function run(f, result)
  local c = f:need "config"
  local narrow = file.open(f.path:match "^(.*/)" .. "lpips_narrow.safetensors")
  local files <close> = lpips.released(narrow, function(name, t)
    return name:find "^features.*bias$" and t + c.lpips_bias_shift or t
  end)
  local m = opened(f, c, files)
  local prog, update = program(m, f), optim.new(m.run, m.params)
  local pixels, noise, series = f:tensor "in.x_u8", f:tensor "in.noise", {}
  local function note(name, value)
    series[name] = series[name] or {}
    table.insert(series[name], value)
  end
  prog:set("weight", T.from({ 1 }, { 1 }))
  for i = 0, c.steps - 1 do
    local which = i % c.batches
    prog:set("x", clips.of_u8(pixels:slice(0, which, which + 1):reshape { table.unpack(pixels.shape,
      2) }))
    prog:set("noise", noise:slice(0, i, i + 1):reshape { table.unpack(noise.shape, 2) })
    -- the file counts steps from 0
    m.losses.adversary:set(prog, i)
    prog:run()
    for ours, theirs in pairs(LOGS) do
      note(theirs, prog:get(ours):item() * (ours == "kl" and c.kl_weight or 1))
    end
    local at = ("step%d."):format(i)
    if f.has[at .. "y"] then
      result:scaled(at .. "y", prog:get "y", f:tensor(at .. "y"), i == 0 and FIRST or GRADIENTS)
      gradients(f, result, m, at, false)
      gradients(f, result, m, at, true)
    end
    m.losses.adversary.network:remember(m.run, prog:get("moments"):reshape { -1 }:totable())
    local o = c.optim
    local _, _, norms = update:start { lr = o.lr, beta1 = o.betas[1], beta2 = o.betas[2],
      eps = o.eps, weight_decay = o.weight_decay, max_norm = o.grad_clip, ema_decay = c.ema,
      step = i + 1, grad_scale = 1, others = { { lr = o.disc_lr, beta1 = o.betas[1],
        beta2 = o.betas[2], eps = o.disc_eps, weight_decay = o.weight_decay } } }()
    note("vae_grad_norm", norms[0])
    note("disc_grad_norm", norms[1])
  end
  for name, values in pairs(series) do
    result:scaled("log." .. name, T.from({ #values }, values), f:tensor("log." .. name), SERIES)
  end
  at_end(f, result, m, c)
end

return { { "^gan_", run } }
