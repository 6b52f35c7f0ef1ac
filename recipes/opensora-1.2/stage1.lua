-- Stage 1: all sizes, mostly 240p and below.
return recipe.extend("./base") {
  bucket_config = require("./buckets").stage1,
  mask_ratios = require("lib/masks")(0.05, 0.005, 0.025, 0.05, 0.025),
  warmup_steps = 1000,
}
