--- Reference files about autoencoders: halves of a video autoencoder, both in a row, and those that
-- a library made, with gradients.
-- @module spec.golden.runner.autoencoder
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local autoencoder_2d = require "moonreel.models.autoencoder_2d"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local clips = require "spec.golden.runner.clips"
local codec = require "moonreel.codec"
local file = require "spec.golden.runner.file"
local kl = require "moonreel.models.autoencoder_2d.kl"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local opensora_vae = require "moonreel.models.opensora_vae"
local regions = require "moonreel.optim.regions"
local temporal = require "moonreel.models.opensora_vae.temporal"

local VALUES, LIBRARY, GRADIENTS = 1e-5, 5e-5, 1e-4

-- a network with the weights of a file
local function model(f, make, options)
  local params = G.params("f32")
  return build.filled(make(nn.scope(params)), params, f, "weight.", options)
end

-- [N, C, H, W] or [B, C, T, H, W], channels first to last and back
local function last(x)
  local s = x.shape
  if #s == 4 then
    return x:permute{0, 2, 3, 1}:reshape{s[1], 1, s[3], s[4], s[2]}
  end
  return clips.last(x)
end

local function first(x, pictures)
  local s = x.shape
  if pictures then
    return x:reshape{s[1], s[3], s[4], s[5]}:permute{0, 3, 1, 2}
  end
  return clips.first(x)
end

local function spatial_config(f)
  return {block_out_channels = f:need("block_out_channels"),
    layers_per_block = f:need("layers_per_block"), norm_num_groups = f:need("norm_num_groups")}
end

local function temporal_config(f)
  return {filters = f:need("filters"), num_res_blocks = f:need("num_res_blocks"),
    channel_multipliers = f:need("channel_multipliers"), num_groups = f:need("num_groups"),
    temporal_downsample = f:need("temporal_downsample")}
end

local function vae_2d(f, result)
  local m = model(f, function(scope) return kl.new(scope, spatial_config(f)) end)
  local prog = clips.evaluate(m, {x = f:tensor("x")}, function(g, io)
    local moments = m.net:encode(g, last(io.x))
    g:output("moments", first(moments, true))
    local mean = moments:split(4, 2)
    g:output("recon_of_mean", first(m.net:decode(g, mean), true))
  end)
  for _, name in ipairs{"moments", "recon_of_mean"} do
    result:l2(name, prog:get(name), f:tensor(name), VALUES)
  end
end

local function vae_temporal(f, result)
  local m = model(f, function(scope) return temporal.new(scope, temporal_config(f)) end)
  local case = "case0."
  while f.has[case .. "x"] do
    local frames = f:list(case .. "num_frames")[1]
    local prog = clips.evaluate(m, {x = f:tensor(case .. "x")}, function(g, io)
      local moments = m.net:encode(g, last(io.x))
      local mean, logvar = moments:split(4, 2)
      g:output("moments", first(moments))
      g:output("mean", first(mean))
      g:output("std", first((ops.exp((ops.affine(ops.clamp(logvar, {low = -30, high = 20}),
        {scale = 0.5}))))))
      g:output("recon", first(m.net:decode(g, mean, frames)))
    end)
    for _, name in ipairs{"moments", "mean", "std", "recon"} do
      result:l2(case .. name, prog:get(name), f:tensor(case .. name), VALUES)
    end
    case = ("case%d."):format(case:match("%d+") + 1)
  end
end

-- the file beside this one that holds weights, as its description names it
local function beside(f, pattern)
  local name = f:need("what"):match(pattern)
  if not name then
    base.raise("MR_E_DATA", ("%s: 'what' names no weights (%s)"):format(f.path, pattern))
  end
  return file.open(f.path:match("^(.*/)") .. name)
end

