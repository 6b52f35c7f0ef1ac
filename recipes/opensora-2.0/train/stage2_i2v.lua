-- Stage 2 with frames given; kept activations may move to the host.
return recipe.extend("./stage2", "./i2v") {
  bucket_config = recipe.replace(require("../buckets").stage2_i2v),
  grad_ckpt_buffer_size = 25 * 1024 ^ 3,
}
