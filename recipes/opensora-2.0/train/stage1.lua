-- Stage 1: clips at 256px, images up to 1024px.
return recipe.extend("./image") {
  bucket_config = recipe.replace(require("../buckets").stage1),
  lr = 5e-5,
  ckpt_every = 2000,
}
