--- Ranks that share clips run autoencoders with the results of one rank: latents, pictures, and
-- gradients summed over the ranks.
-- MOONREEL_DEVICE names the device.
-- Covers: lua/moonreel/nn/shared.lua lua/moonreel/nn/rows.lua lua/moonreel/nn/channels.lua
-- lua/moonreel/models/latents.lua lua/moonreel/models/autoencoder_2d/kl.lua
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local rank_cases = require "spec.support.rank_cases"
local shared = require "moonreel.nn.shared"

-- Four ranks run cases of four ranks and fewer. A case has a name, a job, a family with its
-- variant, ranks, what they share, frames, height and width.
local CASES = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local cases, nn, ops = require "spec.support.rank_cases", require "moonreel.nn",
  require "moonreel.core.op"
local shared, shares = require "moonreel.nn.shared", require "moonreel.plan.shares"
local filled = cases.filled

local function bytes(name, shape)
  local values = filled(name, shape):reshape { T.count(shape) }:totable()
  for i, v in ipairs(values) do
    values[i] = math.floor(128 + 60 * math.max(math.min(v, 2), -2))
  end
  return T.from(shape, values, "u8")
end

local hunyuan = { in_channels = 3, out_channels = 3, latent_channels = 4,
  block_out_channels = { 4, 4, 8, 8 }, layers_per_block = 1, norm_num_groups = 2,
  time_compression_ratio = 4, spatial_compression_ratio = 8, mid_block_add_attention = true,
  scale_factor = 0.5, shift_factor = 0.1, piece_size = 0 }
local dc = { in_channels = 3, out_channels = 3, latent_channels = 8, widths = { 8, 16, 32 },
  encoder_blocks = { 1, 0, 1 }, decoder_blocks = { 1, 1, 1 }, attention_levels = 1,
  temporal_levels = { 1 }, frames_at_once = 64 }
-- pictures at once are two: of them two ranks have one each, four share their rows
local opensora = { micro_frame_size = 5, micro_batch_size = 2,
  vae_2d = { block_out_channels = { 4, 8, 8 }, layers_per_block = 1, norm_num_groups = 2 },
  vae_temporal = { filters = 4, num_res_blocks = 1, channel_multipliers = { 1, 2 },
    temporal_downsample = { true, false }, num_groups = 2 } }
local variants = {
  hunyuan = { "hunyuan_vae", hunyuan },
  -- piece_size counts MiB, of which these clips have a fraction
  pieces = { "hunyuan_vae", hunyuan, function(auto) auto.most = 4 * 18 * 34 end },
  tiles = { "hunyuan_vae", nn.merged(hunyuan, { use_spatial_tiling = true, sample_size = 32,
    tile_overlap_factor = 0.25 }) },
  wide = { "hunyuan_vae", nn.merged(hunyuan, { norm_num_groups = 4,
    block_out_channels = { 8, 8, 16, 16 } }) },
  dc = { "dc_ae", dc },
  opensora = { "opensora_vae", opensora, function(auto) auto:read "nowhere" end },
  pictures = { "opensora_vae", nn.merged(opensora, { trains = "pictures" }) },
  joined = { "opensora_vae", nn.merged(opensora, { trains = "frames" }) },
  flux = { "autoencoder_2d", { ch = 4, ch_mult = { 1, 2, 2 }, num_res_blocks = 1, z_channels = 4,
    norm_groups = 2, in_channels = 3, out_ch = 3, scale_factor = 0.4, shift_factor = 0.1 } },
  deep = { "dc_ae", nn.merged(dc, { widths = { 32, 64, 128 } }) },
}

local function made(variant, dtype)
  local family, fields, change = table.unpack(variants[variant])
  local auto = require("moonreel.models." .. family).new(nil, fields,
    { dtype = dtype, compat = true })
  if change then
    change(auto)
  end
  return auto, require("moonreel.models." .. family), fields
end

-- weights that keep values about as large as they are
local function weight_of(p)
  local scale = #p.shape > 1 and (T.count(p.shape) / p.shape[1]) ^ -0.5 or 0.3
  return filled(p.name, p.shape) * scale
end

