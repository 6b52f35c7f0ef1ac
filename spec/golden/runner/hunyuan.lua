--- Reference files about the Hunyuan video autoencoder: moments, latents, clips, gradients; of the
-- reference itself and of a library.
-- @module spec.golden.runner.hunyuan
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local build = require "spec.golden.runner.build"
local clips = require "spec.golden.runner.clips"
local families = require "moonreel.recipe.families"
local hunyuan = require "moonreel.models.hunyuan_vae"
local network = require "moonreel.models.hunyuan_vae.network"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"
local tiles = require "moonreel.nn.tiles"

local VALUES, ONE_FRAME, GRADIENTS, LONG = 5e-5, 1e-4, 1e-4, 5e-4
-- gradients of the reference: its numbers are 1.4e-4 from those of f64, as f32 of any program is
local REFERENCE = 3e-4

-- fields of a file: the reference's own names, or those of the oracles
local function fields_of(f)
  local c = f:need "config"
  if c.channels then
    c = { block_out_channels = c.channels, layers_per_block = c.layers, latent_channels = c.latent,
      norm_num_groups = c.groups, mid_block_add_attention = c.attention,
      time_compression_ratio = c.time_ratio }
  end
  return nn.merged(families.of("vae", "hunyuan_vae"):defaults(), c)
end

-- the autoencoder of a file with its weights, which stand under a prefix
local function load(f, prefix, frozen)
  local fields = fields_of(f)
  local auto, params = hunyuan.new(nil, fields, { dtype = "f32" }), G.params "f32"
  local net = network.new(nn.scope(params, "", { frozen = frozen }), fields)
  local m = build.filled(net, params, f, prefix,
    { regions = not frozen and regions.gradients() or nil })
  m.auto = auto
  return m
end

local first, last = clips.first, clips.last

-- per sample, summed over its latents
local function divergence(normal)
  local terms = normal.mean * normal.mean + ops.exp(normal.logvar) - normal.logvar
  return (ops.sum(ops.affine(terms, { scale = 0.5, shift = -0.5 }), { axes = { 1, 2, 3, 4 } }))
end

