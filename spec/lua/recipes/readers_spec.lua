--- The read log: a field that has a reader in the registry is read, with its new value.
-- Covers: lua/moonreel/settings/readers.lua
local app = require "moonreel.app"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local kinds = require "moonreel.recipe.kinds"
local readlog = require "spec.support.readlog"
local marker = require "moonreel.recipe.marker"
local settings = require "moonreel.settings"
local when = require "moonreel.recipe.when"

-- the source text of a model family, without its fields
local function family_text(name)
  local text, folder_of = "", "lua/moonreel/models/" .. name .. "/"
  for _, path in ipairs(app.embedded_list()) do
    if path:find(folder_of, 1, true) and path ~= folder_of .. "fields.lua" then
      text = text .. app.embedded(path)
    end
  end
  return text
end

-- another value for each field that a small training run and a rendering accept
local values = {
  "accumulate=2", "allow_empty_buckets=true", "anneal_strategy=linear", "lr_schedule=1cycle",
    "cooldown_steps=3", "min_lr=1e-4", "max_lr=2e-3",
  "warmup_steps=1", "bucket_config={'32px': {1: (1.0, 3), 6: (0.0, 2), 17: (0.5, 2)}}",
    "ckpt_every=2", "dtype=fp32", "epochs=2", "grad_checkpoint=true",
  "grad_ckpt_settings=[1, 1]", "log_every=3", "mask_ratios={'image_head': 0.5}",
    "compat=opensora-1.2", "device=cpu", "threads=1",
  "dataset.frame_interval=2", "num_workers=1", "prefetch=3", "name=log",
    "seed=3", "steps=2", "record_time=true",
  "tensorboard=true", "wandb=true", "wandb_project=p", "wandb_entity=me", "wandb_tags=['a', 'b']",
    "wandb_log=next",
  "optim.betas=[0.5, 0.75]", "optim.ema_decay=0.5", "optim.eps=1e-6", "optim.grad_clip=2",
    "optim.lr=1e-3", "optim.weight_decay=0.5",
  "optim.type=HybridAdam",
  "model.class_dropout_prob=0.5", "model.depth=2", "model.hidden_size=32",
    "model.num_heads=2", "model.input_sq_size=256", "model.mlp_ratio=2",
  "model.caption_channels=32", "model.model_max_length=24", "model.patch_size=[1, 2, 2]",
    "model.pred_sigma=true", "model.qk_norm=false",
  "model.linear=f8", "model.freeze_y_embedder=true", "model.only_train_temporal=true",
  "text_encoder.max_length=24", "text_encoder.ngrams=3", "text_encoder.num_heads=2",
    "text_encoder.rows=64", "text_encoder.width=32",
  "scheduler.loc=0.5", "scheduler.scale=2", "scheduler.shift=none",
    "scheduler.use_timestep_transform=true",
  "scheduler.transform_scale=2", "scheduler.num_sampling_steps=2", "scheduler.cfg_scale=2",
  "sampling.prompts=none", "sampling.batch_size=1", "sampling.fps=4", "sampling.save_fps=3",
    "sampling.frames=17",
  "resolutions={'32px': {'pixels': 600, 'aspects': [[1.5, 30, 20], [0.66, 20, 30]]}}",
    "sampling.resolution=32px", "sampling.aspect_ratio=2:3",
  "sampling.height=none", "sampling.width=none", "sampling.seeds=[5]", "sampling.ema=false",
  "sampling.save_dir=SCRATCH/out", "sampling.prompt_path=SCRATCH/prompts.txt",
}

-- fields that such a run does not reach, with the reason
local elsewhere = {
  ["optim.type"] = "one optimizer under two names", ["dataset.type"] = "the registry's, it has one "
    .. "built type", ["model.type"] = "one built type", ["scheduler.type"] = "one built type",
  ["cache"] = "of runs that read one (spec/lua/job/extract_spec.lua)",
  ["job"] = "the command's (spec/lua/job/extract_spec.lua)",
  ["plugin_config_ae.sp_size"] = "of autoencoders (spec/lua/trainer/clips_spec.lua)",
  ["plugin_config_ae.tp_size"] = "likewise",
  ["plugin_config_ae.enable_sequence_parallelism"] = "likewise",
  ["strict"] = "of weights to start from (spec/lua/trainer/setup_spec.lua)",
  data_change = "of a run that goes on with other samples (spec/trainer/restart_spec.lua)",
  ["vae.from_pretrained"] = "of weights that lie apart (spec/recipes/tiny_opensora12_spec.lua)",
  plugin = "of several ranks (spec/lua/trainer/zero_spec.lua)",
  ["plugin_config.reduce_each"] = "of several ranks", ["plugin_config.zero_stage"] = "likewise",
  ["plugin_config.ulysses_size"] = "of ranks that share tokens (spec/lua/trainer/world_spec.lua)",
  restarts = "of a launcher of ranks (spec/lua/comm/launch_spec.lua)", restart_pause = "likewise",
  restart_steps = "likewise",
  ["spike.norm_factor"] = "of norms that are known (spec/lua/trainer/spikes_spec.lua)",
  ["spike.loss_sigmas"] = "of losses that are known",
  no_i2v_ref_loss = "of models with conditions (spec/lua/trainer/conditions_spec.lua)",
  ["sampling.most_share"] = "of renderings of a run (spec/lua/trainer/rendering_cost_spec.lua)",
  ["sampling.threads"] = "of renderings during a run (spec/lua/trainer/renderings_spec.lua)",
  ["vae.type"] = "another type lies apart", ["text_encoder.type"] = "one built type",
}

