--- Ranks that share clips train the same autoencoder as one rank, with perceptual loss and
-- discriminator. Numbers of ranks that cannot share a clip are refused.
-- Covers: lua/moonreel/comm/clips.lua lua/moonreel/trainer/share.lua
-- lua/moonreel/losses/adversarial.lua
local ckpt = require "moonreel.ckpt"
local clips = require "moonreel.comm.clips"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local vgg = require "spec.support.vgg"
local words = require "spec.support.adversarial"

describe("ranks that share the clips of an autoencoder", function()
  local out, files
  setup(function()
    out = folder.new()
    files = vgg.write(out.path, 4)
  end)
  teardown(function()
    out:remove()
    demo_data.remove()
  end)

  -- with this epsilon, updates are as small as gradients, so their rounding stays small
  local function launch(model, name, ...)
    local all = words(model, files, out.path, "name=" .. name, "steps=2",
      "plugin_config.zero_stage=0", "optim.eps=1", "discriminator_optim.eps=1",
      "optim.grad_clip=1e9", ...)
    demo_data.moonreel("train", "opensora-2.0/vae/train_dc_ae_disc", table.unpack(all))
    return demo_data.run_dir(out.path, name)
  end

  local function same(one, other)
    local a <close> = ckpt.open(ckpt.dir(one, 2))
    local b <close> = ckpt.open(ckpt.dir(other, 2))
    local function most_of(name)
      local size = a:stats(name)
      return math.max(size.max, -size.min)
    end
    -- the largest first and second moments: where gradients are zero only rounding differs
    local largest = {}
    for _, name in ipairs(a:names()) do
      local kind = name:match "^adam_."
      largest[kind or ""] = math.max(largest[kind or ""] or 0, most_of(name))
    end
    for _, name in ipairs(a:names()) do
      -- f32 sums in another order. When rounding moves an activation of a loss network across zero,
      -- a gradient changes. A part that is missing or counted twice would change it by half.
      local kind = name:match "^adam_."
      local most = kind and 3e-2 * most_of(name) + 1e-5 * largest[kind]
        or 1e-3 * most_of(name) + 1e-6
      assert.near(0, a:compare(b, name).max_abs, most, name)
    end
  end

  for _, case in ipairs {
    { "dc_ae", "rows by 2", "nproc_per_node=2", "plugin_config_ae.sp_size=2" },
    { "hunyuan_vae", "channels by 2", "nproc_per_node=2", "plugin_config_ae.tp_size=2" },
    { "hunyuan_vae", "rows by 2 of 4", "nproc_per_node=4", "plugin_config_ae.sp_size=2" },
  } do
    local model, what = case[1], case[2]
    local name = model .. "-" .. what:gsub(" ", "-")
    it("train the same weights as one rank: " .. model .. ", " .. what, function()
      local alone = case[3]:find "4" and "accumulate=2" or "accumulate=1"
      local one = launch(model, name .. "-one", alone)
      same(one, launch(model, name, case[3], case[4]))
    end)
  end

  it("train an autoencoder of pictures, whose latent scale one rank computes", function()
    local file = out:write("pictures.lua", [[return recipe {
      model = { type = "OpenSoraVAE_V1_2", trains = "frames",
        vae_2d = { block_out_channels = { 8, 8 }, layers_per_block = 1, norm_num_groups = 2 },
        vae_temporal = { filters = 4, num_res_blocks = 1, channel_multipliers = { 1, 1 },
          temporal_downsample = { true, false }, num_groups = 2 } },
      bucket_config = { ["32px"] = { [6] = { 1.0, 3 } } }, dtype = "fp32", steps = 2,
      resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
      optim = { lr = 1e-3, eps = 1, grad_clip = 1e9 }, log_every = 1, ckpt_every = 0 }]])
    local function run(name, ...)
      demo_data.moonreel("train", file, "data_path=" .. demo_data.path(), "outputs=" .. out.path,
        "threads=1", "num_workers=1", "name=" .. name, ...)
      return demo_data.run_dir(out.path, name)
    end
    local one = run "pictures-one"
    for _, ranks in ipairs { 2, 4 } do
      same(one, run("pictures-by-" .. ranks, "nproc_per_node=" .. ranks,
        "plugin_config_ae.sp_size=" .. ranks))
    end
  end)

  local function refused(code, text, ranks, ...)
    local s = settings.bake("opensora-2.0/vae/train_dc_ae", { ... })
    fails(code, text, clips.check, s, ranks)
  end

  it("are divided into groups that share rows or channels", function()
    refused("MR_E_USAGE", "4 ranks cannot be divided into groups of 3 that share their clips; try: "
      .. "plugin_config_ae%.sp_size = 2 or 4", 4, "plugin_config_ae.sp_size=3")
    refused("MR_E_RECIPE", "tp_size = 2 with sp_size = 2: ranks share either channels %(tp_size%) "
      .. "or rows of clips %(sp_size%), not both; "
      .. "try: tp_size = 1", 4, "plugin_config_ae.sp_size=2", "plugin_config_ae.tp_size=2")
    local s = settings.bake("opensora-2.0/vae/train_dc_ae", { "plugin_config_ae.sp_size=2",
      "plugin_config_ae.enable_sequence_parallelism=false" })
    assert.same({ by = "rows", ranks = 1, field = "plugin_config_ae.sp_size" }, clips.check(s, 3))
  end)

  it("share the clips that they encode when they share a batch", function()
    local auto = require("moonreel.models.dc_ae").new(nil, settings.bake(
      "opensora-2.0/vae/train_dc_ae"):plain "model", { dtype = "f32" })
    local function join(size, ...)
      local s = settings.bake("opensora-2.0/train/stage2", { ... })
      clips.join(s, { group = size > 1 and { size = function() return size end,
        rank = function() return 1 end, op_group = function() return 7 end } or nil }, auto)
      return auto.share
    end
    assert.is_nil(join(2))
    fails("MR_E_RECIPE", "plugin_config_ae%.sp_size = 4: the ranks that share a batch also "
      .. "share its clips, and 2 ranks share a batch here; try: plugin_config_ae%.sp_size = 2",
      join, 2,
      "plugin_config_ae.sp_size=4")
    local share = join(2, "plugin_config_ae.tp_size=2")
    assert.same({ "channels", 2, 1, 7, false }, { share.by, share.ranks, share.at, share.group,
      share.trains })
  end)

  it("have a plan of the memory of their part and of their communication", function()
    local plan, shape = require "moonreel.plan", require "moonreel.plan.mesh"
    local compiled = require "moonreel.plan.compiled"
    local function planned(...)
      local s = settings.bake("opensora-2.0/vae/train_dc_ae_disc", words("dc_ae", files, out.path,
        ...))
      local mesh = shape.parse "4xH100"
      local graphs <close> = compiled.new(mesh.machine)
      local p = plan.open(s, { mesh = mesh, compiled = graphs })
      local b = { frames = 4, height = 32, width = 32, batch = 2 }
      local step = p:step(b)
      return step.memory.arena, p:seconds(b, step), step.calls
    end
    local whole, alone = planned()
    for _, how in ipairs { "plugin_config_ae.sp_size=2", "plugin_config_ae.sp_size=4" } do
      local arena, s, calls = planned(how)
      assert.is_true(arena < whole, how)
      -- each of the small messages takes at least 8 microseconds
      assert.is_true(calls > 10 and s.exchange > calls * 8e-6 and s.exchange_bytes > 0)
      assert.equal(0, alone.exchange)
    end
  end)

  it("are refused under sp_size of tokens, and the error names the autoencoder's field", function()
    local said = process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", process.program(), "train",
      "opensora-2.0/vae/train_dc_ae_disc", table.unpack(words("dc_ae", files, out.path,
      "nproc_per_node=2", "plugin_config.sp_size=2")) }, "", { deadline_s = 100 })
    assert.equal(3, said.exit)
    assert.matches("dc_ae has no tokens that ranks could share; try: plugin_config_ae%.sp_size = 2",
      said.output)
  end)
end)
