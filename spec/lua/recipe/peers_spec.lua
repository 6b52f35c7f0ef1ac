--- Names of other trainers: accepted when they mean the same, else answered with the right field.
-- Covers: lua/moonreel/recipe/peers.lua lua/moonreel/recipe/registry.lua
-- lua/moonreel/recipe/words.lua
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local override = require "moonreel.recipe.override"
local peers = require "moonreel.recipe.peers"
local registry = require "moonreel.recipe.registry"
local words = require "moonreel.recipe.words"

-- the field of a name, or the error about it
local function of(name)
  local target, problem = override.target(name)
  return target and "= " .. table.concat(target.keys, ".") or problem
end

describe("names of other trainers", function()
  it("are spellings of existing fields, and hide no field", function()
    local root, seen = registry.get().root, {}
    for path, names in pairs(peers.same) do
      assert.equal("= " .. path, of(path))
      for _, name in ipairs(names) do
        assert.is_nil(root.fields[name], name)
        assert.is_nil(seen[name], name)
        seen[name] = true
        assert.equal("= " .. path, of(name))
      end
    end
  end)

  it("with another meaning are answered, and are no fields", function()
    for _, name in ipairs(peers.answered()) do
      -- names of our records that are text elsewhere are answered only for text values
      if not registry.resolve(registry.get().root, name) then
        assert.equal(("%s is not a field: %s"):format(name, peers.answer(name)), of(name))
      end
    end
  end)

  it("are all either a spelling of a field or answered", function()
    for name in base.read_file("spec/lua/recipe/peer_names.txt"):gmatch "%S+" do
      assert.is_truthy(peers.names[name] or peers.answer(name), name)
    end
  end)

  it("have answers that name existing fields", function()
    local seen = 0
    for _, name in ipairs(peers.answered()) do
      for word in peers.answer(name):gmatch("%f[%w_.]([%l_]+%.[%l_]+)%f[^%w_.']") do
        -- r.lr is a field of a final recipe
        assert.equal("= ", of((word:gsub("^r%.", ""))):sub(1, 2), word)
        seen = seen + 1
      end
    end
    assert.is_true(seen > 100, seen)
  end)

  it("are found with prefixes and in other notations", function()
    for name, want in pairs { ["trainer.max_epochs"] = ", did you mean 'epochs'?",
        ["model.optimizer.lr"] = ", did you mean 'optim.lr'?",
        ["wandb.project"] = ", did you mean 'wandb_project'?",
        ["optim.beta1"] = ": optim.betas has both", ["adam-beta1"] = ": optim.betas has both",
        outputDir = ": outputs is the folder", ["hydra.run.dir"] = ": outputs is the folder",
        max_restarts = "= restarts", training_type = "there is no LoRA",
        instance_prompt = ": a caption is a column", prodigy_beta3 = ": optim.type names",
        cp_degree = ": plugin_config.zero_stage shares", fp8_llm = ": model.linear=f8",
        ["trainer.nothing"] = ": fields stand at the top",
        ["dataset.num_frames"] = ": bucket_config says",
        ["data.resolution"] = ": bucket_config says",
        ["sampler.steps"] = ": scheduler.num_sampling_steps", step_size = ": lr_schedule is",
        ["model.optim.sched.name"] = ": lr_schedule is", sample_rate = ": rates of clips",
        dit_path = ": ckpt_path starts from weights", sigma_max = ": models are trained as",
        per_gpu_batch_size = ": bucket_config has the batch", iters = "= steps",
        resume_ckpt = "= load", epsilon = "= optim.eps", dry_run = ": moonreel plan RECIPE",
        ["zero_optimization.stage"] = "plugin_config.zero_stage", lora_rank = "there is no LoRA",
        ["lr_scheduler.name"] = "lr_schedule is constant",
        ["train.use_checkpoint"] = ": grad_checkpoint recomputes" } do
      assert.is_truthy(of(name):find(want, 1, true), of(name))
    end
  end)

  it("that no list has are answered by their words", function()
    for _, name in ipairs(words.models()) do
      local path = registry.resolve(registry.get().root, name) or name:find(".", 1, true)
      assert.is_truthy(path or peers.answer(name), name)
    end
    for name, want in pairs { save_ckpt_freq = "'ckpt_every'",
        num_ckpts_to_keep = "'keep_n_latest'",
        wandb_run_id = ": wandb_project and", ema_halflife = ": optim.ema_decay averages",
        dp_shard = ": plugin_config.zero_stage shares", worker_seed = ": seed draws",
        workers_per_gpu = "'num_workers'", samples_per_gpu = ": bucket_config has the batch",
        sampling_method = "'sampling.method'", vae_scaling_factor = "'vae.scaling_factor'",
        max_train_time = ": steps and epochs end", train_layers = ": autoencoder and text",
        weight_decay_rate = "'optim.weight_decay'", lr_decay_rate = ": lr_schedule is",
        validation_guidance_scale = ": sampling.every=N", clip_stride = ": rates of clips",
        log_grad_norm = ": the journal has", dist_backend = ": -n N starts", qlora = "no LoRA",
        ["datasets.resolution"] = ": bucket_config says", saveEveryIters = "'ckpt_every'",
        ["trainer.gradient_clip_norm"] = "'optim.grad_clip'", print_steps = "'log_every'",
        caption_dropout_ratio = ": captions are replaced", n_checkpoints = "'keep_n_latest'",
        logit_normal_std = "'scheduler.scale'", muon_lr = ": optim.type = \"muon\"" } do
      assert.is_truthy(of(name):find(want, 1, true), of(name))
    end
  end)

  it("are never answered with a field of another kind", function()
    for name, never in pairs { batch = "watch", betas = "discriminator",
        ["dataset.index"] = "watch", cache_dir = "cached'", data_seed = "dataset'",
        stride = "strict", crop_size = "cp_size",
        drop_path = "data_path", train_batch_size = "micro_batch_size", optimiser = "watch",
        resume_lr = "optim.lr",
        ns_steps = "'steps'", train_iter_layers = "'steps'", eval_num_steps = "eval_timesteps",
        buffer_size = "bucket_config" } do
      assert.is_nil(of(name):find(never, 1, true), of(name))
    end
    assert.equal("optimiser is not a field, did you mean 'optimizer'?", of "optimiser")
    assert.equal("drop_path is not a field, did you mean 'model.drop_path'?", of "drop_path")
    assert.equal("nothing_like_it is not a field; moonreel help fields lists them",
      of "nothing_like_it")
  end)

  it("work in recipes, and two spellings of one field in a layer are an error", function()
    local dir <close> = folder.new()
    local s = dir:bake([[return recipe.extend("tiny/demo") { lrate = 3e-4,
      optimizer = { betas = { 0.9, 0.95 } }, max_train_steps = 7 }]],
      { "gradient_accumulation_steps=2" })
    assert.same({ 3e-4, 0.95, 7, 2 }, { s.optim.lr, s.optim.betas[2], s.steps, s.accumulate })
    for text, want in pairs { ['lr_scheduler = "cosine"'] = 'expected a table of fields, got text '
        .. '"cosine"; lr_schedule is constant', ['optimizer = "adamw"'] = "; optim.type names",
        ["lr = 1, learning_rate = 2"] = "is written twice",
        ["adam_beta1 = 0.9"] = "main.lua:1: adam_beta1 is not a field: optim.betas has both" } do
      local _, fault = dir:fault(('return recipe.extend("tiny/demo") { %s }'):format(text))
      assert.is_truthy(fault:find(want, 1, true), fault)
    end
    local _, fault = dir:fault('return recipe.extend("tiny/demo") {}', { "optimizer=adamw" })
    assert.is_truthy(fault:find("optim.type names the optimizer", 1, true), fault)
  end)
end)
