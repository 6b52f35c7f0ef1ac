-- Stage 3: high quality clips, many conditioned on their first frame.
return recipe.extend("./base") {
  bucket_config = require("./buckets").stage3,
  mask_ratios = require("lib/masks")(0.01, 0.002, 0.0, 0.22, 0.005),
  warmup_steps = 1000,
}