local function coder(device, variant, dtype, share)
  local auto = made(variant, dtype)
  auto:share_over(share)
  local params = G.params(dtype)
  local row = auto:parts()[1]
  local layers = row.declare(params)
  params:seal()
  local exec = E.new(device, params, {})
  for _, p in ipairs(params:list()) do
    exec:set_param("frozen", p.name, weight_of(p):to(dtype))
  end
  local enc = require("moonreel.encoder").over(setmetatable({ parts = function()
    return { { name = row.name } } end }, { __index = auto }), params, exec)
  enc.parts[row.name].layers = layers
  return auto, enc, exec
end

-- pictures of a size, and what they are for one rank or for many: results, gradients by name, bytes
-- that a plan counts, parameters
local jobs = {}

local function run(job, device, variant, share, frames, h, w, dtype)
  local auto, enc, exec <close> = coder(device, variant, dtype, share)
  local size = auto:latent(frames, h, w)
  local shape = { frames = frames, height = h, width = w, dtype = "f32", size = size }
  local values = { pixels = filled("pixels", { frames, 3, h, w }),
    z = filled("z", { size[2], size[1], size[3], size[4] }) }
  for name, draw in pairs(auto.draws and auto:draws(frames, h, w) or {}) do
    values[name] = filled(name, draw[2])
  end
  local out, planned = nil, 0
  for _, row in ipairs(enc:plan(job, shape)) do
    planned = planned + row.runs * shares.sent(row.prog:times())
  end
  enc:run(auto:calls(job, shape), values, { [job == "encode" and "z" or "pixels"] = true },
    function(prog, output) out = prog:get(output) end)
  enc:close()
  return out, {}, planned, {}
end

function jobs.encode(...) return run("encode", ...) end
function jobs.decode(...) return run("decode", ...) end

-- one that trains, its parameters, a graph
local function trained(variant, share, dtype)
  local params = G.params(dtype)
  local _, family, fields = made(variant, dtype)
  local auto = family.trained(params, fields, { dtype = dtype })
  auto:share_over(share)
  params:seal()
  return auto, params, G.graph(params)
end

local function gradients(device, params, ...)
  local out, grads, planned = cases.pass(device, params, ...)
  return out, grads, planned, params:list()
end

-- what comes back of two clips, and the gradients of their sum by weights
function jobs.train(device, variant, share, frames, h, w, dtype, recompute)
  local auto, params, g = trained(variant, share, dtype)
  local size = auto:latent(frames, h, w)
  local given = { x = filled("x", { 2, frames, h, w, 3 }),
    noise = filled("noise", { 2, size[2], size[3], size[4], size[1] }) }
  local x, noise = g:input("x", "f32", given.x.shape), g:input("noise", "f32", given.noise.shape)
  local again = recompute and function() return true end or nil
  local out, normal
  if auto.draws then
    out, normal = auto:reconstruct(g, x, noise, again)
  else
    out = auto:reconstruct(g, x, again)
  end
  local loss = cases.weighted(g, given, out)
  if normal then
    loss = loss + ops.sum(normal.mean * normal.mean * noise, { axes = { 0, 1, 2, 3, 4 } })
  else
    given.noise = nil
  end
  return gradients(device, params, g, out, loss, given, weight_of)
end

-- the losses of two clips where a family has them by itself, and the gradients of their sum
function jobs.lose(device, variant, share, frames, h, w, dtype)
  local auto, params, g = trained(variant, share, dtype)
  local given, io = { pixels = bytes("x", { 2, frames, 3, h, w }),
    seed = T.from({ 1 }, { 5 }, "i64"), keys = T.from({ 2 }, { 11, 12 }, "i64"),
    epoch = T.from({ 1 }, { 0 }, "i32") }, { B = 2 }
  for name, value in pairs(given) do
    io[name] = g:input(name, value.dtype, value.shape)
  end
  local terms = auto:losses(g, io)
  local all = terms.error + terms.kl
  return gradients(device, params, g, all, (ops.sum(all, { axes = { 0 } })), given, weight_of)
end

