-- Images only; all training recipes of Open-Sora 2.0 begin here. Ref: hpcaitech/Open-Sora 7ad6a96,
-- configs/diffusion.
local parts = require "../parts"

return recipe {
  compat = "opensora-2.0",
  dataset = { type = "video_text", fps_max = 24, vmaf = true },
  bucket_config = require("../buckets").image,
  model = { type = "flux", fused_qkv = false, use_liger_rope = true },
  grad_checkpoint = true, grad_ckpt_settings = { 8, 100 },
  dropout_ratio = { t5 = 0.31622777, clip = 0.31622777 },
  vae = parts.hunyuan, is_causal_vae = true,
  text_encoder = { type = "text_embedder", from_pretrained = "google/t5-v1_1-xxl",
    shardformer = true },
  clip = { type = "text_embedder", from_pretrained = "openai/clip-vit-large-patch14",
    max_length = 77 },
  optim = { type = "HybridAdam", lr = 1e-5, eps = 1e-15, grad_clip = 1.0, ema_decay = recipe.none },
  warmup_steps = 0, update_warmup_steps = true,
  num_workers = 12, num_bucket_build_workers = 64,
  pin_memory_cache_pre_alloc_numels = parts.pinned({ 24, 280 * 1024 ^ 2 }, { 4, 54 * 1024 ^ 2 }),
  plugin = "zero2", plugin_config = { reduce_bucket_size_in_m = 128, overlap_allgather = false },
  seed = 42,
  log_every = 10, ckpt_every = 100, async_io = false, keep_n_latest = 20,
  wandb_project = "mmdit",
}
