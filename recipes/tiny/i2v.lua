-- A small MMDiT of Open-Sora 2.0 that is given a first frame and learns in minutes on a CPU to go
-- on from it in the direction that the words name (`make demo-i2v`). Shapes begin in the middle, so
-- that a frame does not tell the direction, and captions are of motion alone:
-- `moonreel datasets/demo/build.lua build/demo/i2v 1 6 motion`, then `moonreel data ingest
-- build/demo/i2v/demo.csv -o build/demo/i2v.mrx`; CLIP has random weights: `moonreel
-- datasets/demo/build_weights.lua build/demo/weights`. Why these numbers: datasets/demo/README.md.
return recipe {
  dataset = { data_path = "build/demo/i2v.mrx" },
  resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
  bucket_config = { ["32px"] = { [6] = { 1.0, 8 } } },

  vae = { type = "dct" },
  text_encoder = { type = "bytes", max_length = 16 },
  clip = { type = "clip", from_pretrained = "build/demo/weights/clip" },
  model = {
    type = "flux", depth = 2, depth_single_blocks = 2, hidden_size = 128, num_heads = 4,
    axes_dim = { 8, 12, 12 }, theta = 10, mlp_ratio = 2, patch_size = 1, in_channels = 24,
    context_in_dim = 128, vec_in_dim = 32, cond_embed = true, fused_qkv = false,
    use_liger_rope = true,
  },
  condition_config = { i2v_head = 1 },
  dropout_ratio = { t5 = 0.1, clip = 0.1 },

  seed = 7,
  optim = { lr = 2e-3, betas = { 0.9, 0.99 }, weight_decay = 0.01, grad_clip = 1.0,
    ema_decay = 0.99 },
  lr_schedule = "cosine", warmup_steps = function(r) return r.steps // 20 end,
  steps = 2000, log_every = 100,

  sampling = { frames = 6, height = 32, width = 32, fps = 8, batch_size = 32,
    seeds = { 1, 2, 3, 4 }, cond_type = "i2v_head", num_steps = 20, guidance = 1.5 },
}
