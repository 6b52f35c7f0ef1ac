-- Latents and text features of a whole data set into a cache, NAME.cache next to its index:
-- `moonreel train opensora-1.2/misc/extract --data-path NAME.mrx`. Ref:
-- configs/opensora-v1-2/misc/extract.
return recipe.extend("./eval_loss") {
  job = "extract",
  epochs = 1,
  num_eval_timesteps = recipe.remove,
  bucket_config = recipe.replace(require("../buckets").stage1),
  num_bucket_build_workers = 16,
  vae = { micro_batch_size = 32 },
  text_encoder = { shardformer = true },
  save_text_features = true, save_compressed_text_features = true, bin_size = 250,
}
