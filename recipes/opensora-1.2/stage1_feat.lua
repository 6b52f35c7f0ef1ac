-- Stage 1 on features made before: no autoencoder, no text encoder.
return recipe.extend("./base") {
  dataset = { type = "BatchFeatureDataset" },
  mask_ratios = require("lib/masks")(0.2, 0.01, 0.05, 0.1, 0.05),
  model = { skip_y_embedder = true },
  vae = recipe.remove, text_encoder = recipe.remove,
  load_video_features = true, load_text_features = true,
  model_max_length = 300,
  num_workers = recipe.remove, num_bucket_build_workers = recipe.remove,
  lr = 2e-4,
  ckpt_every = 500,
}
