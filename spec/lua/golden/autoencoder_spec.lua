--- Golden files about autoencoders. The models themselves make them here, so they must pass, and
-- fail when a number is changed.
-- Covers: spec/golden/runner/autoencoder.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local folder = dofile "spec/support/folder.lua"
local autoencoder = require "spec.golden.runner.autoencoder"
local file = require "spec.golden.runner.file"
local golden = require "spec.golden.runner"
local kl = require "moonreel.models.autoencoder_2d.kl"
local nn = require "moonreel.nn"
local opensora_vae = require "moonreel.models.opensora_vae"

local SPATIAL = {block_out_channels = {4, 4, 4, 4}, layers_per_block = 1, norm_num_groups = 2}
local TEMPORAL = {filters = 4, num_res_blocks = 1, num_groups = 2}

local function write(path, tensors, metadata)
  local rows = {}
  for name, t in pairs(tensors) do
    local ptr, bytes = t:ptr()
    rows[#rows + 1] = {name = name, dtype = t.dtype, shape = t.shape, ptr = ptr, bytes = bytes}
  end
  ckpt.write(path .. ".safetensors", rows, metadata)
end

-- the weights below a prefix, without the prefix
local function weights_of(params, run, prefix)
  local out = {}
  for _, p in ipairs(params:list()) do
    if p.name:sub(1, #prefix) == prefix then
      out["weight." .. p.name:sub(#prefix + 1)] = run:param("w", p.name)
    end
  end
  return out
end

describe("golden files about autoencoders", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  it("are checked with the weights next to them", function()
    local auto = opensora_vae.new(nil, {micro_frame_size = 17, micro_batch_size = 4})
    local params = G.params("f32")
    auto:declare(nn.scope(params), {where = "here", spatial = SPATIAL, temporal = TEMPORAL,
      scale = {3.85, 2.32, 2.33, 3.06}, shift = {-0.10, 0.34, 0.27, 0.98}})
    params:seal()
    local run = E.new(E.device(), params, {})
    run:init(1)
    local c, x = codec.of(auto, params, run), T.new("f32", {18, 3, 8, 8}):fill_normal(1, "x")
    local noise = c:noise(18, 8, 8, 1)
    local z, decoded = c:encode(x, noise):clone(), T.new("f32", x.shape)
    c:decode(z, {frames = 18, height = 8, width = 8}, function(some, at)
      decoded:slice(0, at, at + some.shape[1]):copy_from(some)
    end)
    local function batch(t)
      local s = t.shape
      return t:permute{1, 0, 2, 3}:clone():reshape{1, s[2], s[1], s[3], s[4]}
    end
    local files = {x = batch(x), z = z:reshape{1, 4, 6, 1, 1}, decoded = batch(decoded),
      ["noise.spatial"] = noise.pictures,
      ["noise.temporal.0"] = batch(noise.frames:slice(0, 0, 5)),
      ["noise.temporal.1"] = batch(noise.frames:slice(0, 5, 6)),
      latent_size = T.from({1, 6}, {18, 8, 8, 6, 1, 1}, "i64")}
    local text = {what = "spatial weights in a_weights.safetensors, temporal in "
      .. "b_weights.safetensors; both random", micro_frame_size = "17", micro_batch_size = "4",
      scale = "[3.85,2.32,2.33,3.06]", shift = "[-0.10,0.34,0.27,0.98]"}
    write(dir.path .. "/a_weights", weights_of(params, run, "spatial_vae.module."),
      {block_out_channels = "[4,4,4,4]", layers_per_block = "1", norm_num_groups = "2"})
    write(dir.path .. "/b_weights", weights_of(params, run, "temporal_vae."),
      {filters = "4", num_res_blocks = "1", channel_multipliers = "[1,2,2,4]", num_groups = "2",
        temporal_downsample = "[false,true,true]"})
    write(dir.path .. "/vae_pipeline", files, text)
    text.what = text.what:gsub("temporal", "nothing")
    write(dir.path .. "/vae_pipeline_lost", files, text)
    text.what = text.what:gsub("nothing", "temporal")
    files.z = files.z * 1.001
    write(dir.path .. "/vae_pipeline_other", files, text)
    local lines = {}
    local sum = golden.run(dir.path, function(line) lines[#lines + 1] = line end)
    assert.equal(1, sum.passed, table.concat(lines, "\n"))
    assert.matches("^PASS vae_pipeline ", lines[3])
    assert.matches("^FAIL vae_pipeline_lost .*'what' names no weights", lines[4])
    assert.matches("^FAIL vae_pipeline_other 0.0%d+ 1e%-05", lines[5])
  end)

  it("of a library are checked to 5e-5, their gradients to 1e-4", function()
    local place <close> = folder.new()
    local config = {block_out_channels = {4, 4}, layers_per_block = 1, norm_num_groups = 2,
      latent_channels = 2}
    local params = G.params("f32")
    kl.new(nn.scope(params), config)
    params:seal()
    local run = E.new(E.device(), params, {})
    run:init(1)
    local tensors = weights_of(params, run, "")
    local x = {1, 3, 6, 10}
    for name, shape in pairs{["in.0.x"] = x, ["in.0.loss_weight"] = x,
      ["out.0.moments"] = {1, 4, 3, 5}, ["out.0.decoded_mean"] = x, ["grad.0.x"] = x,
      ["grad.0.weight.encoder.conv_in.weight"] = {4, 3, 3, 3}} do
      tensors[name] = T.new("f32", shape):fill_normal(1, name)
    end
    local text = {config = '{"channels": [4, 4], "layers": 1, "latent": 2, "groups": 2, '
      .. '"quant": true}'}
    -- the reader's own results become the expected values
    write(place.path .. "/kl2d_own", tensors, text)
    local source <close> = file.open(place.path .. "/kl2d_own.safetensors")
    local library = autoencoder[#autoencoder]
    assert.equal("^kl2d", library[1])
    library[2](source, {scaled = function(_, name, got) tensors[name] = got:clone() end})
    local function judged(name, by)
      local one = {}
      for key, t in pairs(tensors) do
        one[key] = t
      end
      if name then
        local largest, moved = math.max(one[name]:max(), -one[name]:min()), one[name]:totable()
        moved[2] = moved[2] + by * largest
        one[name] = T.from(one[name].shape, moved, "f32")
      end
      write(place.path .. "/kl2d_own", one, text)
      local lines = {}
      golden.run(place.path, function(line) lines[#lines + 1] = line end)
      return lines[1]
    end
    assert.matches("^PASS kl2d_own 0 ", judged())
    for name, tolerance in pairs{["out.0.moments"] = 5e-5, ["out.0.decoded_mean"] = 5e-5,
      ["grad.0.x"] = 1e-4, ["grad.0.weight.encoder.conv_in.weight"] = 1e-4} do
      local said = (" %g"):format(tolerance):gsub("%-", "%%-")
      assert.matches("^PASS kl2d_own .*" .. said .. "$", judged(name, 0.9 * tolerance))
      assert.matches("^FAIL kl2d_own .*" .. said .. " %(" .. name, judged(name, 1.2 * tolerance))
    end
  end)
end)
