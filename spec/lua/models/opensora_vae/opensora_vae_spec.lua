--- The video autoencoder of Open-Sora 1.2: sizes, pieces, causality, names and sizes of its files.
-- Covers: lua/moonreel/models/opensora_vae/init.lua lua/moonreel/models/opensora_vae/temporal.lua
-- Covers: lua/moonreel/models/opensora_vae/sizes.lua lua/moonreel/models/opensora_vae/weights.lua
-- Covers: lua/moonreel/models/autoencoder_2d/kl.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local folder = dofile "spec/support/folder.lua"
local kl = require "moonreel.models.autoencoder_2d.kl"
local nn = require "moonreel.nn"
local opensora_vae = require "moonreel.models.opensora_vae"
local sizes = require "moonreel.models.opensora_vae.sizes"
local temporal = require "moonreel.models.opensora_vae.temporal"

local SMALL = {filters = 8, num_res_blocks = 1, num_groups = 4}

local function count(declare)
  local params, n = G.params("f32"), 0
  declare(nn.scope(params))
  params:seal()
  for _, p in ipairs(params:list()) do
    n = n + p.count
  end
  return n
end

-- results of the temporal half for clips x, in the requested order
local function over(x, build)
  local params = G.params("f32")
  local net = temporal.new(nn.scope(params), SMALL)
  params:seal()
  local exec = E.new(E.device("cpu", 1), params, {})
  exec:init(3)
  local g = G.graph(params)
  g:output("y", build(g, net, g:input("x", "f32", x.shape)))
  g:finish()
  local prog = exec:compile(g)
  prog:set("x", x)
  prog:run()
  return prog:get("y")
end

