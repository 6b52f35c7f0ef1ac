-- From the image model to video: short clips, strong masks, nothing frozen.
return recipe.extend("./base") {
  bucket_config = require("./buckets").adapt,
  mask_ratios = require("lib/masks")(0.2, 0.01, 0.05, 0.1, 0.05),
  model = { freeze_y_embedder = recipe.remove },
  grad_checkpoint = recipe.remove,
  ckpt_every = 500,
}
