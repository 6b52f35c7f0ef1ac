-- Training the deep compression autoencoder. Ref: hpcaitech/Open-Sora 7ad6a96, configs/vae/train.
return recipe {
  compat = "opensora-2.0",
  model = { type = "dc_ae", model_name = "dc-ae-f32t4c128", from_scratch = true },
  dataset = { type = "video_text",
    data_path = "datasets/pexels_45k_necessary.csv", fps_max = 24 },
  bucket_config = { ["256px_ar1:1"] = { [32] = { 1.0, 1 } } },
  mixed_strategy = "mixed_video_image", mixed_image_ratio = 0.2,
  vae_loss_config = { perceptual_loss_weight = 0.5, kl_loss_weight = 0 },
  optim = { type = "HybridAdam", lr = 5e-5, betas = { 0.9, 0.98 }, grad_clip = 1.0,
    ema_decay = 0.99 },
  warmup_steps = 0, update_warmup_steps = true,
  num_workers = 12, num_bucket_build_workers = 64,
  pin_memory_cache_pre_alloc_numels = require("../parts").pinned { 24, 50 * 1024 ^ 2 },
  plugin = "zero2", plugin_config = { reduce_bucket_size_in_m = 128, overlap_allgather = false },
  seed = 42,
  epochs = 100, log_every = 10, ckpt_every = 3000, keep_n_latest = 50, wandb_project = "dcae",
}