describe("models.opensora_vae", function()
  it("has as many parameters as the released one", function()
    assert.equal(309687144, count(function(scope) temporal.new(scope, {}) end))
    assert.equal(83653863, count(function(scope) kl.new(scope, {}) end))
  end)

  it("has the requested numbers of blocks and groups in each level", function()
    local small = {block_out_channels = {8, 16}, norm_group_channels = 4,
      mid_block_add_attention = false}
    local function names(blocks)
      local params, has = G.params("f32"), {}
      small.layers_per_block = blocks
      kl.new(nn.scope(params), small)
      params:seal()
      for _, p in ipairs(params:list()) do
        has[p.name] = p.shape
      end
      return has
    end
    local has = names{0, 1}
    assert.is_nil(has["encoder.down_blocks.0.resnets.0.conv1.weight"])
    assert.is_nil(has["decoder.up_blocks.1.resnets.0.conv1.weight"])
    assert.is_nil(has["encoder.mid_block.attentions.0.to_q.weight"])
    assert.same({16, 8, 3, 3}, has["encoder.down_blocks.1.resnets.0.conv1.weight"])
    -- the step to a level without blocks has the width of that level
    assert.same({8, 16, 3, 3}, has["decoder.up_blocks.0.upsamplers.0.conv.weight"])
    assert.is_nil(names{1, 1}["decoder.up_blocks.0.resnets.1.conv1.weight"])
    assert.is_table(names(1)["decoder.up_blocks.0.resnets.1.conv1.weight"])
  end)

  it("computes the latent size of clips of any length, piece by piece", function()
    local auto = opensora_vae.new(nil, {micro_frame_size = 17, micro_batch_size = 4})
    local whole = opensora_vae.new(nil, {micro_batch_size = 4})
    for frames, latent in pairs{[1] = 1, [16] = 4, [17] = 5, [18] = 6, [51] = 15, [102] = 30} do
      assert.same({4, latent, 15, 26}, auto:latent(frames, 127, 213))
      assert.equal(-(-frames // 4), whole:latent(frames, 8, 8)[2])
    end
    assert.same({17, 17, 4}, auto:pieces(38))
    assert.same({38}, whole:pieces(38))
  end)

  it("computes which frames the first and the last latent frames represent", function()
    local auto = opensora_vae.new(nil, {micro_frame_size = 17, micro_batch_size = 4})
    assert.equal(34, auto:head(10))
    local ok, problem = pcall(auto.head, auto, 7)
    assert.is_false(ok)
    assert.matches("7 latent frames are not a whole number of pieces; expected a multiple of 5$",
      tostring(problem))
    assert.equal(17, auto:tail(102, 5))
    assert.equal(34, auto:tail(102, 6))
    -- a short last piece has fewer latent frames
    assert.equal(4 + 17, auto:tail(38, 5))
    assert.equal(38, opensora_vae.new(nil, {}):tail(38, 5))
  end)

  it("computes a latent frame without later frames", function()
    local x = T.new("f32", {1, 8, 2, 3, 4}):fill_normal(1, "x")
    local other = x:clone()
    other:slice(1, 4, 8):copy_from(T.new("f32", {1, 4, 2, 3, 4}):fill_normal(2, "x"))
    local function first(net) return function(g, v) return net.encoder[1](g, v) end end
    local function conv(clip)
      return over(clip, function(g, net, v) return first(net)(g, v) end):slice(1, 0, 4):clone()
    end
    assert.same(conv(x):totable(), conv(other):totable())
  end)

  it("makes one frame of each two and the frame before them", function()
    local x = T.new("f32", {1, 4, 2, 3, 16}):fill_normal(1, "x")
    local function halved(clip)
      return over(clip, function(g, net, v) return net.encoder[4](g, v) end)
    end
    local was, seen = halved(x), {}
    for frame = 0, 3 do
      local other = x:clone()
      other:slice(1, frame, frame + 1):copy_from(T.new("f32", {1, 1, 2, 3, 16}))
      local now = halved(other)
      for t = 0, 1 do
        local change = (now:slice(1, t, t + 1):clone() - was:slice(1, t, t + 1):clone()):totable()
        seen[#seen + 1] = math.max(table.unpack(change)) > 0
      end
    end
    assert.same({true, false, true, true, false, true, false, true}, seen)
  end)

  it("pads clips to whole latent frames at the beginning, and drops that padding",
    function()
      local x = T.new("f32", {1, 5, 2, 3, 4}):fill_normal(1, "x")
      local padded = T.new("f32", {1, 8, 2, 3, 4})
      padded:slice(1, 3, 8):copy_from(x)
      local function encode(g, net, v) return net:encode(g, v) end
      assert.same(over(padded, encode):totable(), over(x, encode):totable())
      local z = T.new("f32", {1, 2, 2, 3, 4}):fill_normal(1, "z")
      local function decode(frames)
        return over(z, function(g, net, v) return net:decode(g, v, frames) end)
      end
      assert.same({1, 5, 2, 3, 4}, decode(5).shape)
      assert.same(decode(8):slice(1, 3, 8):clone():totable(), decode(5):totable())
    end)

  it("gives a constant channel a scale of a thousandth", function()
    local auto = opensora_vae.new(nil, {})
    -- 8 values a channel: mean and deviation 3 and 2; 5 and 0; 1 and negative by rounding; -0.5 and
    -- just above the minimum
    local shift, scale = auto:normalisation({24, 40, 8, -4}, {104, 200, 8 - 1e-7, 2 + 8 * 4e-6}, 8)
    assert.same({3, 5, 1, -0.5}, shift)
    for k, want in ipairs{2, 1e-3, 1e-3, 2e-3} do
      assert.near(want, scale[k], 1e-9)
    end
  end)

  describe("sizes in config.json", function()
    local auto, dir = opensora_vae.new(nil, {}), folder.new()
    teardown(function() dir:remove() end)

    local function read(text)
      dir:write("config.json", text)
      return sizes.read(dir.path)
    end

    it("are those of the released model when there is no file", function()
      local config = sizes.read("no such folder")
      assert.same({128, 256, 512, 512}, config.spatial.block_out_channels)
      assert.equal(128, config.temporal.filters)
      assert.same({-0.10, 0.34, 0.27, 0.98}, config.shift)
    end)

    it("come from both halves, or from the fields of a picture autoencoder", function()
      local config = read [[{"vae_2d": {"layers_per_block": 1}, "vae_temporal": {"filters": 64,
        "temporal_downsample": [true, false, true]}, "scale": [1, 2, 3, 4]}]]
      assert.equal(1, config.spatial.layers_per_block)
      assert.equal(64, config.temporal.filters)
      assert.same({true, false, true}, config.temporal.temporal_downsample)
      assert.same({1, 2, 3, 4}, config.scale)
      assert.equal(3, read('{"layers_per_block": 3}').spatial.layers_per_block)
      assert.equal(2, read('{"vae_2d": {"layers_per_block": null}}').spatial.layers_per_block)
    end)

    it("are refused when they are not valid sizes", function()
      for text, report in pairs{
        ['{"vae_2d": {"layers_per_block": "two"}}'] = "vae_2d%.layers_per_block is two; expected "
          .. "a value like 2$",
        ['{"vae_temporal": {"filters": 0}}'] = "vae_temporal%.filters is 0; expected",
        ['{"block_out_channels": [8, true]}'] = "block_out_channels is %[8,true%]; expected a "
          .. "value like %[128,256,512,512%]$",
        ['{"layers_per_block": [1, 2]}'] = "layers_per_block is %[1,2%]; expected a value like 2$",
        ['{"layers_per_block": [1, 2, -1, 0]}'] = "layers_per_block is %[1,2,%-1,0%]; expected",
        ['{"shift": [1, 2]}'] = "shift is %[1,2%]; expected 4 numbers$",
      } do
        local ok, problem = pcall(read, text)
        assert.is_false(ok)
        assert.equal("MR_E_CKPT", problem.code)
        assert.matches("config%.json: " .. report, tostring(problem))
      end
    end)

    it("are refused when they belong to another autoencoder", function()
      local function declare(text)
        local ok, problem = pcall(function()
          auto:declare(nn.scope(G.params("f32")), read(text))
        end)
        assert.is_false(ok)
        return tostring(problem)
      end
      assert.matches("vae_2d: latent_channels 16; this autoencoder has 4$",
        declare '{"vae_2d": {"latent_channels": 16}}')
      assert.matches("vae_2d: pixels of a cell's side 4; this autoencoder has 8$",
        declare '{"vae_2d": {"block_out_channels": [32, 64, 64]}}')
      assert.matches("vae_temporal: frames of a latent frame 2; this autoencoder has 4$",
        declare '{"vae_temporal": {"temporal_downsample": [false, false, true]}}')
    end)
  end)
end)
