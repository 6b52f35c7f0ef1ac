--- Reference files about the losses of an autoencoder that trains: distances of pictures for a
-- network that knows pictures, sums and divergences of clips.
-- @module spec.golden.runner.losses
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local build = require "spec.golden.runner.build"
local ckpt = require "moonreel.ckpt"
local clips = require "spec.golden.runner.clips"
local losses = require "moonreel.losses"
local ops = require "moonreel.core.op"
local adversarial = require "moonreel.losses.adversarial"
local discriminator = require "moonreel.losses.discriminator"
local perceptual = require "moonreel.losses.perceptual"
local temporary = require "moonreel.data.temporary"

local DISTANCE, VALUES = 1e-5, 1e-5

--- The two files of the released form in a folder of their own, of tensors "weight.NAME".
---@param f mr.GoldenFile
---@param change nil|fun(name: string, t: mr.Tensor): mr.Tensor
---@return table files  network, linear: paths; closes with the folder
local function released(f, change)
  local files = temporary.folder()
  local rows = { network = {}, linear = {} }
  for _, name in ipairs(f.names) do
    local own = name:match "^weight%.(.*)"
    local t = own and f:tensor(name) or nil
    t = t and change and change(own, t) or t
    local list = own and rows[own:match "^lin" and "linear" or "network"]
    local values = t and t:bytes()
    if list then
      list[#list + 1] = { name = own, dtype = "f32", shape = t.shape, ptr = values,
        bytes = #values }
    end
  end
  files.network, files.linear = files.path .. "/vgg.safetensors", files.path .. "/lpips.safetensors"
  ckpt.write(files.network, rows.network)
  ckpt.write(files.linear, rows.linear)
  return files
end

-- [B, C, H, W] to [B, 1, H, W, C]
local function last(x)
  local B, C, H, W = table.unpack(x.shape)
  return x:permute { 0, 2, 3, 1 }:reshape { B, 1, H, W, C }
end

local function distance(f, result)
  local files <close> = released(f)
  local params = G.params "f32"
  local net = perceptual.new(params, files)
  params:seal()
  local run = E.new(build.device(), params, {})
  net:load(run, params)
  local inputs = { x = f:tensor "in.x", y = f:tensor "in.y" }
  local prog = clips.evaluate({ params = params, run = run }, inputs, function(g, io)
    local d = net:distance(g, last(io.x), last(io.y))
    g:output("distance", d)
    g:output("dy", g:backward((ops.sum(d)), { io.y })[1])
  end)
  result:scaled("out.distance", prog:get "distance", f:tensor "out.distance", DISTANCE)
  result:scaled("grad.y", prog:get "dy", f:tensor "grad.y", DISTANCE)
end

-- ---- sums over clips ----

-- the mean over samples of each term, for a network whose distances the file has
local function sums(f, result)
  local params = G.params "f32"
  params:seal()
  local m = { params = params, run = E.new(build.device(), params, { regions = {} }) }
  local inputs = { x = f:tensor "rec.video", y = f:tensor "rec.recon",
    kl = f:tensor "kl_per_sample", distances = f:tensor "rec.perceptual" }
  local prog = clips.evaluate(m, inputs, function(g, io)
    local own = losses.new(params, { perceptual_loss_weight = 0, kl_loss_weight = 5e-4 },
      { kl = 0 })
    own.perceptual_weight, own.network = 0.5, { distance = function()
      return io.distances:reshape { io.distances.shape[1] }
    end }
    local clip = losses.of_clips(clips.last(io.x), clips.last(io.y))
    clip.kl = io.kl
    local all = own:of(g, clip, { weight = ops.affine(io.kl, { scale = 0, shift = 1 }) })
    all.terms.kl = (ops.affine(io.kl, { scale = own.kl_weight }))
    all.terms.nll = all.per_sample - all.terms.kl
    for name, term in pairs(all.terms) do
      g:output(name, clips.mean(term))
    end
  end)
  for name, want in pairs { reconstruction = "recon_loss", perceptual = "perceptual_loss",
      kl = "kl_loss", nll = "nll_loss" } do
    result:scaled("rec." .. want, prog:get(name), f:tensor("rec." .. want), VALUES)
  end
end

-- ---- a discriminator ----

-- the running numbers of the discriminator against those of a file
local function running(f, result, run, params, prefix, tolerance)
  for _, p in ipairs(params:list()) do
    local own = p.name:match "^discriminator%.(.*running_.*)"
    if own then
      result:scaled(prefix .. own, run:param("frozen", p.name), f:tensor(prefix .. own), tolerance)
    end
  end
end

local function judged(f, result)
  local c = f:need "discriminator"
  local params = G.params "f32"
  local net = discriminator.new(params, c)
  params:seal()
  local m = { params = params, run = E.new(build.device(), params, {}) }
  for _, p in ipairs(params:list()) do
    local own = p.name:sub(#"discriminator." + 1)
    m.run:set_param(p.frozen and "frozen" or "w", p.name,
      f:tensor((p.frozen and "buffer." or "param.") .. own))
  end
  local x, y = f:tensor "x", f:tensor "y"
  local prog = clips.evaluate(m, { x = x, y = y }, function(g, io)
    local real, of_real = net:forward(g, clips.last(io.x), {}, "real")
    local fake, of_fake = net:forward(g, clips.last(io.y), {}, "fake")
    g:output("real", real)
    g:output("fake", fake)
    g:output("moments", (G.concat({ of_real, of_fake }, 0)))
    g:output("judged", net:judge(g, clips.last(io.x)))
    for _, kind in ipairs { "hinge", "vanilla", "wgan-gp" } do
      g:output(kind, clips.mean(adversarial.loss(kind, real, fake)))
    end
  end)
  result:scaled("train.out_x", prog:get "real", f:tensor "train.out_x", VALUES)
  result:scaled("train.out_y", prog:get "fake", f:tensor "train.out_y", VALUES)
  for _, kind in ipairs { "hinge", "vanilla", "wgan-gp" } do
    local name = "disc_loss." .. kind
    result:scaled(name, prog:get(kind), f:tensor(name), VALUES, 1)
  end
  -- by the running numbers that the file begins with
  result:scaled("eval.out", prog:get "judged", f:tensor "eval.out", VALUES)
  net:remember(m.run, prog:get("moments"):totable())
  running(f, result, m.run, params, "buffer_after.", VALUES)
end

-- the weight of a layer of one product, where the losses are a square and a tanh
local function weighed(f, result)
  local params = G.params "f32"
  params:seal()
  local x, w = f:tensor "gen.x", f:tensor "gen.w"
  local prog = clips.evaluate({ params = params, run = E.new(build.device(), params, {}) },
    { x = x, w = w }, function(g, io)
      local y = ops.matmul(io.x, io.w, { tb = true })
      local squares = ops.affine(ops.sum(y * y), { scale = 1 / 7 })
      -- tanh y = 2 / (1 + exp(-2 y)) - 1
      local one = ops.affine(ops.exp((ops.affine(y, { scale = -2 }))), { scale = 1, shift = 1 })
      local tanh = ops.affine(ops.affine(one, { scale = 0, shift = 2 }) / one, { shift = -1 })
      local loss = ops.affine(ops.mean(tanh), { scale = -1 })
      local weight = adversarial.weight(g:gradients(squares, { io.w })[1],
        g:gradients(loss, { io.w })[1], tonumber(f:need "note":match "disc_weight ([%d.]+)"))
      g:output("weighted", weight * loss:reshape { 1 })
    end)
  result:scaled("gen.weighted", prog:get "weighted", f:tensor "gen.weighted", VALUES)
end

local function all_losses(f, result)
  sums(f, result)
  judged(f, result)
  weighed(f, result)
end

return { { "^lpips_", distance }, { "^vae_train_losses", all_losses }, released = released,
  running = running }