-- draws of all pieces, frames first
local function recorded_noise(f)
  local parts = {}
  while f.has["noise.temporal." .. #parts] do
    parts[#parts + 1] = f:tensor("noise.temporal." .. #parts)
  end
  local all = G.concat(parts, 2)
  return {pictures = f:tensor("noise.spatial"),
    frames = all:reshape{table.unpack(all.shape, 2)}:permute{1, 0, 2, 3}:clone()}
end

local function vae_pipeline(f, result)
  local auto = opensora_vae.new(nil, {micro_frame_size = f:need("micro_frame_size"),
    micro_batch_size = f:need("micro_batch_size")})
  for i = 0, f.has.latent_size.shape[1] - 1 do
    local row = table.move(f:list("latent_size"), 6 * i + 1, 6 * i + 6, 1, {})
    local got = auto:latent(row[1], row[2], row[3])
    result:exact("latent_size", (got[2] == row[4] and got[3] == row[5] and got[4] == row[6]) and 0
      or 1)
  end
  local pictures <close> = beside(f, "spatial weights in (%S-%.safetensors)")
  local frames <close> = beside(f, "temporal in (%S-%.safetensors)")
  local params = G.params("f32")
  auto:declare(nn.scope(params), {where = f.path, spatial = spatial_config(pictures),
    temporal = temporal_config(frames), scale = f:need("scale"), shift = f:need("shift")})
  params:seal()
  local run = E.new(build.device(), params, {})
  run:init(0)
  build.fill(run, params, pictures, "weight.", "spatial_vae.module.")
  build.fill(run, params, frames, "weight.", "temporal_vae.")
  local coder, x = codec.of(auto, params, run), f:tensor("x")
  local size = {frames = x.shape[3], height = x.shape[4], width = x.shape[5]}
  local clip = x:reshape{3, size.frames, size.height, size.width}:permute{1, 0, 2, 3}:clone()
  result:l2("z", coder:encode(clip, recorded_noise(f)):clone(), f:tensor("z"), VALUES)
  local want = f:tensor("z")
  local decoded = T.new("f32", clip.shape)
  coder:decode(want:reshape{table.unpack(want.shape, 2)}, size, function(some, at)
    decoded:slice(0, at, at + some.shape[1]):copy_from(some)
  end)
  result:l2("decoded", decoded:permute{1, 0, 2, 3}:clone(), f:tensor("decoded"), VALUES)
end

-- a library's autoencoder: moments, reconstruction of the mean, gradients of
-- mean(reconstruction x weight) + 0.01 mean(moments ^ 2)
local function library(f, result)
  local c = f:need("config")
  local m = model(f, function(scope)
    return kl.new(scope, {block_out_channels = c.channels, layers_per_block = c.layers,
      latent_channels = c.latent, norm_num_groups = c.groups, use_quant_conv = c.quant,
      use_post_quant_conv = c.quant})
  end, {regions = regions.gradients()})
  local case = 0
  while f.has[("in.%d.x"):format(case)] do
    local function at(name) return ("%s.%d.%s"):format(name:match("^%w+"), case,
      name:match("%.(.*)")) end
    local inputs = {x = f:tensor(at("in.x")), weight = f:tensor(at("in.loss_weight"))}
    local prog = clips.evaluate(m, inputs, function(g, io)
      local moments = m.net:encode(g, last(io.x))
      local decoded = m.net:decode(g, (moments:split(4, 2)))
      g:output("moments", first(moments, true))
      g:output("decoded_mean", first(decoded, true))
      local loss = clips.mean(first(decoded, true) * io.weight)
        + clips.mean(moments * moments) * 0.01
      g:output("dx", g:backward(loss, {io.x})[1])
    end)
    for _, name in ipairs{"moments", "decoded_mean"} do
      result:scaled(at("out." .. name), prog:get(name), f:tensor(at("out." .. name)), LIBRARY)
    end
    result:scaled(at("grad.x"), prog:get("dx"), f:tensor(at("grad.x")), GRADIENTS)
    for _, row in ipairs(clips.weights(f, m, ("^grad%%.%d%%.weight%%.(.*)"):format(case))) do
      result:scaled(row[1], row[2], row[3], GRADIENTS)
    end
    -- gradients are added up over cases
    m.run:write("grad", 0, T.new("f32", {m.params:elements(false)}))
    case = case + 1
  end
end

-- the reference's autoencoder of pictures, frame by frame; latents of the mean
local function pictures(f, result)
  local auto = autoencoder_2d.new(nil, nn.merged({norm_groups = 32}, f:need("config")),
    {dtype = "f32"})
  local params = G.params("f32")
  local m = build.filled(auto:parts()[1].declare(params), params, f, "param.")
  local case = 0
  while f.has[("case%d.x"):format(case)] do
    local function at(name) return ("case%d.%s"):format(case, name) end
    local shape = f.has[at("x")].shape
    local prog = clips.evaluate(m, {x = f:tensor(at("x")), z = f:tensor(at("z"))},
      function(g, io)
        local B, C, frames, H, W = table.unpack(shape)
        local moments = m.net:encode(g, clips.last(io.x):reshape{B * frames, 1, H, W, C})
        local function of_clips(v)
          return v:reshape{B, frames, v.shape[3], v.shape[4], v.shape[5]}:permute{0, 4, 1, 2, 3}
        end
        local mean, logvar = moments:split(4, 2)
        g:output("mean", of_clips(mean))
        g:output("logvar", of_clips((ops.clamp(logvar, {low = -30, high = 20}))))
        g:output("z", of_clips(auto:scaled(mean)))
        local z = clips.last(io.z)
        g:output("decoded", of_clips(m.net:decode(g, auto:unscaled(z:reshape{B * frames, 1,
          z.shape[3], z.shape[4], z.shape[5]}))))
      end)
    for _, name in ipairs{"mean", "logvar", "z", "decoded"} do
      result:scaled(at(name), prog:get(name), f:tensor(at(name)), LIBRARY)
    end
    case = case + 1
  end
end

return {{"^vae_2d", vae_2d}, {"^autoencoder_2d", pictures}, {"^vae_temporal", vae_temporal},
  {"^vae_pipeline", vae_pipeline}, {"^kl2d", library}}
