-- The demo: a small STDiT3 that learns 64 of 72 (colour, shape, direction) triples of
-- build/demo/demo.mrx (`make demo-data`) in minutes on a CPU, and renders the other eight. Why
-- these numbers: datasets/demo/README.md.
return recipe {
  dataset = { data_path = "build/demo/demo.mrx" },
  resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
  -- stills are cheap: four times as many of them
  bucket_config = { ["32px"] = { [1] = { 1.0, 32 }, [6] = { 1.0, 8 } } },

  vae = { type = "dct" },
  text_encoder = { type = "bytes" },
  model = {
    type = "STDiT3", depth = 3, hidden_size = 128, num_heads = 4, patch_size = { 1, 1, 1 },
    in_channels = 24, pred_sigma = false, caption_channels = 128, model_max_length = 56,
    -- frames have an absolute index; cells stand 16 apart in the position table, as input_sq_size
    -- 512 gives at 32 px
    temporal_pos = "sincos",
  },
  scheduler = { sample_method = "logit-normal", shift = 2, num_sampling_steps = 20,
    cfg_scale = 1.5 },

  seed = 7,
  optim = { type = "muon", lr = 1e-3, muon = { lr = 8e-3 }, betas = { 0.9, 0.99 },
    weight_decay = 0.01, grad_clip = 1.0, ema_decay = 0.99 },
  lr_schedule = "cosine", warmup_steps = function(r) return r.steps // 20 end,
  steps = 1014, log_every = 50,

  sampling = { frames = 6, height = 32, width = 32, fps = 8, batch_size = 32,
    seeds = { 1, 2, 3, 4 } },
}