for _, name in ipairs{"kl_loss_weight", "perceptual_loss_weight", "perceptual_network",
  "perceptual_linear"} do
  elsewhere["vae_loss_config." .. name] = "of an autoencoder that trains (spec/lua/losses)"
end

for _, name in ipairs{"mixed_strategy", "mixed_image_ratio"} do
  elsewhere[name] = "of an autoencoder that trains (spec/lua/losses/adversarial_spec.lua)"
end

for record, names in pairs{gen_loss_config = {"gen_start", "disc_weight"},
  disc_loss_config = {"disc_start", "disc_loss_type"}, discriminator_schedule = {"warmup_steps"},
  discriminator = {"type", "from_pretrained", "input_nc", "ndf", "n_layers", "dropout"},
  discriminator_optim = {"lr", "betas", "eps", "weight_decay"}} do
  for _, name in ipairs(names) do
    elsewhere[record .. "." .. name] = "of a discriminator (spec/lua/losses/adversarial_spec.lua)"
  end
end

for _, name in ipairs{"norm_factor", "update_most", "update_least", "dead_most", "ema_most"} do
  elsewhere["weights." .. name] = "of runs of 100 updates (spec/lua/trainer/weights_spec.lua)"
end

for _, name in ipairs{"compile", "device", "forward", "index", "load", "open", "optimizer",
  "patience", "persist", "reduce", "snapshot", "start", "weights"} do
  elsewhere["watch." .. name] = "the launcher's, who watches ranks (spec/lua/life/hang_spec.lua)"
end

for _, name in ipairs{"cond_type", "flow_shift", "guidance", "guidance_img", "image_osci",
  "img_resolution", "is_causal_vae", "method", "motion_score", "num_steps", "prompt_refine",
  "save_prefix", "scale_temporal_osci", "seed", "shift", "temporal_reduction", "text_osci",
  "use_t2i2v"} do
  elsewhere["sampling." .. name] = "of renderings of 2.0 (spec/lua/sample/shifted_spec.lua)"
end
for _, record in ipairs{"img_flux", "img_flux_ae"} do
  for _, name in ipairs{"type", "from_pretrained"} do
    elsewhere[record .. "." .. name] = "likewise"
  end
end

for _, name in ipairs{"eval_ema", "eval_in_turn", "eval_timesteps", "num_eval_timesteps"} do
  elsewhere[name] = "of evaluation losses (spec/lua/job/eval_loss_spec.lua)"
end

describe("readers of fields", function()
  local dir, parts, bake = folder.new(), {}, settings.bake
  teardown(function()
    settings.bake = bake
    for module, new in pairs(parts) do
      module.new = new
    end
    dir:remove()
    demo_data.remove()
  end)

  it("read all fields of the registry, with the value of the command line", function()
    local recipe = dir:write("log.lua", 'return recipe.extend("tiny/demo") {}')
    local arguments = { "data_path=" .. demo_data.path(), "outputs=" .. dir.path .. "/runs" }
    for i, text in ipairs(values) do
      arguments[i + 2] = text:gsub("SCRATCH", dir.path)
    end
    dir:write("prompts.txt", "a red circle\na blue square\n")
    local baked = settings.bake(recipe, arguments, { child = false })
    local watched, log = readlog.watch(baked)
    -- models get a plain copy without a log, so their source text is searched
    for path, name in pairs { model = "stdit3", vae = "dct", text_encoder = "bytes" } do
      local module = require("moonreel.models." .. name)
      parts[module] = module.new
      module.new = function(params, config)
        readlog.named(log, path, config, family_text(name))
        return parts[module](params, config)
      end
    end
    assert.equal(0, (require("moonreel.trainer").run(watched, { write = function() end })))
    -- the command itself, with a log of its settings
    settings.bake = function() return watched end
    local report, real = {}, print
    _G.print = function(path) report[#report + 1] = path end
    local ok, code = pcall(require("moonreel.cli.sample").run, { recipe })
    _G.print = real
    assert.same({ true, 0, 2 }, { ok, code, #report })
    local missed = {}
    for _, leaf in ipairs(baked:leaves()) do
      local row = leaf.row
      local read_here = row.reader and row.reader ~= "user" and row.reader ~= "cli"
        and not row.no_meaning and leaf.path ~= "stages"
      if when.unread(row, leaf.path, function(path)
        local known, value = pcall(baked.get, baked, path)
        return known and value == nil and marker.none or value
      end) then
        read_here = false
      end
      if read_here and not elsewhere[leaf.path] and log[leaf.path] ~= kinds.show(leaf.raw) then
        missed[#missed + 1] = ("%s is %s, read %s"):format(leaf.path, kinds.show(leaf.raw),
          log[leaf.path])
      end
    end
    assert.equal("", table.concat(missed, "\n"))
    local file = assert(io.open(dir.path .. "/out/sample_0000.mp4"))
    file:close()
  end)
end)
