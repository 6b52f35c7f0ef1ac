-- Stage 2: more of the long and the large.
return recipe.extend("./base") {
  bucket_config = require("./buckets").stage2,
  mask_ratios = require("lib/masks")(0.05, 0.005, 0.025, 0.05, 0.025),
}
