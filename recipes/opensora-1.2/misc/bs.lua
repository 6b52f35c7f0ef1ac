-- Search of batch sizes: those whose step takes just less than that of 408 frames at 512:
-- `moonreel train opensora-1.2/misc/bs --data-path NAME.mrx`. Ref: configs/opensora-v1-2/misc/bs.
return recipe.extend("../base") {
  job = "batch_search",
  bucket_config = require("../buckets").search,
  batch_search = { base = { "512", "408" }, step_time = 12, spread = { ["240p"] = { [1] = 200 } } },
  mask_ratios = require("lib/masks")(0.2, 0.01, 0.05, 0.1, 0.05),
  model = { freeze_y_embedder = recipe.remove },
  vae = { from_pretrained = "hpcai-tech/OpenSora-VAE-v1.2" },
  lr = 2e-4,
  ckpt_every = 500,
}