cases.run(function(_, _, size) return size end,
  function(at, job, variant, size, by, frames, h, w, more)
    local dtype = more == "bf16" and more or "f32"
    local want, want_grads = jobs[job](at.device, variant, nil, frames, h, w, dtype)
    at.world:reset_counts()
    local share = shared.new { by = by, comm = at.group, trains = job == "train" or job == "lose" }
    local got, grads, planned, list = jobs[job](at.device, variant, share, frames, h, w, dtype,
      more == "recompute")
    local counts = at.world:counts()
    for _, p in ipairs(list) do
      if grads[p.name] then
        at.group:all_reduce(grads[p.name])
      end
    end
    -- next to nothing is the gradient of the keys' biases, which is zero
    local one, all = cases.errors(grads, want_grads, list, 1e-2)
    return { cases.norm(got - want) / cases.norm(want), one, all, cases.sent(counts, "shift"),
      cases.sent(counts, "all_to_all"), cases.sent(counts, "all_gather"), planned }
  end)
]]

local LIST = [[
encode by 2: encode hunyuan 2 rows 5 32 16
encode by 4, uneven rows: encode hunyuan 4 rows 5 34 18
encode a picture by 2: encode hunyuan 2 rows 1 16 8
encode pieces by 3: encode pieces 3 rows 9 34 18
encode tiles by 2: encode tiles 2 rows 1 56 40
encode by 2, bf16: encode hunyuan 2 rows 5 32 16 bf16
decode by 2: decode hunyuan 2 rows 5 32 16
decode by 4, uneven rows: decode hunyuan 4 rows 5 40 18
decode pieces by 2: decode pieces 2 rows 9 34 18
decode tiles by 4: decode tiles 4 rows 1 64 40
train by 2: train hunyuan 2 rows 5 32 16
train by 4, uneven rows: train hunyuan 4 rows 5 40 16
train by 3, layers again: train hunyuan 3 rows 5 24 16 recompute
DC-AE, encode by 2: encode dc 2 rows 6 16 12
DC-AE, encode by 4, uneven rows: encode dc 4 rows 6 36 12
DC-AE, decode by 2: decode dc 2 rows 6 16 12
DC-AE, decode by 4: decode dc 4 rows 6 32 12
DC-AE, decode a picture by 2: decode dc 2 rows 1 16 8
DC-AE, train by 2: train dc 2 rows 6 16 8
DC-AE, train by 4: train dc 4 rows 6 32 8
DC-AE, train by 3, layers again: train dc 3 rows 6 28 8 recompute
OpenSora, encode by 2: encode opensora 2 rows 7 16 12
OpenSora, encode by 4, uneven rows: encode opensora 4 rows 7 24 12
OpenSora, encode by 2, bf16: encode opensora 2 rows 7 16 12 bf16
OpenSora, decode by 2: decode opensora 2 rows 7 16 12
OpenSora, decode by 4, uneven rows: decode opensora 4 rows 7 24 12
OpenSora, train pictures by 2: lose pictures 2 rows 3 16 8
OpenSora, train pictures by 4: lose pictures 4 rows 3 16 8
OpenSora, train frames by 2: lose joined 2 rows 7 16 8
OpenSora, train frames by 4, uneven rows: lose joined 4 rows 7 24 8
Flux, encode by 2: encode flux 2 rows 2 16 12
Flux, decode by 4, uneven rows: decode flux 4 rows 2 24 12
channels, encode by 2: encode hunyuan 2 channels 5 32 16
channels, encode a picture by 2: encode hunyuan 2 channels 1 16 8
channels, encode pieces by 2: encode pieces 2 channels 9 34 18
channels, encode tiles by 2: encode tiles 2 channels 1 56 40
channels, decode by 2: decode hunyuan 2 channels 5 32 16
channels, decode by 4: decode wide 4 channels 5 16 10
channels, decode by 2, bf16: decode hunyuan 2 channels 5 32 16 bf16
channels, train by 2: train hunyuan 2 channels 5 32 16
channels, train by 4, layers again: train wide 4 channels 5 32 8 recompute
DC-AE, channels, encode by 2: encode deep 2 channels 6 16 12
DC-AE, channels, encode by 4: encode deep 4 channels 6 8 12
DC-AE, channels, decode by 4: decode deep 4 channels 6 8 12
DC-AE, channels, train by 2: train deep 2 channels 6 8 8
DC-AE, channels, train by 4, layers again: train deep 4 channels 6 8 8 recompute
]]

local EACH = 7 -- numbers of a rank

