--- Reference files about the losses of an autoencoder that trains: distances of pictures for a
-- network that knows pictures, sums and divergences of clips.
-- @module spec.golden.runner.losses
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local ckpt = require "moonreel.ckpt"
local clips = require "spec.golden.runner.clips"
local losses = require "moonreel.losses"
local ops = require "moonreel.core.op"
local perceptual = require "moonreel.losses.perceptual"

local DISTANCE, VALUES = 1e-5, 1e-5

--- The two files of the released form in a folder of their own, of tensors "weight.NAME".
---@param f mr.GoldenFile
---@param change nil|fun(name: string, t: mr.Tensor): mr.Tensor
---@return table files  network, linear: paths; closes with the folder
local function released(f, change)
  local dir = os.tmpname()
  os.remove(dir)
  base.make_dir(dir)
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
  local files = { network = dir .. "/vgg.safetensors", linear = dir .. "/lpips.safetensors" }
  ckpt.write(files.network, rows.network)
  ckpt.write(files.linear, rows.linear)
  return setmetatable(files, { __close = function() os.execute("rm -r '" .. dir .. "'") end })
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
    local all, terms = own:of(g, clip)
    terms.kl = (ops.affine(io.kl, { scale = own.kl_weight }))
    terms.nll = all - terms.kl
    for name, term in pairs(terms) do
      g:output(name, clips.mean(term))
    end
  end)
  for name, want in pairs { reconstruction = "recon_loss", perceptual = "perceptual_loss",
      kl = "kl_loss", nll = "nll_loss" } do
    result:scaled("rec." .. want, prog:get(name), f:tensor("rec." .. want), VALUES)
  end
end

return { { "^lpips_", distance }, { "^vae_train_losses", sums }, released = released }