-- the normal whose moments these are, and nothing drawn from it
local function normal_of(g, moments)
  local s = moments.shape
  local still = g:const(T.new("f32", { s[1], s[2], s[3], s[4], s[5] // 2 }))
  local _, normal = require("moonreel.nn.volume").draw(moments, still)
  return normal
end

-- ---- the reference ----

local function plain(f, result, m, case)
  local function at(name) return case .. "." .. name end
  local x = f:tensor(at "x")
  local prog = clips.evaluate(m, { x = x, eps = f:tensor(at "eps"), z = f:tensor(at "z_mode") },
    function(g, io)
      local moments = m.net:encode(g, last(io.x))
      local z, normal = require("moonreel.nn.volume").draw(moments, last(io.eps))
      g:output("mean", first(normal.mean))
      g:output("logvar", first(normal.logvar))
      g:output("kl", divergence(normal))
      g:output("z_sample", first(m.auto:scaled(z)))
      g:output("z_mode", first(m.auto:scaled(normal.mean)))
      g:output("decoded", first(m.net:decode(g, m.auto:unscaled(last(io.z)))))
    end)
  for _, name in ipairs { "mean", "logvar", "kl", "z_sample", "z_mode", "decoded" } do
    if f.has[at(name)] then
      result:scaled(at(name), prog:get(name), f:tensor(at(name)),
        x.shape[3] == 1 and ONE_FRAME or VALUES)
    end
  end
  local size = f:need(case)
  local got = m.auto:latent(size.T, size.H, size.W)
  for i, want in ipairs(size.get_latent_size) do
    result:exact(at "latent size", got[i + 1] == want and 0 or 1)
  end
end

-- the tiles of a case: sides in pixels and frames, and what steps and blends follow
local function tiles_of(space, time, side, step)
  local function of(tile, move, cell, more)
    local latent, latent_step = tile // cell, move // cell
    return { tile = tile, step = move, blend = latent - latent_step, keep = latent_step,
      more = more },
      { tile = latent, step = latent_step, blend = tile - move, keep = move, more = more }
  end
  local encode, decode = {}, {}
  if space then
    encode.space, decode.space = of(space[1], space[2], side, 0)
  end
  if time then
    encode.time, decode.time = of(time[1], time[2], step, 1)
  end
  return encode, decode
end

local function tiled(f, result, m, case)
  local c = f:need(case)
  local function at(name) return case .. "." .. name end
  local encode, decode = tiles_of(
    c.spatial and { c.tile_sample_min_size, c.tile_sample_min_size * 3 // 4 } or nil,
    c.temporal and { c.tile_sample_min_tsize, c.tile_sample_min_tsize * 3 // 4 } or nil,
    m.auto.side, m.auto.step)
  local inputs = { x = f:tensor(at "x"), z = f:tensor(at "z_mode") }
  local prog = clips.evaluate(m, inputs, function(g, io)
    local moments = tiles.through(g, last(io.x), encode,
      function(x) return m.net:encode(g, x) end)
    local normal = normal_of(g, moments)
    g:output("mean", first(normal.mean))
    g:output("logvar", first(normal.logvar))
    g:output("z_mode", first(m.auto:scaled(normal.mean)))
    g:output("decoded", first(tiles.through(g, m.auto:unscaled(last(io.z)), decode,
      function(z) return m.net:decode(g, z) end)))
  end)
  for _, name in ipairs { "mean", "logvar", "z_mode", "decoded" } do
    result:scaled(at(name), prog:get(name), f:tensor(at(name)), VALUES)
  end
end

local function reference(f, result)
  local m, case = load(f, "param.", true), 0
  while f.has[("plain%d.x"):format(case)] do
    plain(f, result, m, "plain" .. case)
    case = case + 1
  end
  case = 0
  while f.has[("tiled%d.x"):format(case)] do
    tiled(f, result, m, "tiled" .. case)
    case = case + 1
  end
end

-- the clip of the mode, a frame at a time
local function in_pieces(f, result, m)
  local prog = clips.evaluate(m, { x = f:tensor "x" }, function(g, io)
    local mode = normal_of(g, m.net:encode(g, last(io.x), 1)).mean
    g:output("z", first(m.auto:scaled(mode)))
    g:output("y", first(m.net:decode(g, mode, 1)))
  end)
  for _, name in ipairs { "z", "y" } do
    result:scaled(name .. " in pieces", prog:get(name), f:tensor(name), VALUES)
  end
end

-- gradients of all weights; mean(decode(mode) w) + 1e-3 mean(kl)
local function gradients(f, result)
  local m = load(f, "param.", false)
  local inputs = { x = f:tensor "x", w = f:tensor "w" }
  local prog = clips.evaluate(m, inputs, function(g, io)
    local normal = normal_of(g, m.net:encode(g, last(io.x)))
    local z = m.auto:scaled(normal.mean)
    local y = first(m.net:decode(g, m.auto:unscaled(z)))
    local loss = clips.mean(y * io.w) + clips.mean(divergence(normal)) * 1e-3
    g:output("z", first(z))
    g:output("y", y)
    g:output("loss", loss)
    g:output("dx", g:backward(loss, { io.x })[1])
  end)
  for _, name in ipairs { "z", "y" } do
    result:scaled(name, prog:get(name), f:tensor(name), VALUES)
  end
  in_pieces(f, result, m)
  result:scaled("loss", prog:get "loss", f:tensor "loss", VALUES)
  result:scaled("grad_x", prog:get "dx", f:tensor "grad_x", REFERENCE)
  result:weights(clips.weights(f, m, "^grad%.(.*)"), REFERENCE)
end

-- ---- a library ----

-- loss of a library's file
local function loss_of(moments, decoded, weight)
  return clips.mean(decoded * weight) + clips.mean(moments * moments) * 0.01
end

-- clips in tiles, whose sides and steps the file has
local function library_tiled(f, result)
  local m, case = load(f, "weight.", true), 0
  while f.has[("in.tiled%d.x"):format(case)] do
    local c = f:need("tiled" .. case)
    local encode, decode = tiles_of(c.space_tile > 0 and { c.space_tile, c.space_step } or nil,
      c.time_tile > 0 and { c.time_tile, c.time_step } or nil, m.auto.side, m.auto.step)
    local prog = clips.evaluate(m, { x = f:tensor(("in.tiled%d.x"):format(case)) }, function(g, io)
      local moments = tiles.through(g, last(io.x), encode,
        function(x) return m.net:encode(g, x) end)
      g:output("moments", first(moments))
      g:output("decoded_mean", first(tiles.through(g, (moments:split(4, 2)), decode,
        function(z) return m.net:decode(g, z) end)))
    end)
    for _, name in ipairs { "moments", "decoded_mean" } do
      local at = ("out.tiled%d.%s"):format(case, name)
      result:scaled(at, prog:get(name), f:tensor(at), VALUES)
    end
    case = case + 1
  end
end

local function library(f, result)
  library_tiled(f, result)
  for case = 0, 9 do
    local function at(what, name) return ("%s.plain%d.%s"):format(what, case, name) end
    if f.has[at("in", "x")] then
      local x = f:tensor(at("in", "x"))
      local m = load(f, "weight.", false)
      local prog = clips.evaluate(m, { x = x, weight = f:tensor(at("in", "loss_weight")) },
        function(g, io)
          local moments = m.net:encode(g, last(io.x))
          local decoded = first(m.net:decode(g, (moments:split(4, 2))))
          g:output("moments", first(moments))
          g:output("decoded_mean", decoded)
          g:output("dx", g:backward(loss_of(moments, decoded, io.weight), { io.x })[1])
        end)
      local values = x.shape[3] == 1 and ONE_FRAME or VALUES
      for _, name in ipairs { "moments", "decoded_mean" } do
        result:scaled(at("out", name), prog:get(name), f:tensor(at("out", name)), values)
      end
      result:scaled(at("grad", "x"), prog:get "dx", f:tensor(at("grad", "x")), GRADIENTS)
      result:weights(clips.weights(f, m, ("^grad%%.plain%d%%.weight%%.(.*)"):format(case)),
        GRADIENTS)
    end
  end
end

-- ---- a long clip of a library ----

-- frames of a tile and its step, which the library's class has by itself: the file's note says that
-- norms span all frames, but its numbers are those of tiles
local TILES = { 16, 12 }

local function long(f, result)
  local m, x = load(f, "weight.", false), clips.of_u8(f:tensor "in.x_u8")
  local weight = clips.loss_weight(x.shape)
  local encode, decode = tiles_of(nil, TILES, m.auto.side, m.auto.step)
  local prog = clips.evaluate(m, { x = x, weight = weight }, function(g, io)
    local moments = tiles.through(g, last(io.x), encode, function(v) return m.net:encode(g, v) end)
    local decoded = first(tiles.through(g, (moments:split(4, 2)), decode,
      function(z) return m.net:decode(g, z) end))
    local loss = loss_of(moments, decoded, io.weight)
    g:output("moments", first(moments))
    g:output("decoded", decoded)
    g:output("loss", loss)
    g:output("dx", g:backward(loss, { io.x })[1])
  end)
  result:scaled("out.moments", prog:get "moments", f:tensor "out.moments", VALUES)
  result:scaled("out.loss", prog:get "loss", f:tensor "out.loss", VALUES)
  local frames = f:need "frames"
  clips.kept(f, result, "out.decoded_mean", frames, prog:get "decoded", VALUES)
  clips.kept(f, result, "grad.x", frames, prog:get "dx", GRADIENTS)
  result:weights(clips.sums(f, m), LONG)
end

return { { "^hunyuan_vae_grad", gradients }, { "^hunyuan_vae", reference },
  { "^hunyuan_long", long }, { "^hunyuan_", library } }