-- bytes that a rank sent: rows of neighbours; sums, keys and values; results
local function sent(row, rank)
  return { table.unpack(row, rank * EACH + 4, rank * EACH + 6) }
end

describe("nn.shared", function()
  local dir, done, errors
  setup(function()
    dir = folder.new()
    done, errors = rank_cases.start(dir, CASES, LIST)
  end)
  teardown(function() dir:remove() end)

  for name, how in LIST:gmatch "([^\n]+): ([^\n]*)\n" do
    it("computes what one rank computes: " .. name, function()
      assert.equal(0, done.exit, done.output)
      local row, half = errors[name], how:find "bf16" ~= nil
      assert.is_table(row, done.output)
      for at = 1, #row, EACH do
        assert.is_true(row[at] <= (half and 2e-2 or 1e-5), "off by " .. row[at])
        assert.is_true(row[at + 1] <= 1e-4, "a gradient off by " .. row[at + 1])
        assert.is_true(row[at + 2] <= 1e-5, "gradients off by " .. row[at + 2])
      end
    end)
  end

  it("sends the bytes of the formulas", function()
    assert.equal(0, done.exit, done.output)
    -- of each convolution the row next to the other rank, {frames, columns, channels}: one each way
    -- for those that keep sizes, one downwards for those that halve them
    local both = 4 * (5 * 16 * (3 + 4 + 4) + 5 * 8 * (4 + 4) + 3 * 4 * (4 + 8)
      + 2 * 2 * (8 + 8 + 4 * 8 + 8))
    local down = 4 * (5 * 16 * 4 + 5 * 8 * 4 + 3 * 4 * 8)
    -- 14 norms of 2 groups, of which three numbers each; keys and values of a rank's cells
    local small = 14 * 2 * 3 * 4 + 4 * 2 * 2 * 2 * 2 * 8
    local moments = 4 * 2 * 2 * 2 * 8
    local all = errors["encode by 2"]
    assert.same({ both + down, small, moments }, sent(all, 0))
    assert.same({ both, small, moments }, sent(all, 1))
    -- ranks in the middle send both ways
    all = errors["DC-AE, encode by 4, uneven rows"]
    assert.equal(sent(all, 0)[1] + sent(all, 3)[1], sent(all, 1)[1])
    assert.equal(sent(all, 1)[1], sent(all, 2)[1])
    -- of channels: the outputs of blocks, added by halves and gathered
    local ends = 5 * 32 * 16 * 4 + 5 * 16 * 8 * (4 + 4) + 3 * 8 * 4 * (4 + 8)
      + 2 * 4 * 2 * (8 + 8 + 2 * 8)
    assert.same({ 0, 2 * ends * 4 // 2, 0 }, sent(errors["channels, encode by 2"], 0))
    -- gradients return to where rows came from, of two clips; pixels have none. Decoded clips have
    -- 2, 2, 3, 5 frames of 2, 4, 8, 16 columns, where levels begin with the upsampled ones.
    local decoded = 4 * (2 * 2 * (4 + 8 * 8) + 2 * 4 * (8 + 4 * 8) + 3 * 8 * (8 + 8 + 3 * 4)
      + 5 * 16 * (4 + 4 * 4 + 4))
    all = errors["decode by 2"]
    assert.same({ decoded, decoded }, { sent(all, 0)[1], sent(all, 1)[1] })
    -- of pictures that ranks divide, moments and incoming gradients only, of two clips of 3
    -- pictures
    all = errors["OpenSora, train pictures by 2"]
    assert.same({ 0, 0, 4 * 3 * (4 * 2 * 8 + 16 * 8 * 3) }, sent(all, 0))
    -- three times one of two pictures and half of the last one; half of the rows of latent frames
    all = errors["OpenSora, encode by 2"]
    assert.equal(4 * (4 * 3 * 8 * 7 // 2 + (3 + 1) * 2 * 3 * 8), sent(all, 0)[3])
    all = errors["train by 2"]
    assert.equal(2 * (2 * both + down - 4 * 5 * 16 * 3 + 2 * decoded), sent(all, 0)[1])
  end)

  it("sends the bytes that plans count", function()
    local n = 0
    for name, row in pairs(errors) do
      for rank = 0, #row // EACH - 1 do
        local shift, swap, gather = table.unpack(sent(row, rank))
        -- a plan assumes even shares, which pieces do not have
        local all, even = shift + swap + gather, name:find "by 2" and not name:find "pieces"
        assert.near(all, row[rank * EACH + EACH], (even and 0 or 1e-2) * all, name)
        n = n + 1
      end
    end
    assert.is_true(n > 20)
  end)

  -- the results of some cases on another device
  local function elsewhere(device, wanted)
    local list, n = rank_cases.some(LIST, function(line)
      for _, name in ipairs(wanted) do
        if line:find(name .. ":", 1, true) == 1 then
          return true
        end
      end
    end)
    assert.equal(#wanted, n)
    local there, rows = rank_cases.start(dir, CASES, list, device)
    assert.equal(0, there.exit, there.output)
    return rows
  end

  it("computes the same in any order of queues", function()
    local names = { "encode pieces by 3", "decode by 4, uneven rows", "train by 3, layers again",
      "DC-AE, train by 4", "channels, train by 2", "DC-AE, channels, decode by 4" }
    local late = elsewhere("shadow", names)
    for _, name in ipairs(names) do
      assert.same(errors[name], late[name])
    end
  end)

  -- builds with sanitizers have no emulated GPU; a second device is not used with it
  local on_gpus = not os.getenv "MOONREEL_DEVICE"
    and base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so"))) and it or pending
  on_gpus("gives it between emulated GPUs, and sends as much", function()
    local names = { "encode a picture by 2", "DC-AE, decode a picture by 2",
      "channels, encode a picture by 2" }
    local there = elsewhere("cudaemu", names)
    for _, name in ipairs(names) do
      local want, row = errors[name], there[name]
      for rank = 0, #want // EACH - 1 do
        assert.is_true(row[rank * EACH + 1] <= 1e-5, "off by " .. row[rank * EACH + 1])
        assert.same(sent(want, rank), sent(row, rank))
      end
    end
  end)

  it("refuses ranks that do not divide the channels, and proposes numbers that do", function()
    local function refused(family, fields, ranks, text)
      local auto = require("moonreel.models." .. family).new(nil, fields, { dtype = "f32" })
      fails("MR_E_RECIPE", text, auto.share_over, auto, shared.new { by = "channels",
        ranks = ranks })
    end
    refused("hunyuan_vae", { block_out_channels = { 12, 12, 12, 12 }, norm_num_groups = 12,
      time_compression_ratio = 4, spatial_compression_ratio = 8, piece_size = 0 }, 5,
      "plugin_config_ae%.tp_size = 5: norm_num_groups is 12, which cannot be divided into 5 equal "
      .. "parts; try: plugin_config_ae%.tp_size = 4 or 6$")
    refused("dc_ae", { in_channels = 3, out_channels = 3, latent_channels = 8,
      widths = { 32, 64, 64 }, encoder_blocks = { 1, 1, 1 }, decoder_blocks = { 1, 1, 1 },
      attention_levels = 1, temporal_levels = {}, frames_at_once = 0 }, 4,
      "tp_size = 4: the number of heads of widths%[2%] is 2, which cannot be divided into 4 equal "
      .. "parts; try: plugin_config_ae%.tp_size = 2$")
  end)

  -- the error of a single rank about a clip that it shares
  local function refused(auto, job, ranks, frames, height, width, text)
    auto:share_over(shared.new { ranks = ranks })
    local shape = { frames = frames, height = height, width = width, dtype = "f32",
      size = auto:latent(frames, height, width) }
    local params = G.params "f32"
    local net = auto:parts()[1].declare(params)
    params:seal()
    local g, call = G.graph(params), auto:calls(job, shape)[1]
    local io = {}
    for name, row in pairs(call.takes) do
      io[name] = g:input(name, row.dtype, row.shape)
    end
    fails("MR_E_SHAPE", text, call.nodes, g, net, io)
  end

  it("is an argument when a codec is opened, which not all families support", function()
    local params = G.params "f32"
    local fields = { in_channels = 3, out_channels = 3, latent_channels = 4,
      block_out_channels = { 4, 4, 8, 8 }, layers_per_block = 1, norm_num_groups = 2,
      time_compression_ratio = 4, spatial_compression_ratio = 8, mid_block_add_attention = true,
      scale_factor = 0.5, shift_factor = 0.1, piece_size = 0 }
    require("moonreel.models.hunyuan_vae.network").new(require("moonreel.nn").scope(params), fields)
    local file = dir:random_weights("vae.safetensors", params:seal(), 0.1)
    require("datasets.demo.weights").vae(dir.path .. "/other", 5)
    local script = dir:write("open.lua", ([[
      local T, codec = require "moonreel.core.tensor", require "moonreel.codec"
      local world = require("moonreel.comm").world()
      local function open(path, fields, comm, by)
        return codec.open(path, { comm = comm, fields = fields, by = by })
      end
      local fields = { latent_channels = 4, block_out_channels = { 4, 4, 8, 8 },
        layers_per_block = 1, norm_num_groups = 2 }
      local alone, ours = open("%s", fields), open("%s", fields, world)
      local x = T.new("f32", { 5, 3, 16, 16 }):fill_normal(1, "x")
      local z = alone:encode(x)
      local off, most = (ours:encode(x) - z):max(), z:max()
      local _, problem = pcall(open, "%s", nil, world, "channels")
      if world:rank() == 0 then
        print(off < 1e-5 * most, problem)
      end]]):format(file, file, dir.path .. "/other"))
    local shown = process.run({ process.program(), "-n", "2", script }, "", { deadline_s = 100 })
    assert.equal(0, shown.exit, shown.output)
    assert.matches("^true\t.*ranks = 2: ranks cannot share the channels of this "
      .. "autoencoder's clips, only with types dc_ae, hunyuan_vae; try: ranks = 1", shown.output)
  end)

  it("refuses rows that are smaller than a cell when no picture is whole", function()
    local auto = require("moonreel.models.opensora_vae").new(nil, { micro_batch_size = 1,
      micro_frame_size = 17, vae_2d = { block_out_channels = { 4, 8, 8 }, norm_num_groups = 2 },
      vae_temporal = { filters = 4, channel_multipliers = { 1, 1, 1, 1 }, num_groups = 2 } })
    auto:read "nowhere"
    refused(auto, "encode", 2, 1, 22, 16, "plugin_config_ae%.sp_size = 2: pictures are 22 pixels "
      .. "high, but ranks share rows of cells of 4; try: a height of 20 or 24$")
  end)

  it("refuses stripes that are narrower than a kernel, and proposes what works", function()
    local hunyuan = require("moonreel.models.hunyuan_vae").new(nil, { in_channels = 3,
      out_channels = 3, latent_channels = 4, block_out_channels = { 4, 4, 8, 8 },
      layers_per_block = 1, norm_num_groups = 2, time_compression_ratio = 4,
      spatial_compression_ratio = 8, mid_block_add_attention = true, piece_size = 0 },
      { dtype = "f32" })
    refused(hunyuan, "encode", 4, 1, 24, 16, "4 ranks share 3 rows of cells, 8 pixels each: a "
      .. "convolution reads 1 row of its neighbour, which has only 0; try: "
      .. "plugin_config_ae%.sp_size = 2, or clips 32 pixels high")
    local dc = require("moonreel.models.dc_ae").new(nil, { in_channels = 3, out_channels = 3,
      latent_channels = 8, widths = { 8, 16, 32 }, encoder_blocks = { 1, 0, 1 },
      decoder_blocks = { 1, 1, 1 }, attention_levels = 1, temporal_levels = { 1 },
      frames_at_once = 0 }, { dtype = "f32" })
    -- the neighbours of queries, keys and values are 5 x 5 x 5 cells
    for _, job in ipairs { "encode", "decode" } do
      refused(dc, job, 4, 2, 20, 8, "4 ranks share 5 rows of cells, 4 pixels each: a convolution "
        .. "reads 2 rows of its neighbour, which has only 1; try: plugin_config_ae%.sp_size = 2, "
        .. "or clips 32 pixels high")
    end
    -- half as many ranks would have a row each: too few for those
    refused(dc, "encode", 8, 1, 20, 8, "8 ranks share 5 rows of cells, 4 pixels each: a "
      .. "convolution reads 2 rows of its neighbour, which has only 0; try: "
      .. "plugin_config_ae%.sp_size = 2, or clips 64 pixels high")
  end)
end)
