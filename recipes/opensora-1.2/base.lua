--- What the training recipes of Open-Sora 1.2 share. Ref: hpcaitech/Open-Sora v1.2 (bde3c42),
-- configs/opensora-v1-2/train.
return recipe {
  compat = "opensora-1.2",
  grad_checkpoint = true,
  num_workers = 8, num_bucket_build_workers = 16,
  plugin = "zero2",
  model = { enable_flash_attn = true, enable_layernorm_kernel = true, freeze_y_embedder = true },
  vae = { type = "OpenSoraVAE_V1_2", from_pretrained = "pretrained_models/vae-pipeline" },
  text_encoder = { type = "t5", from_pretrained = "DeepFloyd/t5-v1_1-xxl",
    shardformer = true, local_files_only = true },
  scheduler = { use_timestep_transform = true, sample_method = "logit-normal" },
  seed = 42,
  log_every = 10, ckpt_every = 200,
  grad_clip = 1.0, ema_decay = 0.99, adam_eps = 1e-15,
}
