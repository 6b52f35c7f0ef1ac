--- What the 28,000 GPU-hour reproduction changes in every stage. Ref: LambdaLabsML fork of
-- Open-Sora v1.2.
return recipe.extend("../base") {
  vae = { from_pretrained = "hpcai-tech/OpenSora-VAE-v1.2" },
  text_encoder = { local_files_only = recipe.remove },
  outputs = "outputs_speedrun", wandb = true,
  epochs = 5, ckpt_every = 100,
  lr = 1.6e-4, warmup_steps = 400, weight_decay = 0.01,
}
