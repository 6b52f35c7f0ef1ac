-- FLUX.1 of MLPerf Training 5.1, from scratch on 1,099,776 pictures of 256 x 256 with captions:
-- batches of 512, evaluated after every 262,144 samples (mlperf/flux1_eval), until the loss is
-- 0.586; the reference takes 7.1 to 7.6 M samples. Latents and text features come from a cache,
-- which mlperf/flux1_extract makes. Ref: mlcommons/training 1c759d0, text_to_image;
-- pytorch/torchtitan 0e13811, flux_schnell_mlperf_preprocessed; hyper-parameters of a batch of 512
-- as submissions have them.
local SIDE, BATCH, MICRO = 256, 512, 8

return recipe {
  resolutions = recipe.replace {
    square = { pixels = SIDE ^ 2, aspects = { { 1.0, SIDE, SIDE } } },
  },
  bucket_config = { square = { [1] = { 1.0, MICRO } } },
  -- micro-batches a step, on 1 to 64 ranks
  virtual_ranks = BATCH // MICRO,
  dataset = { draw_epochs = 1 },
  cached = true,

  model = { type = "flux", class_dropout_prob = 0.1 },
  vae = { type = "autoencoder_2d", from_pretrained = "./ckpts/flux/ae.safetensors" },
  text_encoder = { type = "text_embedder", from_pretrained = "google/t5-v1_1-xxl",
    max_length = 256 },
  clip = { type = "text_embedder", from_pretrained = "openai/clip-vit-large-patch14",
    max_length = 77 },

  -- times are uniform, a clean picture keeps no noise
  train_times = "uniform", sigma_min = 0,
  optim = { lr = 2e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, grad_clip = 1.0,
    ema_decay = recipe.none },
  warmup_steps = 1600,
  plugin = "zero2",
  epochs = 7, steps = 14848, ckpt_every = 512, keep_n_latest = 2,
}
