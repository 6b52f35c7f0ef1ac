-- Training on text features of a cache, which misc/extract makes: no T5 in the loop. With cached =
-- true latents come from it, too. Ref: configs/opensora-v1-2/misc/feat.
return recipe.extend("../base") {
  dataset = { dummy_text_feature = true },
  bucket_config = require("../buckets").stage1,
  mask_ratios = require("lib/masks")(0.2, 0.01, 0.05, 0.1, 0.05),
  model = { skip_y_embedder = true },
  vae = { from_pretrained = "hpcai-tech/OpenSora-VAE-v1.2" },
  load_text_features = true,
  num_workers = 0,
  lr = 2e-4,
  ckpt_every = 1,
}
