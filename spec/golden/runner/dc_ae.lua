--- Reference files about the video DC-AE: latents and clips, whole and in tiles, gradients; of the
-- reference itself and of other programs.
-- @module spec.golden.runner.dc_ae
local G = require "moonreel.core.graph"
local build = require "spec.golden.runner.build"
local clips = require "spec.golden.runner.clips"
local network = require "moonreel.models.dc_ae.network"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"
local tiles = require "moonreel.nn.tiles"

local VALUES, GRADIENTS, WEIGHTS = 5e-5, 1e-4, 5e-4
local SIDE, STEP = 32, 4

local first, last = clips.first, clips.last

-- sizes as files name them
local function sizes_of(f)
  local c = f:need "config"
  return { in_channels = 3, out_channels = 3, latent_channels = c.latent, widths = c.widths,
    encoder_blocks = c.ed, decoder_blocks = c.dd, types = c.types or c.types_,
    temporal = c.td or { false, false, false, false, false, false } }
end

-- the network of a file with its weights, which stand under a prefix
local function load(f, prefix, frozen)
  local params = G.params "f32"
  local net = network.new(nn.scope(params, "", { frozen = frozen }), sizes_of(f))
  return build.filled(net, params, f, prefix,
    { regions = not frozen and regions.gradients() or nil })
end

-- ---- the reference ----

local function case_of(f, result, m, case, how)
  local function at(name) return case .. "." .. name end
  local scale = f:need(case).scaling_factor
  scale = type(scale) == "number" and scale or 1
  local prog = clips.evaluate(m, { x = f:tensor(at "x"), z = f:tensor(at "z") }, function(g, io)
    local z = tiles.through(g, last(io.x), how.encode,
      function(x) return m.net:encode(g, x) end)
    g:output("z", first((ops.affine(z, { scale = 1 / scale }))))
    g:output("decoded", first(tiles.through(g, (ops.affine(last(io.z), { scale = scale })),
      how.decode, function(v) return m.net:decode(g, v) end)))
  end)
  for _, name in ipairs { "z", "decoded" } do
    result:scaled(at(name), prog:get(name), f:tensor(at(name)), VALUES)
  end
end

-- tiles of `space` pixels and `time` frames, each nil: whole
local function tiles_of(space, time, overlap)
  local how = { encode = {}, decode = {} }
  if space then
    how.encode.space, how.decode.space = tiles.of("space", space, SIDE, overlap, 0)
  end
  if time then
    how.encode.time, how.decode.time = tiles.of("time", time, STEP, overlap, 0)
  end
  return how
end

local function reference(f, result)
  local m, c = load(f, "param.", true), f:need "config"
  for case = 0, 9 do
    if f.has[("plain%d.x"):format(case)] then
      case_of(f, result, m, "plain" .. case, tiles_of())
    end
    local row = f.meta["tiled" .. case]
    if row then
      case_of(f, result, m, "tiled" .. case, tiles_of(row.spatial and c.sp_tile or nil,
        row.temporal and c.t_tile or nil, c.overlap))
    end
  end
end

-- mean(|decode(encode(x)) - target|)
local function gradients(f, result)
  local m = load(f, "param.", false)
  local prog = clips.evaluate(m, { x = f:tensor "x", target = f:tensor "target" }, function(g, io)
    local z = m.net:encode(g, last(io.x))
    local y = first(m.net:decode(g, z))
    local far = y - io.target
    local loss = clips.mean(ops.sqrt(far * far))
    g:output("z", first(z))
    g:output("y", y)
    g:output("loss", loss)
    g:output("dx", g:backward(loss, { io.x })[1])
  end)
  for _, name in ipairs { "z", "y", "loss" } do
    result:scaled(name, prog:get(name), f:tensor(name), VALUES)
  end
  result:scaled("grad_x", prog:get "dx", f:tensor "grad_x", GRADIENTS)
  result:weights(clips.weights(f, m, "^grad%.(.*)"), GRADIENTS)
end

-- ---- other programs ----

local function pictures(f, result)
  local m = load(f, "weight.", true)
  for case = 0, 9 do
    local x = f:find(("in.%d.x"):format(case))
    if x then
      local prog = clips.evaluate(m, { x = x }, function(g, io)
        local z = m.net:encode(g, last(io.x))
        g:output("z", first(z))
        g:output("decoded", first(m.net:decode(g, z)))
      end)
      for _, name in ipairs { "z", "decoded" } do
        local at = ("out.%d.%s"):format(case, name)
        result:scaled(at, prog:get(name), f:tensor(at), VALUES)
      end
    end
  end
end

local function video(f, result)
  for _, case in ipairs { "0", "1", "2", "tiled0", "tiled1" } do
    local pixels = f:find(("in.%s.x_u8"):format(case))
    if pixels then
      local m, x, row = load(f, "weight.", false), clips.of_u8(pixels), f.meta[case] or {}
      local how = tiles_of(row.spatial and row.space or nil, row.temporal and row.time or nil,
        row.overlap)
      local prog = clips.evaluate(m, { x = x }, function(g, io)
        local z = tiles.through(g, last(io.x), how.encode,
          function(v) return m.net:encode(g, v) end)
        local decoded = first(tiles.through(g, z, how.decode,
          function(v) return m.net:decode(g, v) end))
        local loss = clips.mean(decoded * g:const(clips.loss_weight(decoded.shape)))
          + clips.mean(z * z) * 0.01
        g:output("z", first(z))
        g:output("decoded", decoded)
        g:output("loss", loss)
        g:output("dx", g:backward(loss, { io.x })[1])
      end)
      local out, frames = "out." .. case .. ".", f:need("frames")[case]
      result:scaled(out .. "z", prog:get "z", f:tensor(out .. "z"), VALUES)
      clips.kept(f, result, out .. "decoded", frames, prog:get "decoded", VALUES)
      if f.has[out .. "loss"] then
        result:scaled(out .. "loss", prog:get "loss", f:tensor(out .. "loss"), VALUES)
      end
      if f.has[("grad.%s.x.frames"):format(case)] then
        clips.kept(f, result, ("grad.%s.x"):format(case), frames, prog:get "dx", GRADIENTS)
      end
      -- those of weights are the first case's
      if case == "0" then
        result:weights(clips.sums(f, m), WEIGHTS)
      end
    end
  end
end

return { { "^video_dc_ae_grad", gradients }, { "^video_dc_ae", reference },
  { "^dcae_image", pictures }, { "^dcae_video", video } }
